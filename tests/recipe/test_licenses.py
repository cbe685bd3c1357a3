"""Licences by the Hub's spelling, whatever way people write them, and the nearest one to a mistake."""

from __future__ import annotations

import pytest

from counterfoil.recipe import load_recipe
from counterfoil.recipe.layering import bundled_recipes
from counterfoil.recipe.names import HUB_LICENSES, LICENSE_NAMES, hub_license, license_note


@pytest.mark.parametrize(
    ("license", "spelled"),
    [
        ("mit", "mit"),
        ("MIT License", "mit"),
        (" MIT\n", "mit"),
        ("CC BY 4.0", "cc-by-4.0"),
        ("cc_by_nc_sa_4.0", "cc-by-nc-sa-4.0"),
        ("Apache License, Version 2.0", None),
        ("Apache License 2.0", "apache-2.0"),
        ("Apache License Version 2.0", "apache-2.0"),
        ("openrail++", "openrail++"),
        ("OpenRAIL++-M", "openrail++"),
        ("The Unlicense", "unlicense"),
        ("gpl-3.0+", None),
        ("cc-by-4", None),
        ("not mit", None),
        ("", None),
    ],
)
def test_a_licence_of_the_list_is_known_however_it_is_written(license: str, spelled: str | None) -> None:
    assert hub_license(license) == spelled


def test_every_licence_of_the_list_is_itself_and_so_is_its_name() -> None:
    assert all(hub_license(one) == one for one in HUB_LICENSES)
    assert LICENSE_NAMES.keys() <= HUB_LICENSES
    assert all(hub_license(name) == one for one, name in LICENSE_NAMES.items())


def test_the_nearest_licence_is_asked_about() -> None:
    assert "did you mean 'cc-by-4.0'?" in str(license_note("cc-by-4"))
    assert "did you mean 'apache-2.0'?" in str(license_note("apache-2"))
    note = str(license_note("Terms of the Museum"))
    assert "did you mean" not in note
    assert "'other' with the license_name 'terms-of-the-museum'" in note
    assert license_note("MIT License") is None


def test_a_note_is_one_short_line_whatever_the_licence_holds() -> None:
    note = str(license_note("\x1b[31m" + "mit\n" * 50_000))
    assert note.isprintable()
    assert len(note) < 400


def test_the_bundled_recipes_name_licences_of_the_list() -> None:
    assert {hub_license(load_recipe(name).license) for name in bundled_recipes()} <= HUB_LICENSES
