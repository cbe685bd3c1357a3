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

from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, bundled_recipes, load_recipe, load_recipe_text
from counterfoil.recipe.strict_yaml import dump_yaml, read_yaml


def problems(text: str, overrides: Sequence[str] = ()) -> list[str]:
    with pytest.raises(UserError) as caught:
        load_recipe_text("extends: wardrobe-mini\n" + text, overrides)
    assert caught.value.exit_code == 2
    return list(caught.value.problems)


SHIFT = "prompts.shifts.red"
ONE = {
    "unknown key": ("nme: x", "nme", "did you mean 'name'"),
    "unknown nested key": ("generator: {step: 3}", "generator.step", "did you mean 'steps'"),
    "unknown key of a shift": (
        "prompts: {shifts: {red: {clases: ['00']}}}",
        f"{SHIFT}.clases",
        "did you mean 'classes'",
    ),
    "text for a number": (
        "samples: {candidates: '3'}",
        "samples.candidates",
        "found '3', expected a whole number .* without quotes",
    ),
    "number for text": ("name: 3", "name", "found the number 3, expected text; put it in quotes"),
    "fraction for a whole number": (
        "generator: {steps: 2.5}",
        "generator.steps",
        "expected a whole number",
    ),
    "text for true": (
        "screen: {keep_rejected: yes}",
        "screen.keep_rejected",
        "found 'yes', expected true or false",
    ),
    "true for a number": (
        "generator: {steps: true}",
        "generator.steps",
        "found true, expected a whole number",
    ),
    "true for a threshold": (
        "screen: {shift_threshold: true}",
        "screen.shift_threshold",
        "found true, expected a number, or",
    ),
    "infinite number": ("generator: {guidance: .inf}", "generator.guidance", "finite"),
    "list for a mapping": (
        "samples: [1]",
        "samples",
        "found a list, expected a mapping",
    ),
    "mapping for a list": (
        "evaluate: {models: {a: b}}",
        "evaluate.models",
        "found a mapping, expected a list",
    ),
    "a choice": ("output: {format: parquett}", "output.format", "did you mean 'parquet'"),
    "schema version": ("recipe: 2", "recipe", "expected 1"),
    "prompt without class": (
        "prompts: {base: {prompt: a photo}}",
        "prompts.base.prompt",
        r"found 'a photo', expected it to contain '\{class\}'",
    ),
    "unknown placeholder": (
        "prompts: {base: {prompt: 'a {clas}'}}",
        "prompts.base.prompt",
        r"'\{clas\}'.*did you mean '\{class\}'",
    ),
    "lone brace": (
        "prompts: {base: {prompt: 'a {class} {'}}",
        "prompts.base.prompt",
        "unmatched brace",
    ),
    "class in a caption": (
        "prompts: {shifts: {red: {caption: 'a red {class}'}}}",
        f"{SHIFT}.caption",
        "without '{class}'",
    ),
    "object caption without class": (
        "screen: {object_caption: a thing}",
        "screen.object_caption",
        r"expected it to contain '\{class\}'",
    ),
    "caption of the base": (
        "prompts: {base: {caption: a photo}}",
        "prompts.base.caption",
        "unknown key",
    ),
    "threshold too high": (
        "prompts: {shifts: {red: {threshold: 1.4}}}",
        f"{SHIFT}.threshold",
        "found the number 1.4, expected a number from -1 to 1",
    ),
    "percentile too high": (
        "screen: {object_threshold: {percentile: 101}}",
        "screen.object_threshold.percentile",
        "from 0 to 100",
    ),
    "both kinds of threshold": (
        "screen: {object_threshold: {value: 0.2}}",
        "screen.object_threshold",
        "found value and percentile, expected one",
    ),
    "threshold missing": (
        "prompts: {shifts: {red: {caption: null}}}\nscreen: {shift_threshold: null}",
        "prompts.shifts.in_the_grass.threshold",
        "missing",
    ),
    "threshold without caption": (
        "prompts: {shifts: {red: {caption: null, threshold: 0.2}}}",
        f"{SHIFT}.threshold",
        "without a caption",
    ),
    "class id with a dot": (
        "source: {classes: [{id: a.b, name: a, source_label: 0}]}",
        "source.classes[0].id",
        "expected a slug",
    ),
    "class id as a number": (
        "source: {classes: [{id: 07, name: a, source_label: 0}]}",
        "source.classes[0].id",
        "put it in quotes",
    ),
    "class id twice": (
        "source: {classes: [{id: a, name: a, source_label: 0}, {id: a, name: b, source_label: 1}]}",
        "source.classes[1].id",
        r"found 'a' again, expected unique ids \(first at classes\[0\]\)",
    ),
    "class without a name": (
        "source: {classes: [{id: a, source_label: 0}]}",
        "source.classes[0].name",
        "missing, expected text",
    ),
    "no classes": ("source: {classes: []}", "source.classes", "at least one item"),
    "file of classes not there": (
        "source: {classes: nowhere.yaml}",
        "source.classes",
        "no such file",
    ),
    "imagenet index": (
        "source: {classes: [{id: a, name: a, source_label: 0, imagenet: [1000]}]}",
        "source.classes[0].imagenet",
        "from 0 to 999",
    ),
    "unknown class of a shift": (
        "prompts: {shifts: {red: {classes: ['00', '011']}}}",
        f"{SHIFT}.classes[1]",
        "did you mean '01'",
    ),
    "class of a shift twice": (
        "prompts: {shifts: {red: {classes: ['00', '00']}}}",
        f"{SHIFT}.classes[1]",
        "each class once",
    ),
    "shift name with a dash": (
        "prompts: {shifts: {In-Fog: {prompt: '{class}'}}}",
        "prompts.shifts.In-Fog",
        "such as 'in_fog'",
    ),
    "reserved shift name": (
        "prompts: {shifts: {all: {prompt: '{class}'}}}",
        "prompts.shifts.all",
        "reserved",
    ),
    "reserved group": ("prompts: {shifts: {red: {group: base}}}", f"{SHIFT}.group", "reserved"),
    "group with a dot": (
        "prompts: {shifts: {red: {group: a.b}}}",
        f"{SHIFT}.group",
        "such as 'a_b'",
    ),
    "nothing to delete": (
        "prompts: {shifts: {in_the_gras: null}}",
        "prompts.shifts.in_the_gras",
        "did you mean 'in_the_grass'",
    ),
    "both sample modes": (
        "samples: {accepted: 3, at_most: 9}",
        "samples",
        "either candidates or both of the others",
    ),
    "neither sample mode": ("samples: {candidates: null}", "samples", "accepted and at_most"),
    "half a sample mode": (
        "samples: {candidates: null, accepted: 3}",
        "samples",
        "accepted and at_most",
    ),
    "at most below accepted": (
        "samples: {candidates: null, accepted: 9, at_most: 3}",
        "samples",
        r"at_most is 3, expected at least accepted \(9\)",
    ),
    "no rows a shard": ("output: {rows_per_shard: 0}", "output.rows_per_shard", "of at least 1"),
    "quality with png": ("output: {image: {quality: 90}}", "output.image", "none with png"),
    "quality too high": (
        "output: {image: {format: jpg, quality: 101}}",
        "output.image.quality",
        "from 1 to 100",
    ),
    "split with a dash": ("output: {split: my-test}", "output.split", "split name"),
    "scheduler in full": ("generator: {scheduler: DDIMScheduler}", "generator.scheduler", "'DDIM'"),
    "odd size": ("generator: {size: 63}", "generator.size", "a multiple of 8"),
    "enlarged": ("generator: {size: 64, saved_size: 128}", "generator", "expected at most size"),
    "tokens of no kind": (
        "tokens: {path: null, revision: main}",
        "tokens",
        "neither path nor learn",
    ),
    "tokens by a bare word": (
        "tokens: {path: mine}",
        "tokens.path",
        r"a folder \(./mine\) or a Hub id",
    ),
    "seed beyond JSON": (
        "samples: {seed: 9007199254740992}",
        "samples.seed",
        "to below 9007199254740992",
    ),
    "repository": ("publish: {repo: me}", "publish.repo", "expected user/name"),
}


@pytest.mark.parametrize("case", ONE)
def test_one_mistake_is_reported_with_its_path_and_what_was_expected(case: str) -> None:
    text, path, message = ONE[case]
    lines = [problem for problem in problems(text) if problem.startswith(f"{path} (")]
    assert lines, problems(text)
    assert re.search(message, lines[0]), lines[0]


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
    assert any(
        "prompts.shifts.a_b" in problem and "keys of class 'c'" in problem
        for problem in problems(text)
    )
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
    with pytest.raises(UserError) as refused:
        load_recipe_text(extends + text)
    [problem] = refused.value.problems
    assert "Located" not in problem and "expected" in problem
