"""Real builds made small: three classes, four shifts, one step; and what two dataset directories
hold."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import warm
from counterfoil.building.build_dataset import BuildResult, build
from counterfoil.store.reading import read_rows

CLASSES = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0}, {id: '05', name: sandal,"
    " source_label: 5},"
    " {id: '08', name: bag, source_label: 8}]"
)
SHIFTS = ("base", "in_the_snow", "red", "pencil_sketch")
# Two cells a shard, so that each group's last shard holds one cell: a full batch, then a short one.
TINY = (
    CLASSES,
    "tokens=null",  # by class name: many tests bring classes, generators and tokens of their own
    "prompts.shifts.in_the_grass=null",
    "prompts.shifts.at_night=null",
    "generator={model: lab:sd, steps: 1, guidance: 1.0, size: 32, batch_size: 4, dtype: float32}",
    "screen={model: lab:clip, object_threshold: -1, shift_threshold: -1, store_embeddings: true,"
    " keep_rejected: false,"
    " keep: thresholds, judge: null}",
    "samples={candidates: 2, seed: 0, noise: paired}",
    "output={format: parquet, rows_per_shard: 4}",
)
SHARDS = 8
# What workers of builds and evaluations import.
HEAVY = (
    "open_clip", "diffusers.pipelines.auto_pipeline", "diffusers.pipelines.stable_diffusion", "timm", "pandas",
    "diffusers.models.controlnets", "diffusers.loaders.lora_base", "transformers.models.clip.modeling_clip",
    "datasets", "scipy.stats", "counterfoil.building.workers", "counterfoil.prediction.passes",
    "counterfoil.prediction.embedding",
)  # fmt: skip
PRIVATE = {".counterfoil", "index.html"}


def tiny(out: Path, *changes: str, workers: int = 1, **options: Any) -> BuildResult:
    return build(
        "wardrobe-mini", out, overrides=[*TINY, *changes], device="cpu", workers=workers, **options
    )


def published(directory: Path) -> dict[str, bytes]:
    """Return the content of every file but the private ones, by relative path."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.relative_to(directory).parts[0] not in PRIVATE
    }


def images(directory: Path) -> dict[str, bytes]:
    """Return the encoded images by key, accepted or rejected."""
    return {
        row["key"]: row["image"]["bytes"]
        for what in ("data", "rejected")
        for row in read_rows(directory, columns=["key", "image"], what=what)
    }


def command(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment of the real command, without network."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment.pop("COUNTERFOIL_DEBUG", None)
    return [sys.executable, "-m", "counterfoil.cli.main", *arguments], environment


def build_arguments(out: Path, *changes: str, workers: int = 1) -> list[str]:
    settings = [word for change in (*TINY, *changes) for word in ("--set", change)]
    return [
        "build",
        "wardrobe-mini",
        "--out",
        str(out),
        "--workers",
        str(workers),
        "--device",
        "cpu",
        *settings,
    ]


def run_command(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    words, environment = command(*arguments)
    return warm.run(words, environment)


def half_done(whole: Path, out: Path, *groups: str) -> Path:
    """Copy a dataset as a kill leaves it: without its manifest, and with shards of these groups
    without a receipt."""
    shutil.copytree(whole, out)
    (out / "manifest.json").unlink()
    for group in groups:
        for receipt in (out / "receipts").glob(f"{group}-*.json"):
            receipt.unlink()
    return out


def killed(arguments: Sequence[str], out: Path, shards: int) -> None:
    """Run the command and end it by SIGKILL once so many shards are done: it leaves half a
    dataset."""
    words, environment = command(*arguments)
    receipts = out / "receipts"
    with warm.start(words, environment) as process:
        while process.poll() is None and not (
            receipts.is_dir() and len(list(receipts.glob("*.json"))) >= shards
        ):
            time.sleep(0.005)
        process.kill()
        _, output = process.communicate()
    assert not (out / "manifest.json").exists(), f"it was done before it was killed: {output}"
