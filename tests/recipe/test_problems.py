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


# The path and the code of the problem, words that it says, and what is written.
ONE = [
    ("nme unknown-key name", "nme: x"),
    ("generator.step unknown-key steps", "generator: {step: 3}"),
    ("prompts.shifts.red.clases unknown-key classes", "prompts: {shifts: {red: {clases: ['00']}}}"),
    ("samples.candidates wrong-type", "samples: {candidates: '3'}"),
    ("name wrong-type", "name: 3"),
    ("generator.steps wrong-type", "generator: {steps: 2.5}"),
    ("screen.keep_rejected wrong-type", "screen: {keep_rejected: yes}"),
    ("generator.steps wrong-type", "generator: {steps: true}"),
    ("screen.shift_threshold wrong-type", "screen: {shift_threshold: true}"),
    ("generator.guidance out-of-range", "generator: {guidance: .inf}"),
    ("samples wrong-type", "samples: [1]"),
    ("evaluate.models wrong-type", "evaluate: {models: {a: b}}"),
    ("output.format unknown-name parquet", "output: {format: parquett}"),
    ("recipe unknown-name", "recipe: 2"),
    ("prompts.base.prompt missing-class", "prompts: {base: {prompt: a photo}}"),
    ("prompts.base.prompt unknown-placeholder {class}", "prompts: {base: {prompt: 'a {clas}'}}"),
    ("prompts.base.prompt invalid-text", "prompts: {base: {prompt: 'a {class} {'}}"),
    (
        "prompts.shifts.red.caption invalid-text",
        "prompts: {shifts: {red: {caption: 'a red {class}'}}}",
    ),
    ("screen.object_caption missing-class", "screen: {object_caption: a thing}"),
    ("prompts.base.caption unknown-key", "prompts: {base: {caption: a photo}}"),
    ("prompts.shifts.red.threshold out-of-range", "prompts: {shifts: {red: {threshold: 1.4}}}"),
    (
        "screen.object_threshold.percentile out-of-range",
        "screen: {object_threshold: {percentile: 101}}",
    ),
    (
        "screen.object_threshold invalid-value found value and percentile, expected one",
        "screen: {object_threshold: {value: 0.2}}",
    ),
    (
        "prompts.shifts.in_the_grass.threshold missing-key",
        "prompts: {shifts: {red: {caption: null}}}\nscreen: {shift_threshold: null}",
    ),
    (
        "prompts.shifts.red.threshold conflicting-keys",
        "prompts: {shifts: {red: {caption: null, threshold: 0.2}}}",
    ),
    (
        "source.classes[0].id invalid-name",
        "source: {classes: [{id: a.b, name: a, source_label: 0}]}",
    ),
    ("source.classes[0].id wrong-type", "source: {classes: [{id: 07, name: a, source_label: 0}]}"),
    (
        "source.classes[1].id duplicate first at classes[0]",
        "source: {classes: [{id: a, name: a, source_label: 0}, {id: a, name: b, source_label: 1}]}",
    ),
    ("source.classes[0].name missing-key", "source: {classes: [{id: a, source_label: 0}]}"),
    ("source.classes out-of-range", "source: {classes: []}"),
    ("source.classes file-not-found", "source: {classes: nowhere.yaml}"),
    (
        "source.classes[0].imagenet invalid-value from 0 to 999",
        "source: {classes: [{id: a, name: a, source_label: 0, imagenet: [1000]}]}",
    ),
    (
        "prompts.shifts.red.classes[1] unknown-class 01",
        "prompts: {shifts: {red: {classes: ['00', '011']}}}",
    ),
    (
        "prompts.shifts.red.classes[1] duplicate",
        "prompts: {shifts: {red: {classes: ['00', '00']}}}",
    ),
    ("prompts.shifts.In-Fog invalid-name", "prompts: {shifts: {In-Fog: {prompt: '{class}'}}}"),
    ("prompts.shifts.all invalid-name", "prompts: {shifts: {all: {prompt: '{class}'}}}"),
    ("prompts.shifts.red.group invalid-name", "prompts: {shifts: {red: {group: base}}}"),
    ("prompts.shifts.red.group invalid-name", "prompts: {shifts: {red: {group: a.b}}}"),
    (
        "prompts.shifts.in_the_gras wrong-type in_the_grass",
        "prompts: {shifts: {in_the_gras: null}}",
    ),
    (
        "samples invalid-value either candidates or both of the others",
        "samples: {accepted: 3, at_most: 9}",
    ),
    ("samples invalid-value accepted and at_most", "samples: {candidates: null}"),
    ("samples invalid-value accepted and at_most", "samples: {candidates: null, accepted: 3}"),
    (
        "samples invalid-value at_most is 3, expected at least accepted (9)",
        "samples: {candidates: null, accepted: 9, at_most: 3}",
    ),
    ("output.rows_per_shard out-of-range", "output: {rows_per_shard: 0}"),
    ("output.image invalid-value none with png", "output: {image: {quality: 90}}"),
    ("output.image.quality out-of-range", "output: {image: {format: jpg, quality: 101}}"),
    ("output.split invalid-value split name", "output: {split: my-test}"),
    ("generator.scheduler invalid-value 'DDIM'", "generator: {scheduler: DDIMScheduler}"),
    ("generator.size out-of-range", "generator: {size: 63}"),
    ("generator out-of-range", "generator: {size: 64, saved_size: 128}"),
    ("tokens invalid-value neither path nor learn", "tokens: {path: null, revision: main}"),
    ("tokens.path invalid-value a folder (./mine) or a Hub id", "tokens: {path: mine}"),
    ("samples.seed out-of-range", "samples: {seed: 9007199254740992}"),
    ("publish.repo invalid-value expected user/name", "publish: {repo: me}"),
]


@pytest.mark.parametrize(("expected", "text"), ONE)
def test_one_mistake_is_reported_with_its_path_and_what_was_expected(
    expected: str, text: str
) -> None:
    lines = problems(text)
    path, code, *words = expected.split(" ", 2)
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
