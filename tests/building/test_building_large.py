"""The large recipes end to end: miniatures of their models, their own classes, shifts and
thresholds.

`COUNTERFOIL_WHOLE=1` overrides the generator, CLIP, the input dataset and the samples, and nothing
else: all shifts, all steps, tokens learned in all of the recipe's 3000 (24,000 images, and about an
hour for the three). Only ImageNet's thousand tokens come from a folder, as the recipe says they
may: three million steps would take hours. By default fewer steps and one shift are taken, and a
minute.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from datasets import get_dataset_config_names, load_dataset
from large_inputs import PIPELINES, SIDE, save_classifier, save_pipeline, save_source, save_tokens

from counterfoil.building.build_dataset import BuildResult, build
from counterfoil.recipe import load_recipe
from counterfoil.store.reading import read_rows
from tiny_builds import run_command

WHOLE = bool(os.environ.get("COUNTERFOIL_WHOLE"))
# In each recipe one of them at least is drawn into nothing that its screen accepts.
KEPT_SHIFTS = (
    "embroidery",
    "at_night",
    "in_the_grass",
    "oil_painting",
    "pencil_sketch",
    "on_the_runway",
    "taking_off",
)


@dataclass(frozen=True)
class Built:
    """A dataset made from a large recipe, and what the build said."""

    recipe: str
    directory: Path
    result: BuildResult

    @property
    def empty(self) -> list[str]:
        """Shifts without an accepted image."""
        return [
            shift for shift, reasons in self.result.counts.items() if not reasons.get("accepted")
        ]


def overrides(folder: Path, recipe: str, kind: str, source_images: int) -> list[str]:
    """Return what may differ from the recipe: generator, CLIP, input dataset and samples."""
    return [
        f"generator.model={save_pipeline(folder, kind)}",
        "screen.model=lab:clip",
        "screen.weights=null",
        f"source.dataset={save_source(folder, recipe, source_images)}",
        "samples.candidates=1",
    ]


def few_shifts(recipe: str, kept: Sequence[str] = KEPT_SHIFTS) -> list[str]:
    dropped = set(load_recipe(recipe).prompts.shifts) - set(kept)
    return [f"prompts.shifts.{shift}=null" for shift in sorted(dropped)]


def built(folder: Path, recipe: str, changes: Sequence[str]) -> Built:
    result = build(recipe, folder / "dataset", overrides=changes, device="cpu", workers=1)
    return Built(recipe, folder / "dataset", result)


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build a thousand classes with Stable Diffusion 2 and a thousand tokens."""
    folder = tmp_path_factory.mktemp("imagenet")
    changes = overrides(folder, "imagenet-star", "sd2", 1)
    changes += ["tokens.learn=null", f"tokens.path={save_tokens(folder, 'imagenet-star')}"]
    if not WHOLE:
        changes += ["generator.steps=1", *few_shifts("imagenet-star", KEPT_SHIFTS[:1])]
    return built(folder, "imagenet-star", changes)


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build with Stable Diffusion XL at all of the recipe's steps; tokens are learned from the
    recipe's word."""
    folder = tmp_path_factory.mktemp("pets")
    changes = overrides(folder, "pets-star", "xl", 4)
    few = ["tokens.learn.steps=1", *few_shifts("pets-star")]
    return built(folder, "pets-star", changes if WHOLE else [*changes, *few])


@pytest.fixture(scope="module")
def aircraft(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build with Stable Diffusion 1, prompted by class name where tokens would take long."""
    folder = tmp_path_factory.mktemp("aircraft")
    changes = overrides(folder, "aircraft-star", "sd1", 4 if WHOLE else 1)
    few = ["tokens=null", "generator.steps=2", *few_shifts("aircraft-star")]
    return built(folder, "aircraft-star", changes if WHOLE else [*changes, *few])


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.whole) for name in ("imagenet", "pets", "aircraft")
    ]
)
def large(request: pytest.FixtureRequest) -> Built:
    return request.getfixturevalue(request.param)


def test_every_architecture_has_a_recipe_here() -> None:
    assert set(PIPELINES) == {"sd1", "sd2", "xl"}


def test_every_cell_was_rendered_and_decided_by_the_recipes_thresholds(large: Built) -> None:
    recipe = load_recipe(large.directory)
    assert large.result.shards >= 2
    assert large.result.candidates == sum(len(shift.class_labels) for shift in recipe.all_shifts())
    shifts = {shift.name: shift for shift in recipe.all_shifts()}
    columns = [
        "shift",
        "class_id",
        "reason",
        "object_score",
        "shift_score",
        "object_threshold",
        "shift_threshold",
    ]
    seen = 0
    for row in read_rows(large.directory, columns=columns, what="candidates"):
        seen += 1
        shift = shifts[row["shift"]]
        value = shift.threshold.value if shift.threshold is not None else None
        if value is not None:
            assert row["shift_threshold"] == pytest.approx(value, abs=1e-6)  # stored in float32
        passes = row["object_score"] >= row["object_threshold"]
        if shift.threshold is not None and value is None:
            assert row["reason"] == "open"
            continue
        if value is not None:
            passes &= row["shift_score"] >= row["shift_threshold"]
        assert (row["reason"] == "accepted") == passes
    assert seen == large.result.candidates


def test_the_dataset_loads_with_its_classes(large: Built) -> None:
    recipe = load_recipe(large.directory)
    everything = load_dataset(str(large.directory))
    filled = [shift.name for shift in recipe.all_shifts() if shift.name not in large.empty]
    assert sorted(everything) == sorted(filled)
    assert sum(len(split) for split in everything.values()) == large.result.accepted > 0
    rows = everything["base"]
    assert rows.features["label"].num_classes == len(recipe.classes)
    row = rows[len(rows) - 1]
    assert row["image"].size == (SIDE, SIDE)
    assert recipe.classes[row["label"]].id == row["class_id"]


def test_a_shift_that_the_screen_left_empty_is_named_and_has_no_config(large: Built) -> None:
    thresholds = {
        shift.name: shift.threshold for shift in load_recipe(large.directory).all_shifts()
    }
    assert large.empty, "one shift at least is left empty"
    assert len(large.empty) < len(large.result.counts)
    if large.recipe == "imagenet-star":
        assert len(load_recipe(large.directory).classes) == 1000
        assert all(
            (spec := thresholds[shift]) is not None and spec.value is not None
            for shift in large.empty
        )
    configs = get_dataset_config_names(str(large.directory))
    card = (large.directory / "README.md").read_text(encoding="utf-8")
    (sentence,) = [
        line for line in card.splitlines() if line.startswith("No image was accepted, so")
    ]
    for shift in large.result.counts:
        assert (shift in configs) == (shift not in large.empty)
        assert (f"`{shift}`" in sentence) == (shift in large.empty)


def test_tokens_travel_with_the_dataset(large: Built) -> None:
    recipe = load_recipe(large.directory)
    count = 0 if recipe.tokens is None else len(recipe.classes)
    assert len(list((large.directory / "tokens").glob("*.safetensors"))) == count
    prompt = next(iter(read_rows(large.directory, columns=["prompt"], what="candidates")))["prompt"]
    assert prompt.startswith("A photo of a <") == bool(count)


def test_one_tiny_model_is_scored_on_it(large: Built, tmp_path: Path) -> None:
    classes = len(load_recipe(large.directory).classes)
    model = save_classifier(tmp_path, classes)
    words = [
        "evaluate",
        str(large.directory),
        "--models",
        model,
        # Its outputs have no names, and programs sort the variants of aircraft differently.
        "--class-order",
        "position",
        "--min-images",
        "1",
        "--device",
        "cpu",
    ]
    done = run_command([*words, "--out", str(tmp_path / "scores"), "--json"])
    assert done.returncode == 0, done.stderr
    scored = json.loads(done.stdout)
    assert scored
    assert (tmp_path / "scores" / "report.html").is_file()
