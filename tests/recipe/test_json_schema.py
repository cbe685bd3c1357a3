"""The JSON Schema: current, described, and different for files that extend another."""

from __future__ import annotations

import json

from counterfoil.recipe import bundled_recipes
from counterfoil.recipe.json_schema import recipe_json_schema, recipe_json_schema_text
from counterfoil.recipe.layering import bundled_folder
from counterfoil.recipe.strict_yaml import read_yaml


def test_the_file_is_current() -> None:
    text = (bundled_folder() / "recipe.schema.json").read_text(encoding="utf-8")
    assert text == recipe_json_schema_text(), "run: python scripts/write_schema.py"


def sections() -> dict:
    return recipe_json_schema()["$defs"]


def test_every_key_has_a_description() -> None:
    found = sections()
    whole = {name: section for name, section in found.items() if not name.endswith("InPart")}
    missing = [
        f"{name}.{key}"
        for name, section in whole.items()
        for key, value in section.get("properties", {}).items()
        # A section described in the same words as its key is described once.
        if not (value.keys() & {"description"} or found[value["$ref"].rpartition("/")[2]].get("description"))
    ]
    assert not missing


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(recipe_json_schema())
    names = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert names <= sections().keys()


def test_a_whole_recipe_has_required_keys_and_a_part_has_none() -> None:
    whole, part = sections()["Recipe"], sections()["RecipeInPart"]
    assert {"recipe", "name", "source", "generator", "prompts", "samples"} <= set(whole["required"])
    assert "required" not in part
    assert {"type": "null"} in part["properties"]["tokens"]["anyOf"]
    assert whole["additionalProperties"] is part["additionalProperties"] is False


def test_it_knows_every_key_of_the_bundled_recipes() -> None:
    found = sections()
    for name, path in bundled_recipes().items():
        recipe = read_yaml(path.read_text(encoding="utf-8"), name)
        assert recipe.keys() <= found["Recipe"]["properties"].keys()
        assert recipe.get("generator", {}).keys() <= found["Generator"]["properties"].keys()
        for shift in recipe.get("prompts", {}).get("shifts", {}).values():
            assert shift is None or shift.keys() <= found["ShiftSpec"]["properties"].keys()
