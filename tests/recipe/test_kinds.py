"""Kinds of generator: each describes itself through the same methods, in its own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from counterfoil.generate.kinds import MAKERS
from counterfoil.recipe import Shift, load_recipe
from counterfoil.recipe.json_schema import recipe_json_schema
from counterfoil.recipe.kinds import KINDS, GeneratorKind, kind_of
from counterfoil.recipe.kinds.drawn_elsewhere import DrawnElsewhereKind
from counterfoil.recipe.rows_table import ChosenKind
from counterfoil.report.templates import templates_folder

BY_KEY = {kind.key: kind for kind in (*KINDS.values(), DrawnElsewhereKind)}


def test_every_kind_has_its_files_and_a_recipe_can_name_it() -> None:
    assert all(
        get_args(kind.model_fields["kind"].annotation) == (name,) for name, kind in KINDS.items()
    )
    assert {*MAKERS} == {*BY_KEY}
    package = Path(__file__).parents[2] / "builders" / "counterfoil"
    for key in BY_KEY:
        assert all(
            (package / side / "kinds" / f"{key}.py").is_file() for side in ("recipe", "generate")
        )
        assert templates_folder(f"kind-{key}.txt.j2").is_dir()


def test_a_key_of_several_kinds_has_one_default_and_every_table_is_chosen_by_some_kind() -> None:
    fields = [
        (key, field)
        for kind in KINDS.values()
        for key, field in kind.model_fields.items()
        if key != "kind"
    ]
    defaults = {(key, repr(field.get_default(call_default_factory=True))) for key, field in fields}
    assert len(defaults) == len({key for key, _ in fields})
    assert {kind.table for kind in BY_KEY.values()} - {None} == set(get_args(ChosenKind))


@pytest.mark.parametrize(
    ("generator", "key"),
    [
        ({}, "diffusers"),
        ({"kind": None}, "diffusers"),
        ({"kind": "rows", "rows": {"base": {"00": [1]}}}, "rows"),
        ({"kind": "rows", "rows": {}}, "rows"),
        ({"kind": "rows"}, "drawn_elsewhere"),
        ({"kind": "rows", "rows": None, "dataset": "./given"}, "drawn_elsewhere"),
        ({"kind": "retrieve", "rows": {"base": {}}}, "retrieve"),
        ({"kind": "edit"}, "edit"),
        ({"kind": "corrupt"}, "corrupt"),
    ],
)
def test_a_generator_is_of_one_kind(generator: dict[str, Any], key: str) -> None:
    assert kind_of(generator) is BY_KEY[key]


@pytest.mark.parametrize("name", ["diffuser", 17, ["edit"], {"kind": "edit"}])
def test_what_is_no_kind_draws_nothing(name: Any) -> None:
    kind = kind_of({"kind": name})
    assert kind is GeneratorKind
    assert not (kind.draws or kind.levels or kind.models or kind.from_noise)


def test_models_draw_from_noise_or_from_rows() -> None:
    assert [key for key, kind in BY_KEY.items() if kind.from_noise] == ["diffusers"]
    assert [key for key, kind in BY_KEY.items() if kind.edits] == ["edit"]
    assert [key for key, kind in BY_KEY.items() if kind.draws] == ["diffusers", "edit"]
    assert [key for key, kind in BY_KEY.items() if not kind.takes_rows] == ["diffusers"]


def test_the_json_schema_requires_a_screen_of_each_kind_that_needs_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def allowed_and_refused() -> tuple[Any, Any]:
        without, with_screen = recipe_json_schema()["$defs"]["Recipe"]["oneOf"]
        # The other form without a screen: an edit of images with boxes.
        by_kind = without["anyOf"][0]
        kinds = [
            part["properties"]["generator"]["properties"]["kind"] for part in (by_kind, with_screen)
        ]
        return kinds[0], kinds[1]["not"]

    assert allowed_and_refused() == ({"enum": ["corrupt"]}, {"enum": ["corrupt"]})
    monkeypatch.setattr(GeneratorKind, "needs_screen", False)
    assert allowed_and_refused() == ({"enum": list(KINDS)},) * 2


def shift(name: str, **changes: Any) -> Shift:
    base = load_recipe("wardrobe-mini").all_shifts()[0]
    return replace(base, name=name, of=name, **changes)


@pytest.mark.parametrize(
    ("key", "changes", "words"),
    [
        ("corrupt", {"name": "base", "prompt": None}, "each row unchanged"),
        (
            "corrupt",
            {"name": "fog", "prompt": None, "corruption": "fog", "severity": 3},
            "fog, severity 3",
        ),
        (
            "corrupt",
            {"name": "x", "prompt": None, "corruption": "glass_blur", "severity": 1},
            "glass blur, severity 1",
        ),
        (
            "corrupt",
            {"name": "snow", "prompt": None, "corruption": "match"},
            "brightness and contrast of snow",
        ),
        ("drawn_elsewhere", {"name": "base", "prompt": None}, "drawn elsewhere"),
        ("drawn_elsewhere", {"name": "red", "prompt": "a red {class}"}, "a red {class}"),
        ("diffusers", {"name": "red", "prompt": "a red {class}"}, "a red {class}"),
        (
            "diffusers",
            {"name": "red", "prompt": "a {class}", "level": 0.5},
            "a {class}, 50 % of the way",
        ),
        ("edit", {"name": "red", "prompt": "a {class}", "level": 1.0}, "a {class}"),
        ("retrieve", {"name": "red", "prompt": "a red {class}"}, "a red {class}"),
    ],
)
def test_it_says_what_makes_a_shift(key: str, changes: dict[str, Any], words: str) -> None:
    assert BY_KEY[key].made_by(shift(**changes)) == words


def test_rows_say_where_they_came_from() -> None:
    def columns(name: str, *changes: str) -> list[str]:
        recipe = load_recipe(name, changes)
        kind_columns = list(recipe.generator.columns())
        assert list(recipe.added_columns)[: len(kind_columns)] == kind_columns
        return kind_columns

    assert columns("wardrobe-mini") == []
    assert columns("wardrobe-retrieved") == ["source_row", "retrieval_rank", "retrieval_score"]
    assert columns("wardrobe-retrieved", "generator.license_column=rights")[3:] == ["license"]
    assert columns("wardrobe-edited") == ["source_row", "license"]
    assert columns("wardrobe-corrupt") == ["source_row", "license", "severity"]
