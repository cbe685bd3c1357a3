"""Fixtures of the evaluation's tests: one dataset of plain colours and the models that read
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from colour_world import (
    build_colours,
    graded_png,
    save_colour_model,
    save_colour_models,
    save_photographs,
)
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.recipe import load_recipe
from support.images import encoded


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return save_colour_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def named(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save the model that is always right about a colour, with names of its outputs."""
    return f"local-dir:{save_colour_model(tmp_path_factory.mktemp('named') / 'sharp', labels=True)}"


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset with every candidate accepted. Read-only: tests that write to it build
    another."""
    return build_colours(tmp_path_factory.mktemp("colours") / "dataset")


@pytest.fixture(scope="session")
def evaluation(
    dataset: Path, models: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Evaluation:
    return evaluate(
        dataset, list(models.values()), out=tmp_path_factory.mktemp("out"), device="cpu"
    )


@pytest.fixture(scope="session")
def graded_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build `swap` at four levels, each with one more image of the next colour; at .5 one image a
    class is rejected."""
    levels = "prompts.shifts.swap.severity={levels: [0.25, 0.5, 0.75, 1]}"
    folder = tmp_path_factory.mktemp("graded") / "dataset"
    return build_colours(
        folder,
        levels,
        keep=lambda sample: (sample.shift, sample.index) != ("swap_50", 9),
        image=graded_png,
    )


@pytest.fixture(scope="session")
def graded(
    graded_dataset: Path, models: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Evaluation:
    return evaluate(
        graded_dataset,
        list(models.values()),
        out=tmp_path_factory.mktemp("graded-out"),
        device="cpu",
        reference=False,
    )


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a folder of photographs, see `save_photographs`. Read-only."""
    return save_photographs(tmp_path_factory.mktemp("folder") / "photos")


@pytest.fixture(scope="session")
def photographed(photos: Path, named: str, tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """Evaluate the model that is always right about a colour on the folder: no base, no shifts."""
    return evaluate(photos, [named], out=tmp_path_factory.mktemp("photographed"), device="cpu")


@pytest.fixture(scope="session")
def weather(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write wardrobe scenes as they are, and nearly covered by grey."""
    classes = load_recipe("wardrobe-mini").classes
    table: dict[str, list[Any]] = {"image": [], "label": [], "weather": []}
    for index in range(60):
        pixels = render(wardrobe_scene("validation", index))
        for name, shown in (
            ("clear", pixels),
            ("grey", (0.05 * pixels + 0.95 * 128).astype(np.uint8)),
        ):
            for key, value in zip(
                table, ({"bytes": encoded(shown)}, index % len(classes), name), strict=True
            ):
                table[key].append(value)
    features = datasets.Features(
        image=datasets.Image(),
        label=datasets.ClassLabel(names=[cls.name for cls in classes]),
        weather=datasets.Value("string"),
    )
    folder = tmp_path_factory.mktemp("weather")
    datasets.Dataset.from_dict(table, features).to_parquet(str(folder / "all.parquet"))
    return folder
