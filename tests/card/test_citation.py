"""Citation, licence and contact: what the recipe tells, escaped for BibTeX, Markdown and machines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import mlcroissant
import pytest
from card_cases import build, plan_of
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.card.markdown import address
from counterfoil.card.metadata import dataset_entry, escaped, license_for_people
from counterfoil.recipe import load_recipe

TOLD = (
    "publish.authors=['Jane Doe', 'Müller, Jörg', '{Birds & Cranes}', 'Fish and Chips']",
    "publish.year=2026",
    "publish.version='1.2.0'",
    "publish.url=https://example.org/cranes_of?the=world&x=%7B",
    "publish.doi=10.5281/zenodo.1234567",
    "publish.contact='cranes@example.org, or <b>the</b> [desk](x)'",
)
# A BibTeX field of an entry that a program wrote: its name, and its text in balanced braces to the line's end.
FIELD = re.compile(r"  (\w+) +=\s\{(.*)\},?")


def fields(entry: str) -> dict[str, str]:
    first, *lines, last = entry.splitlines()
    assert re.fullmatch(r"@misc\{[a-z0-9_]+,", first)
    assert last == "}"
    found = [FIELD.fullmatch(line) for line in lines]
    assert all(found)
    return {match[1]: match[2] for match in found if match}


def balanced(text: str) -> bool:
    """As BibTeX counts: every brace, with a backslash before it or not."""
    depth = 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            return False
    return depth == 0


def test_the_entry_has_author_year_version_doi_and_url() -> None:
    entry = dataset_entry(load_recipe("wardrobe-mini", TOLD), "ab" * 32, "0.1")
    assert fields(entry) == {
        "author": r"Jane Doe and Müller, Jörg and {Birds \& Cranes} and {Fish and Chips}",
        "title": "{wardrobe-mini}: a dataset of counterfactual images",
        "year": "2026",
        "version": "1.2.0",
        "doi": "10.5281/zenodo.1234567",
        "url": "https://example.org/cranes_of?the=world&x=%7B",
        "note": "Built with Counterfoil 0.1, plan abababababab",
    }


def test_without_a_word_the_entry_is_what_it_was() -> None:
    assert fields(dataset_entry(load_recipe("wardrobe-mini"), "ab" * 32, "0.1")).keys() == {"title", "note"}


@given(st.text(max_size=200))
def test_escaped_text_ends_no_field_and_keeps_its_letters(text: str) -> None:
    line = escaped(text)
    assert balanced(line)
    assert "\n" not in line
    assert not re.search(r"(?<!\\)[&%$#_]", line)
    # Back again, as LaTeX prints it.
    words = {"textbackslash": "\\", "textbraceleft": "{", "textbraceright": "}"}
    words |= {"textasciitilde": "~", "textasciicircum": "^"}
    printed = re.sub(r"\\([a-z]+)\{\}|\\([&%$#_])", lambda found: words[found[1]] if found[1] else found[2], line)
    assert printed == " ".join(text.split())


@given(
    st.lists(st.text(st.characters(categories=["L", "P", "S", "N"]), min_size=1, max_size=30), min_size=1, max_size=4)
)
def test_authors_are_as_many_as_are_told(names: list[str]) -> None:
    told = [name for name in names if name.strip("{} ") and name.isprintable()]
    if not told:
        return
    recipe = load_recipe("wardrobe-mini")
    recipe = recipe.model_copy(update={"publish": recipe.publish.model_copy(update={"authors": tuple(told)})})
    author = fields(dataset_entry(recipe, "ab" * 32, "0.1"))["author"]
    assert balanced(author)
    depth, outside = 0, ""
    for letter in author:
        depth += (letter == "{") - (letter == "}")
        outside += letter if depth == 0 else ""
    assert len(re.findall(r"\band\b", outside, re.IGNORECASE)) == len(told) - 1


def test_the_card_and_croissant_tell_whose_it_is(tmp_path: Path) -> None:
    card = build(tmp_path, plan_of(*TOLD, "publish.repo=some_one/cranes"))
    citation = card.readme[card.readme.index("## Citation") : card.readme.index("## Make it again")]
    assert r"{Birds \& Cranes}" in citation
    assert "year  = {2026}" in citation
    assert "More at <https://example.org/cranes_of?the=world&x=%7B>." in citation
    assert r"Contact: cranes@example.org, or \<b\>the\</b\> \[desk\](x)" in citation
    described = json.loads((tmp_path / "croissant.json").read_bytes())
    assert described["citeAs"] in citation
    assert described["url"] == "https://example.org/cranes_of?the=world&x=%7B"
    assert described["creator"] == [
        {"@type": "sc:Person", "name": "Jane Doe"},
        {"@type": "sc:Person", "name": "Müller, Jörg"},
        {"@type": "sc:Organization", "name": "Birds & Cranes"},
        {"@type": "sc:Person", "name": "Fish and Chips"},
    ]
    dataset = mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
    assert not dataset.metadata.ctx.issues.warnings, "with year and version nothing is missed"
    assert dataset.metadata.version == "1.2.0"
    assert dataset.metadata.date_published is not None
    assert dataset.metadata.date_published.year == 2026
    assert [creator.name for creator in dataset.metadata.creators] == [
        "Jane Doe", "Müller, Jörg", "Birds & Cranes", "Fish and Chips",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("license", "shown"),
    [
        ("mit", "MIT"),
        ("MIT License", "MIT"),
        ("cc-by-4.0", "CC BY 4.0"),
        ("cc-by-nc-sa-4.0", "CC BY-NC-SA 4.0"),
        ("cc0-1.0", "CC0 1.0"),
        ("apache-2.0", "Apache License 2.0"),
        ("Terms of the Museum", "Terms of the Museum"),
    ],
)
def test_licences_are_shown_as_people_read_them(license: str, shown: str, tmp_path: Path) -> None:
    assert license_for_people(license) == shown
    card = build(tmp_path, plan_of(f"license={license}"))
    assert f"These images are under {shown}.\n" in card.readme


def test_what_the_card_says_of_the_screen_is_what_was_asked(tmp_path: Path) -> None:
    both = "showing both the object and the shift"
    every = build(tmp_path / "every", plan_of())
    assert both in every.readme
    assert "both its cosines in CLIP reach their thresholds" in every.readme
    none = [f"prompts.shifts.{name}.caption=null" for name in plan_of().recipe.prompts.shifts]
    nothing = build(tmp_path / "nothing", plan_of(*none))
    assert both not in nothing.readme
    assert "for showing the object; whether they show the shift, nothing asked." in nothing.readme
    assert "both its cosines" not in nothing.readme
    assert "with the object caption reaches its threshold" in nothing.croissant.decode()
    some = build(tmp_path / "some", plan_of(*none[:1]))
    assert f"the object and, in {len(none) - 1} of {len(none)} shifts, the shift." in some.readme
    assert f"in {len(none) - 1} of {len(none)} shifts, that with the shift caption" in some.croissant.decode()


def test_an_address_is_a_link_and_nothing_else_is() -> None:
    assert address("https://example.org/a_b?c=*d*&e") == "<https://example.org/a_b?c=*d*&e>"
    for other in ("javascript:alert(1)", "https://a>b", "https://a b", "https://a\nb", "https://a`b"):
        assert not address(other).startswith("<")
