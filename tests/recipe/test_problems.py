"""Wrong recipes: every problem at once, each with path, line, found, expected and the nearest
name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from counterfoil.errors import ProblemLine, UserError
from counterfoil.recipe import Recipe, bundled_recipes, load_recipe, load_recipe_text
from counterfoil.recipe.messages import message
from counterfoil.recipe.strict_yaml import dump_yaml, read_yaml
from support.recipes import refusal, says
from support.refusals import problems_of


def problems(text: str, overrides: Sequence[str] = ()) -> list[ProblemLine]:
    error = refusal(load_recipe_text, "extends: wardrobe-mini\n" + text, overrides)
    assert error.exit_code == 2
    return list(error.problems)


# What is written, the path and the code of the problem, and words that it says.
ONE = {
    "unknown key": ("nme: x", "nme", "unknown-key", "name"),
    "unknown nested key": ("generator: {step: 3}", "generator.step", "unknown-key", "steps"),
    "unknown key of a shift": (
        "prompts: {shifts: {red: {clases: ['00']}}}",
        "prompts.shifts.red.clases",
        "unknown-key",
        "classes",
    ),
    "text for a number": ("samples: {candidates: '3'}", "samples.candidates", "wrong-type"),
    "number for text": ("name: 3", "name", "wrong-type"),
    "fraction for a whole number": ("generator: {steps: 2.5}", "generator.steps", "wrong-type"),
    "text for true": ("screen: {keep_rejected: yes}", "screen.keep_rejected", "wrong-type"),
    "true for a number": ("generator: {steps: true}", "generator.steps", "wrong-type"),
    "true for a threshold": (
        "screen: {shift_threshold: true}",
        "screen.shift_threshold",
        "wrong-type",
    ),
    "infinite number": ("generator: {guidance: .inf}", "generator.guidance", "out-of-range"),
    "list for a mapping": ("samples: [1]", "samples", "wrong-type"),
    "mapping for a list": ("evaluate: {models: {a: b}}", "evaluate.models", "wrong-type"),
    "a choice": ("output: {format: parquett}", "output.format", "unknown-name", "parquet"),
    "schema version": ("recipe: 2", "recipe", "unknown-name"),
    "prompt without class": (
        "prompts: {base: {prompt: a photo}}",
        "prompts.base.prompt",
        "missing-class",
    ),
    "unknown placeholder": (
        "prompts: {base: {prompt: 'a {clas}'}}",
        "prompts.base.prompt",
        "unknown-placeholder",
        "{class}",
    ),
    "lone brace": (
        "prompts: {base: {prompt: 'a {class} {'}}",
        "prompts.base.prompt",
        "invalid-text",
    ),
    "class in a caption": (
        "prompts: {shifts: {red: {caption: 'a red {class}'}}}",
        "prompts.shifts.red.caption",
        "invalid-text",
    ),
    "object caption without class": (
        "screen: {object_caption: a thing}",
        "screen.object_caption",
        "missing-class",
    ),
    "caption of the base": (
        "prompts: {base: {caption: a photo}}",
        "prompts.base.caption",
        "unknown-key",
    ),
    "threshold too high": (
        "prompts: {shifts: {red: {threshold: 1.4}}}",
        "prompts.shifts.red.threshold",
        "out-of-range",
    ),
    "percentile too high": (
        "screen: {object_threshold: {percentile: 101}}",
        "screen.object_threshold.percentile",
        "out-of-range",
    ),
    "both kinds of threshold": (
        "screen: {object_threshold: {value: 0.2}}",
        "screen.object_threshold",
        "invalid-value",
        "found value and percentile, expected one",
    ),
    "threshold missing": (
        "prompts: {shifts: {red: {caption: null}}}\nscreen: {shift_threshold: null}",
        "prompts.shifts.in_the_grass.threshold",
        "missing-key",
    ),
    "threshold without caption": (
        "prompts: {shifts: {red: {caption: null, threshold: 0.2}}}",
        "prompts.shifts.red.threshold",
        "conflicting-keys",
    ),
    "class id with a dot": (
        "source: {classes: [{id: a.b, name: a, source_label: 0}]}",
        "source.classes[0].id",
        "invalid-name",
    ),
    "class id as a number": (
        "source: {classes: [{id: 07, name: a, source_label: 0}]}",
        "source.classes[0].id",
        "wrong-type",
    ),
    "class id twice": (
        "source: {classes: [{id: a, name: a, source_label: 0}, {id: a, name: b, source_label: 1}]}",
        "source.classes[1].id",
        "duplicate",
        "first at classes[0]",
    ),
    "class without a name": (
        "source: {classes: [{id: a, source_label: 0}]}",
        "source.classes[0].name",
        "missing-key",
    ),
    "no classes": ("source: {classes: []}", "source.classes", "out-of-range"),
    "file of classes not there": (
        "source: {classes: nowhere.yaml}",
        "source.classes",
        "file-not-found",
    ),
    "imagenet index": (
        "source: {classes: [{id: a, name: a, source_label: 0, imagenet: [1000]}]}",
        "source.classes[0].imagenet",
        "invalid-value",
        "from 0 to 999",
    ),
    "unknown class of a shift": (
        "prompts: {shifts: {red: {classes: ['00', '011']}}}",
        "prompts.shifts.red.classes[1]",
        "unknown-class",
        "01",
    ),
    "class of a shift twice": (
        "prompts: {shifts: {red: {classes: ['00', '00']}}}",
        "prompts.shifts.red.classes[1]",
        "duplicate",
    ),
    "shift name with a dash": (
        "prompts: {shifts: {In-Fog: {prompt: '{class}'}}}",
        "prompts.shifts.In-Fog",
        "invalid-name",
    ),
    "reserved shift name": (
        "prompts: {shifts: {all: {prompt: '{class}'}}}",
        "prompts.shifts.all",
        "invalid-name",
    ),
    "reserved group": (
        "prompts: {shifts: {red: {group: base}}}",
        "prompts.shifts.red.group",
        "invalid-name",
    ),
    "group with a dot": (
        "prompts: {shifts: {red: {group: a.b}}}",
        "prompts.shifts.red.group",
        "invalid-name",
    ),
    "nothing to delete": (
        "prompts: {shifts: {in_the_gras: null}}",
        "prompts.shifts.in_the_gras",
        "wrong-type",
        "in_the_grass",
    ),
    "both sample modes": (
        "samples: {accepted: 3, at_most: 9}",
        "samples",
        "invalid-value",
        "either candidates or both of the others",
    ),
    "neither sample mode": (
        "samples: {candidates: null}",
        "samples",
        "invalid-value",
        "accepted and at_most",
    ),
    "half a sample mode": (
        "samples: {candidates: null, accepted: 3}",
        "samples",
        "invalid-value",
        "accepted and at_most",
    ),
    "at most below accepted": (
        "samples: {candidates: null, accepted: 9, at_most: 3}",
        "samples",
        "invalid-value",
        "at_most is 3, expected at least accepted (9)",
    ),
    "no rows a shard": ("output: {rows_per_shard: 0}", "output.rows_per_shard", "out-of-range"),
    "quality with png": (
        "output: {image: {quality: 90}}",
        "output.image",
        "invalid-value",
        "none with png",
    ),
    "quality too high": (
        "output: {image: {format: jpg, quality: 101}}",
        "output.image.quality",
        "out-of-range",
    ),
    "split with a dash": (
        "output: {split: my-test}",
        "output.split",
        "invalid-value",
        "split name",
    ),
    "scheduler in full": (
        "generator: {scheduler: DDIMScheduler}",
        "generator.scheduler",
        "invalid-value",
        "'DDIM'",
    ),
    "odd size": ("generator: {size: 63}", "generator.size", "out-of-range"),
    "enlarged": ("generator: {size: 64, saved_size: 128}", "generator", "out-of-range"),
    "tokens of no kind": (
        "tokens: {path: null, revision: main}",
        "tokens",
        "invalid-value",
        "neither path nor learn",
    ),
    "tokens by a bare word": (
        "tokens: {path: mine}",
        "tokens.path",
        "invalid-value",
        "a folder (./mine) or a Hub id",
    ),
    "seed beyond JSON": ("samples: {seed: 9007199254740992}", "samples.seed", "out-of-range"),
    "repository": ("publish: {repo: me}", "publish.repo", "invalid-value", "expected user/name"),
}


@pytest.mark.parametrize("case", ONE)
def test_one_mistake_is_reported_with_its_path_and_what_was_expected(case: str) -> None:
    text, path, code, *words = ONE[case]
    lines = problems(text)
    assert says(lines, path, code, *words), lines
    assert any(line.startswith(f"{path} (") for line in lines), lines


def test_all_mistakes_are_reported_together_in_the_order_of_the_file() -> None:
    text = (
        "nme: x\n"
        "samples: {candidates: three}\n"
        "prompts:\n"
        "  base: {prompt: a photo}\n"
        "  shifts:\n"
        "    red: {threshold: 7, classes: ['99']}\n"
        "output: {formt: parquet}\n"
    )
    lines = problems(text, ["foo.bar=1"])
    positions = [
        re.findall(r"\((?:recipe\.yaml:(\d+)|--set foo\.bar=1)\)", problem)[0] for problem in lines
    ]
    assert positions == ["", "2", "3", "5", "7", "7", "8"]


def test_a_mistake_in_a_parent_names_the_parent(tmp_path: Path) -> None:
    (tmp_path / "parent.yaml").write_text("extends: wardrobe-mini\n\ngenerator: {steps: 0}\n")
    (tmp_path / "child.yaml").write_text("extends: ./parent.yaml\nname: child\n")
    with pytest.raises(UserError, match=r"generator\.steps \(.*parent\.yaml:3\)"):
        load_recipe(tmp_path / "child.yaml")


def test_keys_that_would_meet_are_refused() -> None:
    text = (
        "source: {classes: [{id: b_c, name: x, source_label: 0}, {id: c, name: y, source_label:"
        " 1}]}\n"
        "prompts: {shifts: {a: {prompt: '{class}'}, a_b: {prompt: '{class}'}}}\n"
    )
    assert says(problems(text), "prompts.shifts.a_b", "name-clash", "'c'")
    apart = text.replace("a_b: {prompt: '{class}'}", "a_b: {prompt: '{class}', classes: [b_c]}")
    load_recipe_text("extends: wardrobe-mini\n" + apart)


def test_a_recipe_made_in_python_is_checked_too() -> None:
    values = load_recipe("wardrobe-mini").model_dump()
    assert Recipe.model_validate(values) == load_recipe("wardrobe-mini")
    values["prompts"]["shifts"]["red"]["classes"] = ["99"]
    with pytest.raises(ValidationError, match=r"prompts\.shifts\.red\.classes"):
        Recipe.model_validate(values)


def paths_in(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    paths = [path] if path else []
    if isinstance(value, dict):
        for key, item in value.items():
            paths += paths_in(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            paths += paths_in(item, (*path, index))
    return paths


MINI = read_yaml(bundled_recipes()["wardrobe-mini"].read_text(encoding="utf-8"), "mini")
ODD = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        3,
        2.5,
        1e300,
        "",
        "x",
        "{class}",
        [],
        ["x"],
        {},
        {"x": 1},
        [[]],
        {"": None},
    ]
)


@given(st.lists(st.tuples(st.sampled_from(paths_in(MINI)), ODD), min_size=1, max_size=4))
def test_no_recipe_however_odd_ends_in_anything_but_a_recipe_or_a_user_error(
    changes: list[tuple[tuple[str | int, ...], object]],
) -> None:
    raw = read_yaml(dump_yaml(_plain(MINI)), "mini")
    for path, value in changes:
        parent = raw
        try:
            for part in path[:-1]:
                parent = parent[part]
            parent[path[-1]] = deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change removed this path
    try:
        load_recipe_text(dump_yaml(_plain(raw)))
    except UserError as error:
        assert error.problems
        assert all(": " in problem for problem in error.problems)
        assert {problem.code for problem in error.problems} <= {*message.codes}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "text",
    [
        "source: {classes: [[]]}",
        "prompts: {shifts: {in_the_grass: {classes: [3]}}}",
        "prompts: {shifts: {in_the_grass: {severity: {levels: [.nan]}}}}",
        "evaluate: {models: [[a]]}",
        "[extends, wardrobe-mini]",
    ],
)
def test_a_wrong_item_is_one_problem(text: str) -> None:
    extends = "" if text.startswith("[") else "extends: wardrobe-mini\n"
    [problem] = problems_of(load_recipe_text, extends + text)
    assert "Located" not in problem and "expected" in problem
