"""The settings of `contexts`: what they may be, and that no key and no file of a stranger gets through them."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import dump_recipe, load_own_recipe, load_recipe
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.schema_mine import ChatSettings, ContextsSettings, validated


@pytest.mark.parametrize(("settings", "told"), [
    ({}, "nobody proposes contexts"),
    ({"chat": {}}, "nobody answers"),
    ({"chat": {"base_url": "http://localhost/v1"}}, "base_url needs model"),
    ({"chat": {"model": "./llm", "base_url": "http://localhost/v1"}}, "answers in this process"),
    ({"chat": {"model": "a/b"}, "axis": "mood"}, "axis is 'mood'"),
    ({"chat": {"model": "a/b"}, "question": "What?"}, "expected '{class}' somewhere in it"),
    ({"contexts": "wardrobe", "prompt": "a {class}"}, "expected {context} once"),
    ({"contexts": "wardrobe", "prompt": "a {class} {context} {class}"}, "expected {class} once"),
    ({"contexts": "wardrobe", "prompt": "a {class} {context} {x}"}, "expected no braces"),
    ({"contexts": "wardrobe", "similarity": 1.5}, "similarity"),
    ({"contexts": "wardrobe", "k": 0}, "k: found the number 0"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(settings: dict, told: str) -> None:
    with pytest.raises(UserError) as refused:
        validated(ContextsSettings, settings, "mine.settings")
    assert len(refused.value.problems) == 1
    assert told in refused.value.problems[0]


@pytest.mark.parametrize("address", [
    "http://me:s3cret@host/v1", "https://s3cret@host/v1", "https://host/v1?api_key=s3cret", "https://host/v1#s3cret",
])  # fmt: skip
def test_an_address_with_a_key_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(UserError) as refused:
        validated(ChatSettings, {"model": "m", "base_url": address}, "chat")
    assert "s3cret" not in str(refused.value) and "OPENAI_API_KEY" in str(refused.value)


@pytest.mark.parametrize(
    "address", ["host/v1", "ftp://host/v1", "http://", "http://[", "http://host:x/v1", "http://a b/"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="http://localhost:8000/v1"):
        validated(ChatSettings, {"model": "m", "base_url": address}, "chat")


def test_the_prompt_is_the_axiss_unless_it_is_told() -> None:
    assert ContextsSettings(contexts="x").prompt == "a photo of a {class} {context}"
    assert ContextsSettings(contexts="x", axis="colour").caption("bag", "red") == "a photo of a red bag"
    told = ContextsSettings(contexts="x", axis="colour", prompt="{context}: {class}")
    assert told.caption("{context}", "{class}") == "{class}: {context}"  # what is filled in is no template


def test_paths_are_from_the_recipes_folder_and_a_datasets_own_recipe_opens_and_asks_nobody(tmp_path: Path) -> None:
    chat = "{model: './llm', answers: answers.json}"
    settings = f"mine: {{method: contexts, settings: {{contexts: ./mine.yaml, chat: {chat}}}}}"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "r.yaml").write_text(f"extends: wardrobe-mini\nname: a\n{settings}\n")
    here = load_recipe(tmp_path / "a" / "r.yaml")
    assert here.mine is not None
    found = here.mine.settings
    assert found["contexts"] == str(tmp_path / "a" / "mine.yaml")
    assert found["chat"] == {"model": str(tmp_path / "a" / "llm"), "answers": str(tmp_path / "a" / "answers.json")}
    assert str(tmp_path) not in here.portable_yaml
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    (dataset / "lock.json").write_text("{}")
    (dataset / "recipe.yaml").write_text(dump_recipe(here))
    own = load_own_recipe(dataset)
    assert own.mine is not None
    assert own.mine.settings["contexts"] == "elsewhere:./mine.yaml"
    assert own.mine.settings["chat"] == {"model": "elsewhere:./llm", "answers": "elsewhere:./answers.json"}
    served = load_recipe("wardrobe-mini", ["mine.settings.chat={model: m, base_url: 'http://evil.test/v1'}"])
    assert "evil.test" not in served.portable_yaml + without_folders("http://evil.test/v1")
    (dataset / "recipe.yaml").write_text(served.portable_yaml)
    assert load_own_recipe(dataset).portable_yaml == served.portable_yaml
    (dataset / "recipe.yaml").write_text(dump_recipe(served))
    own = load_own_recipe(dataset)
    assert own.mine is not None and own.mine.settings["chat"]["base_url"] == "elsewhere:http://evil.test/v1"
    again = load_own_recipe(dataset, ["mine.settings.chat.base_url=http://localhost:1/v1"])
    assert again.mine is not None and again.mine.settings["chat"]["base_url"] == "http://localhost:1/v1"
