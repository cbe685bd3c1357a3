"""The mining section of a recipe, and the records of origin in mined shifts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.recipe import (
    Recipe,
    dump_recipe,
    load_own_recipe,
    load_recipe,
    load_recipe_text,
)
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.schema_mine import (
    LONGEST,
    ChatSettings,
    ContextsSettings,
    MinedFacts,
    mined_facts,
    shown_text,
    validate_settings,
)
from counterfoil.recipe.schema_prompts import (
    DEEPEST,
    MOST_CHARACTERS,
    MOST_VALUES,
    free_form_problem,
)
from counterfoil.recipe.strict_yaml import dump_yaml
from support.refusals import problems_of

RECORD = {
    "target": {"model": "lab:resnet10t", "sha256": "ab" * 32},
    "method": "directions",
    "rate": [0.31, 0.05],
    "failures": 12,
    "confirmed": True,
    "q": None,
    "odd 'name': ": "{class} \n | <b> é",
}


def with_record(record: Any) -> Recipe:
    shift = {"kind": "mined", "mined_from": record}
    return load_recipe_text(
        dump_yaml({"extends": "wardrobe-mini", "prompts": {"shifts": {"red": shift}}})
    )


def record_of(recipe: Recipe) -> Any:
    return json.loads(recipe.model_dump_json())["prompts"]["shifts"]["red"].get("mined_from")


def test_a_mined_shift_is_the_shift_that_it_was(tmp_path) -> None:
    mini = load_recipe("wardrobe-mini")
    mined = with_record(RECORD)
    assert (mined.plan_hash, mined.screen_hash) == (mini.plan_hash, mini.screen_hash)
    assert next(shift.kind for shift in mined.all_shifts() if shift.name == "red") == "mined"
    assert mined != mini
    published = load_own_recipe(tmp_path, text=mined.portable_yaml)
    assert record_of(mined) == record_of(published) == RECORD


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
)
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
trees = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(words, trees, max_size=3))
def test_whatever_is_recorded_reads_back(record: dict[str, Any]) -> None:
    if free_form_problem(record) is None:
        recipe = with_record(record)
        assert record_of(recipe) == record_of(load_recipe_text(dump_recipe(recipe))) == record


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


BOUNDS = {
    "levels": (nested(DEEPEST), nested(DEEPEST + 1), "nested too deeply"),
    "values": ({"a": [0] * (MOST_VALUES - 2)}, {"a": [0] * (MOST_VALUES - 1)}, "keys and values"),
    "text": ({"a": "x" * (MOST_CHARACTERS - 1)}, {"a": "x" * MOST_CHARACTERS}, "characters"),
    "keys": ({"x" * MOST_CHARACTERS: 1}, {"x" * MOST_CHARACTERS: "y"}, "characters"),
    "whole numbers": ({"a": -(2**53)}, {"a": 2**53 + 1}, "whole number past 2^53"),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_record_has_bounds(bound: str) -> None:
    within, past, message = BOUNDS[bound]
    assert free_form_problem(within) is None
    assert message in (free_form_problem(past) or "")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1: 2}, {"a"}, object()])
def test_what_is_no_json_is_reported(value: object) -> None:
    assert free_form_problem({"a": value})


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("[1]", "found a list, expected a mapping"),
        ("text", "found 'text', expected a mapping"),
        ("{a: .nan}", "finite numbers"),
        (f"{{a: 1{'0' * 900}}}", "past 2^53"),
        (f"{{a: {'[' * 20}{']' * 20}}}", "nested too deeply"),
        (f"{{a: [{'b, ' * 2000}]}}", "more than 1,000 keys and values"),
    ],
)
def test_a_recipe_with_another_record_is_refused_where_it_stands(
    written: str, message: str
) -> None:
    with pytest.raises(UserError, match=rf"prompts\.shifts\.red\.mined_from.*{re.escape(message)}"):
        load_recipe("wardrobe-mini", [f"prompts.shifts.red.mined_from={written}"])


def test_nested_as_deep_as_yaml_goes_no_one_recurses() -> None:
    assert "nested too deeply" in (free_form_problem(nested(100_000)) or "")


KEYS = (
    "words",
    "caption",
    "role",
    "method",
    "target",
    "set",
    "rest",
    "p",
    "q",
    "classes",
    "tested_on",
)
fact_values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3 * LONGEST)
)
keys = st.sampled_from(["name", "sha256", "rate", "x"])
values = st.recursive(
    fact_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(KEYS), values))
def test_any_record_is_read_and_what_is_shown_is_bounded(record: dict[str, Any]) -> None:
    facts = mined_facts(record)
    texts = [
        facts.words,
        facts.caption,
        facts.role,
        facts.method,
        facts.target,
        facts.target_sha256,
        *facts.classes,
    ]
    for text in texts:
        assert text is None or (
            0 < len(text) <= LONGEST and text.isprintable() and text == text.strip()
        )
    for number in (facts.set_rate, facts.rest_rate, facts.p, facts.q):
        assert number is None or 0 <= number <= 1
    assert facts.tested_on in (None, "rows", "rendered", "both", "pairs")


def test_a_record_of_mining_is_read_whole() -> None:
    record = {
        "words": "sandal not on a beach", "caption": "a photo of a sandal on the beach", "role": "far_from",
        "method": "directions", "target": {"name": "lab:resnet10t", "sha256": "ab" * 32},
        "set": {"rate": 0.61}, "rest": {"rate": 0.09}, "p": 0.001, "q": 0.002, "classes": ["05"], "more": [1],
        "tested_on": "pairs",
    }  # fmt: skip
    assert mined_facts(record) == MinedFacts(
        "sandal not on a beach", "a photo of a sandal on the beach", "far_from", "directions", "lab:resnet10t",
        "ab" * 32, 0.61, 0.09, 0.001, 0.002, ("05",), "pairs",
    )  # fmt: skip
    assert mined_facts({"target": "lab:resnet10t"}).target == "lab:resnet10t"
    assert mined_facts(None) == mined_facts({}) == MinedFacts()


def test_text_is_one_line_of_what_can_be_printed() -> None:
    assert shown_text("a\n\tb\x1b[2Jc\u202e\x00") == "a b [2Jc"
    assert shown_text("x" * (LONGEST + 1)) == "x" * (LONGEST - 1) + "…"
    assert [shown_text(value) for value in ("", " \n", 7, None, ["a"])] == [None] * 5


@pytest.mark.parametrize(("settings", "message"), [
    ({}, "found neither contexts nor chat"),
    ({"chat": {}}, "found neither model nor answers"),
    ({"chat": {"base_url": "http://localhost/v1"}}, "base_url needs model"),
    ({"chat": {"model": "./llm", "base_url": "http://localhost/v1"}}, "runs in this process"),
    ({"chat": {"model": "a/b"}, "axis": "mood"}, "axis is 'mood'"),
    ({"chat": {"model": "a/b"}, "question": "What?"}, "expected it to contain '{class}'"),
    ({"contexts": "wardrobe", "prompt": "a {class}"}, "expected {context} once"),
    ({"contexts": "wardrobe", "prompt": "a {class} {context} {class}"}, "expected {class} once"),
    ({"contexts": "wardrobe", "prompt": "a {class} {context} {x}"}, "expected no braces"),
    ({"contexts": "wardrobe", "similarity": 1.5}, "similarity"),
    ({"contexts": "wardrobe", "k": 0}, "k: found the number 0"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(settings: dict, message: str) -> None:
    problems = problems_of(validate_settings, ContextsSettings, settings, "mine.settings")
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize("address", [
    "http://me:s3cret@host/v1", "https://s3cret@host/v1", "https://host/v1?api_key=s3cret", "https://host/v1#s3cret",
])  # fmt: skip
def test_an_address_with_a_key_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(UserError) as refused:
        validate_settings(ChatSettings, {"model": "m", "base_url": address}, "chat")
    assert "s3cret" not in str(refused.value) and "OPENAI_API_KEY" in str(refused.value)


@pytest.mark.parametrize(
    "address",
    ["host/v1", "ftp://host/v1", "http://", "http://[", "http://host:x/v1", "http://a b/"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="http://localhost:8000/v1"):
        validate_settings(ChatSettings, {"model": "m", "base_url": address}, "chat")


def test_the_prompt_is_the_axiss_unless_it_is_given() -> None:
    assert ContextsSettings(contexts="x").prompt == "a photo of a {class} {context}"
    assert (
        ContextsSettings(contexts="x", axis="colour").caption("bag", "red")
        == "a photo of a red bag"
    )
    settings = ContextsSettings(contexts="x", axis="colour", prompt="{context}: {class}")
    # what is filled in is no template
    assert settings.caption("{context}", "{class}") == "{class}: {context}"


def test_paths_are_from_the_recipes_folder_and_a_datasets_own_recipe_opens_and_asks_nobody(
    tmp_path: Path,
) -> None:
    chat = "{model: './llm', answers: answers.json}"
    settings = f"mine: {{method: contexts, settings: {{contexts: ./mine.yaml, chat: {chat}}}}}"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "r.yaml").write_text(f"extends: wardrobe-mini\nname: a\n{settings}\n")
    recipe = load_recipe(tmp_path / "a" / "r.yaml")
    assert recipe.mine is not None
    paths = recipe.mine.settings
    assert paths["contexts"] == str(tmp_path / "a" / "mine.yaml")
    assert paths["chat"] == {
        "model": str(tmp_path / "a" / "llm"),
        "answers": str(tmp_path / "a" / "answers.json"),
    }
    assert str(tmp_path) not in recipe.portable_yaml
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    (dataset / "lock.json").write_text("{}")
    (dataset / "recipe.yaml").write_text(dump_recipe(recipe))
    stored = load_own_recipe(dataset)
    assert stored.mine is not None
    assert stored.mine.settings["contexts"] == "elsewhere:./mine.yaml"
    assert stored.mine.settings["chat"] == {
        "model": "elsewhere:./llm",
        "answers": "elsewhere:./answers.json",
    }
    served = load_recipe(
        "wardrobe-mini", ["mine.settings.chat={model: m, base_url: 'http://evil.test/v1'}"]
    )
    assert "evil.test" not in served.portable_yaml + without_folders("http://evil.test/v1")
    (dataset / "recipe.yaml").write_text(served.portable_yaml)
    assert load_own_recipe(dataset).portable_yaml == served.portable_yaml
    (dataset / "recipe.yaml").write_text(dump_recipe(served))
    stored = load_own_recipe(dataset)
    assert (
        stored.mine is not None
        and stored.mine.settings["chat"]["base_url"] == "elsewhere:http://evil.test/v1"
    )
    again = load_own_recipe(dataset, ["mine.settings.chat.base_url=http://localhost:1/v1"])
    assert (
        again.mine is not None
        and again.mine.settings["chat"]["base_url"] == "http://localhost:1/v1"
    )
