"""Names have limits of length, and licences are recognised in any spelling."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from huggingface_hub.utils import HFValidationError, validate_repo_id

from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe, load_recipe_text
from counterfoil.recipe.json_schema import recipe_json_schema
from counterfoil.recipe.layering import bundled_recipes
from counterfoil.recipe.names import (
    DATASET_NAME,
    HUB_LICENSES,
    LICENSE_NAMES,
    REPOSITORY,
    chat_parts,
    derived_name,
    hub_license,
    license_note,
    without_folders,
)
from support.refusals import problems_of

LONG = "a" * 100_000
# More than any of these is a page, and printing it takes minutes.
MOST_CHARACTERS = 3_000


def with_class(**changes: str) -> str:
    entry = {"id": "a", "name": "a", "source_label": 0} | changes
    return f"source.classes={json.dumps([entry])}"


# `%s` is the name.
PLACES = {
    "name": "name=%s",
    "class id": with_class(id="%s"),
    "class name": with_class(name="%s"),
    "class name alone": "source.classes=[%s]",
    "parent": with_class(parent="%s"),
    "category": with_class(category="%s"),
    "shift": "prompts.shifts={%s: 'a {class}'}",
    "group": "prompts.shifts.red.group=%s",
    "split": "output.split=%s",
    "repository": "publish.repo=someone/%s",
    "tokens": "tokens={path: someone/%s}",
    "classes of a shift": "prompts.shifts.red.classes=[%s]",
    "unknown key": "screen={%s: 1}",
    "scheduler": "generator.scheduler=%sScheduler",
    "format": "output.format=%s",
    "prompt": "prompts.base=%s",
    "keep rule": "screen.keep=%s",
    "embedding": "prompts.base.embedding={file: x, key: '%s'}",
}


@pytest.mark.parametrize("field", PLACES)
def test_a_name_of_a_hundred_thousand_letters_is_refused_in_few_words(field: str) -> None:
    with pytest.raises(UserError) as refused:
        load_recipe("wardrobe-mini", [PLACES[field] % LONG])
    assert sum(map(len, refused.value.problems)) < MOST_CHARACTERS


def test_so_is_one_in_a_file() -> None:
    text = f'recipe: 1\nname: {LONG}\nsource: {{dataset: "lab:wardrobe", classes: [{LONG}]}}\n'
    problems = problems_of(load_recipe_text, text)
    assert sum(map(len, problems)) < MOST_CHARACTERS
    assert any("of 100,000 characters, expected at most 96" in problem for problem in problems)


@pytest.mark.parametrize(
    ("field", "most"),
    [("class name", 200), *((f, 96) for f in ("name", "class id", "shift", "group", "split"))],
)
def test_a_name_has_at_most_so_many_characters(field: str, most: int) -> None:
    load_recipe("wardrobe-mini", [PLACES[field] % ("a" * most)])
    with pytest.raises(UserError, match=str(most)):
        load_recipe("wardrobe-mini", [PLACES[field] % ("a" * (most + 1))])


NAMES = (
    "a",
    "a.b",
    "a-b_c",
    "a_",
    "A1",
    "a--b",
    "a..b",
    "-a",
    ".a",
    "a-",
    "a.",
    "a.git",
    "a b",
    "ä",
    "a" * 96,
    "a" * 97,
)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_that_the_hub_takes(name: str) -> None:
    def taken(text: str) -> bool:
        try:
            validate_repo_id(text)
        except HFValidationError:
            return False
        return text.isascii()  # the client's words are Unicode's

    assert bool(DATASET_NAME.fullmatch(name)) is taken(name)
    assert bool(REPOSITORY.fullmatch(f"someone/{name}")) is taken(f"someone/{name}")
    pattern = recipe_json_schema()["$defs"]["Recipe"]["properties"]["name"]["pattern"]
    assert bool(re.search(pattern, name)) is taken(name)
    if not taken(name):
        with pytest.raises(UserError, match=r"^name \("):
            load_recipe("wardrobe-mini", [f"name='{name}'"])


@pytest.mark.parametrize("name", ["things", "a" * 96, "a" * 80 + "-" * 8 + "b"])
def test_what_is_written_for_a_recipe_has_a_name_that_is_taken(name: str) -> None:
    derived = derived_name(name, "contexts")
    assert DATASET_NAME.fullmatch(derived) or "--" in name
    assert derived.endswith("-contexts")
    assert derived_name("things", "mined") == "things-mined"


def _limits(schema: Any) -> Any:
    return schema["maxLength"]


def test_the_json_schema_has_the_same_limits() -> None:
    definitions = recipe_json_schema()["$defs"]
    assert _limits(definitions["ClassEntry"]["properties"]["id"]) == 96
    assert _limits(definitions["ClassEntry"]["properties"]["name"]) == 200
    assert _limits(definitions["Prompts"]["properties"]["shifts"]["propertyNames"]) == 96


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
def test_a_licence_of_the_list_is_known_however_it_is_written(
    license: str, spelled: str | None
) -> None:
    assert hub_license(license) == spelled


def test_every_licence_of_the_list_is_itself_and_so_is_its_name() -> None:
    assert all(hub_license(identifier) == identifier for identifier in HUB_LICENSES)
    assert LICENSE_NAMES.keys() <= HUB_LICENSES
    assert all(hub_license(name) == identifier for identifier, name in LICENSE_NAMES.items())


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


@pytest.mark.release(of="recipes")
def test_the_bundled_recipes_name_licences_of_the_list() -> None:
    assert {hub_license(load_recipe(name).license) for name in bundled_recipes()} <= HUB_LICENSES


@pytest.mark.parametrize(("name", "parts", "public"), [
    ("chat:qwen@http://localhost:8000/v1", ("qwen", "http://localhost:8000/v1"), "chat:qwen"),
    ("chat:a/b:c@2@https://h/v1", ("a/b:c@2", "https://h/v1"), "chat:a/b:c@2"),
    ("chat:qwen", ("qwen", None), "chat:qwen"),
    ("chat:transformers:user/name@abc", ("transformers:user/name@abc", None), "chat:transformers:user/name@abc"),
    ("chat:local-dir:/home/me/model", ("local-dir:/home/me/model", None), "chat:local-dir:./model"),
    ("chat:./model", ("./model", None), "chat:./model"),
])  # fmt: skip
def test_a_chat_model_has_a_name_and_an_address_that_is_not_published(
    name: str, parts: tuple[str, str | None], public: str
) -> None:
    assert chat_parts(name) == parts
    assert without_folders(name) == public
