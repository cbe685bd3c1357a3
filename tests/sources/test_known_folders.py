"""A folder that a dataset pins is found again on this machine by its content, and never otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_inputs import Source
from counterfoil.sources.known_folders import placed
from counterfoil.sources.pins import pin_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos" / "mug").mkdir(parents=True)
    (tmp_path / "photos" / "mug" / "1.png").write_bytes(b"one")
    return tmp_path / "photos"


def source_of(name: str) -> Source:
    return load_recipe("wardrobe-mini").source.model_copy(update={"dataset": name})


def test_the_folder_of_a_pin_is_found_where_it_lies_now(folder: Path) -> None:
    pin = pin_source(source_of(str(folder))).document()
    portable = source_of("elsewhere:./photos")
    assert placed(portable, pin).dataset == str(folder.resolve())
    moved = folder.rename(folder.with_name("other"))
    assert placed(portable, pin) is portable, "nothing lies there any more"
    pin_source(source_of(str(moved)))
    assert placed(portable, pin).dataset == str(moved.resolve())


def test_a_folder_that_has_changed_or_was_never_seen_is_not_opened(folder: Path) -> None:
    pin = pin_source(source_of(str(folder))).document()
    portable = source_of("elsewhere:./photos")
    (folder / "mug" / "2.png").write_bytes(b"two")
    assert placed(portable, pin) is portable
    for strange in (None, {}, {"content": "../../x"}, {"content": 3}, {"content": "0" * 64}, {"content": "G" * 64}):
        assert placed(portable, strange) is portable


def test_names_of_the_hub_and_of_the_lab_stay_what_they_are(folder: Path) -> None:
    pin = pin_source(source_of(str(folder))).document()
    for name in ("lab:wardrobe", "someone/photos", str(folder)):
        own = source_of(name)
        assert placed(own, pin) is own
