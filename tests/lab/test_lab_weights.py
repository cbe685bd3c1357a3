"""The embedded models: small enough to ship, and each beside the training that made it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from counterfoil.models import LAB_WEIGHTS, lab_models

FOLDERS = [LAB_WEIGHTS / name for name in lab_models()]
# Of 50 MB that the lab may have in all; a budget to be raised knowingly.
MOST_BYTES = 46_000_000


def test_the_weights_are_small() -> None:
    assert sum(file.stat().st_size for file in LAB_WEIGHTS.rglob("*") if file.is_file()) <= MOST_BYTES


def test_the_generator_and_the_screen_are_there() -> None:
    assert {"sd", "clip"} <= {folder.name for folder in FOLDERS}


def test_every_file_of_weights_has_a_name() -> None:
    files = list(LAB_WEIGHTS.rglob("*.safetensors"))
    assert files
    assert all(any(file.is_relative_to(folder) for folder in FOLDERS) for file in files)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_folder_says_how_it_was_trained_and_measured(folder: Path) -> None:
    training = json.loads((folder / "training.json").read_text())
    script = "train_planted" if folder.parent.name == "planted" else "train_lab"
    assert training["command"].startswith(f"python scripts/{script}.py")
    if (folder / "metrics.json").exists():
        assert json.loads((folder / "metrics.json").read_text())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_weights_are_half_precision_safetensors(folder: Path) -> None:
    assert not [f.name for f in folder.rglob("*") if f.suffix in {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".npy"}]
    for file in folder.rglob("*.safetensors"):
        with safe_open(file, "numpy") as tensors:
            kinds = {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118 (not a mapping)
        assert kinds <= {"F16", "I64"}, file
