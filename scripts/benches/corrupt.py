"""How long `build` takes to corrupt photographs, beside a bare loop of its functions and beside the published code.

python scripts/bench.py corrupt [--images 60] [--workers 1 2] [--write]

Windows of 500 x 400 pixels of scikit-learn's two photographs, as JPEG, reduced to 256 pixels, and as PNG again, under
five corruptions of different kinds at severity 3. *Loop*: one process that decodes, reduces, corrupts and encodes with
the functions that a build uses, and stores nothing. *Published*: the same loop with the corruptions of
`imagecorruptions`, if it is installed (it is no dependency). *Memory*: the most that the build's processes held.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benches import Page
from benches.evaluate import CORES, alone, save_windows
from benches.processes import watched_memory
from results_page import table

TITLE, PARTS = "Speed of corruptions", ("corruptions",)
CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
SEVERITY, SIDE = 3, 256
TITLES = ("way", "workers", "images", "seconds", "images a second", "ratio to the loop", "memory")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how many photographs, and by how many workers."""
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Time the loops and a build for each number of workers, a row after another."""
    made = options.images * (1 + len(CORRUPTIONS))
    opening = ["Ratios are of images a second, so more is faster."]
    head = [f"`python scripts/bench.py corrupt --images {options.images}`, in one run on {CORES} cores.", ""]
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_windows(folder / "photographs", options.images)
        loop = alone(loop_seconds, folder / "photographs", ours)
        rows.append(["loop", "1", f"{made:,}", f"{loop:.1f}", f"{made / loop:.1f}", "1.00", ""])
        yield Page(opening, {PARTS[0]: [*head, *table(TITLES, rows)]})
        published_seconds = alone(loop_seconds, folder / "photographs", published)
        if published_seconds is not None:
            ratio = f"{loop / published_seconds:.2f}"
            speed = f"{made / published_seconds:.1f}"
            rows.append(["published", "1", f"{made:,}", f"{published_seconds:.1f}", speed, ratio, ""])
        for workers in options.workers:
            seconds, held = alone(build_seconds, folder / "photographs", folder / f"built-{workers}", workers)
            numbers = [f"{seconds:.1f}", f"{made / seconds:.1f}", f"{loop / seconds:.2f}", f"{held / 1e9:.1f} GB"]
            rows.append(["build", str(workers), f"{made:,}", *numbers])
            yield Page(opening, {PARTS[0]: [*head, *table(TITLES, rows)]})


def ours(pixels: np.ndarray, name: str, seed: int) -> np.ndarray:
    """Corrupt as a build does."""
    from counterfoil.generate.corruptions import corrupt

    return corrupt(pixels, name, SEVERITY, seed)


def published(pixels: np.ndarray, name: str, seed: int) -> np.ndarray:
    """Corrupt by the published code. Raise ImportError if it is not installed."""
    setattr(np, "float_", np.float64)  # noqa: B010 (it was written for numpy before 2.0)
    from imagecorruptions import corrupt  # pyrefly: ignore

    np.random.seed(seed % 2**32)  # noqa: NPY002 (it draws from the global generator)
    return corrupt(pixels, corruption_name=name, severity=SEVERITY)


def loop_seconds(folder: Path, change: Callable[[np.ndarray, str, int], np.ndarray]) -> float | None:
    """Return the seconds of a loop over all photographs; None if the code that changes them is not installed."""
    from PIL import Image

    from counterfoil.generate.rows import reduced

    files = sorted(folder.glob("*/*.jpg"))
    try:
        change(np.zeros((SIDE, SIDE, 3), np.uint8), CORRUPTIONS[0], 0)
    except ImportError:
        return None
    started = time.monotonic()
    for seed, file in enumerate(files):
        pixels = np.asarray(reduced(Image.open(file).convert("RGB"), SIDE))
        for name in (None, *CORRUPTIONS):
            changed = pixels if name is None else change(pixels, name, seed)
            Image.fromarray(changed.astype(np.uint8)).save(io.BytesIO(), "PNG")
    return time.monotonic() - started


def build_seconds(folder: Path, out: Path, workers: int) -> tuple[float, int]:
    """Return the seconds of a whole build, its libraries imported, and the bytes that its processes held."""
    import os

    import datasets  # noqa: F401 (imported before the loop's clock runs, and so is this)

    from counterfoil.building.build_dataset import build

    classes = sorted(path.name for path in folder.iterdir())
    each = len(list((folder / classes[0]).iterdir()))
    recipe: dict[str, Any] = {
        "recipe": 1,
        "name": "speed",
        "license": "other",
        "source": {"dataset": str(folder), "train_split": "train", "validation_split": "train", "classes": classes},
        "generator": {"kind": "corrupt", "split": "train", "size": SIDE},
        "prompts": {"shifts": {name: {"corruption": name, "severity": SEVERITY} for name in CORRUPTIONS}},
        "samples": {"candidates": each},
    }
    path = out.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    started = time.monotonic()
    with watched_memory(os.getpid()) as held:
        build(path, out, workers=workers, device="cpu")
    return time.monotonic() - started, held[0]
