"""How long `build` takes to corrupt photographs, beside a bare loop of its functions and beside the
published code.

python scripts/bench.py corrupt [--images 60] [--workers 1 2] [--write]

Windows of 500 x 400 pixels of scikit-learn's two photographs, as JPEG, reduced to 256 pixels, and
as PNG again, under five corruptions of different kinds at severity 3. *Loop*: one process that
decodes, reduces, corrupts and encodes with the functions that a build uses, and stores nothing.
*Published*: the same loop with the corruptions of `imagecorruptions`, if it is installed (it is no
dependency). *Memory*: the most that the build's processes held.

A second table has each corruption alone, on arrays of 224 x 224 pixels at severity 3 in one thread,
beside `imagecorruptions` and beside the transform of albumentations that is nearest in kind: other
constants, another result.
"""

from __future__ import annotations

import argparse
import functools
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

TITLE = "Speed of corruptions"
PARTS = ("corruptions", "kinds")
CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
SEVERITY = 3
SIDE = 256
TITLES = ("way", "workers", "images", "seconds", "images a second", "ratio to the loop", "memory")


KIND_TITLES = (
    "corruption",
    "counterfoil.corrupt",
    "imagecorruptions",
    "ratio",
    "albumentations",
    "images a second",
    "ratio",
)
KIND_SIDE = 224
# Corrupts pixels by a name and a seed.
Change = Callable[[np.ndarray, str, int], np.ndarray]
# The transform of albumentations that is nearest in kind, with its arguments.
ALBUMENTATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "gaussian_noise": ("GaussNoise", {"std_range": (0.18, 0.18)}),
    "shot_noise": ("ShotNoise", {}),
    "speckle_noise": ("MultiplicativeNoise", {"elementwise": True}),
    "defocus_blur": ("Defocus", {"radius": (6, 6), "alias_blur": (0.5, 0.5)}),
    "glass_blur": ("GlassBlur", {"sigma": 1.0, "max_delta": 2, "iterations": 3}),
    "motion_blur": ("MotionBlur", {"blur_limit": (15, 15)}),
    "zoom_blur": ("ZoomBlur", {"max_factor": (1.21, 1.21), "step_factor": (0.02, 0.02)}),
    "gaussian_blur": ("GaussianBlur", {"sigma_limit": (3, 3)}),
    "snow": ("RandomSnow", {}),
    "fog": ("RandomFog", {}),
    "brightness": (
        "RandomBrightnessContrast",
        {"brightness_limit": (0.3, 0.3), "contrast_limit": (0, 0)},
    ),
    "spatter": ("Spatter", {}),
    "contrast": (
        "RandomBrightnessContrast",
        {"brightness_limit": (0, 0), "contrast_limit": (-0.8, -0.8)},
    ),
    "elastic_transform": ("ElasticTransform", {}),
    "pixelate": ("Downscale", {"scale_range": (0.4, 0.4)}),
    "jpeg_compression": ("ImageCompression", {"quality_range": (15, 15)}),
    "saturate": ("HueSaturationValue", {}),
    "greyscale": ("ToGray", {}),
    "rotation": ("Rotate", {"limit": (20, 20)}),
    "occlusion": ("CoarseDropout", {"num_holes_range": (1, 1)}),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how many photographs, and by how many workers."""
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Time the loops and a build for each number of workers, a row after another, and each
    corruption alone."""
    opening = ["Ratios are of images a second, so more is faster."]
    if "kinds" in options.parts:
        yield Page(opening, {"kinds": alone(kind_lines, options.images)})
    if "corruptions" not in options.parts:
        return
    made = options.images * (1 + len(CORRUPTIONS))
    head = [
        f"`python scripts/bench.py corrupt --images {options.images}`, in one run on {CORES} cores.",
        "",
    ]
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
            rows.append(
                ["published", "1", f"{made:,}", f"{published_seconds:.1f}", speed, ratio, ""]
            )
        for workers in options.workers:
            seconds, held = alone(
                build_seconds, folder / "photographs", folder / f"built-{workers}", workers
            )
            numbers = [
                f"{seconds:.1f}",
                f"{made / seconds:.1f}",
                f"{loop / seconds:.2f}",
                f"{held / 1e9:.1f} GB",
            ]
            rows.append(["build", str(workers), f"{made:,}", *numbers])
            yield Page(opening, {PARTS[0]: [*head, *table(TITLES, rows)]})


def ours(pixels: np.ndarray, name: str, seed: int) -> np.ndarray:
    """Corrupt as a build does."""
    from counterfoil.corrupting.corrupt import corrupt

    return corrupt(pixels, name, SEVERITY, seed=seed)


def published(pixels: np.ndarray, name: str, seed: int) -> np.ndarray:
    """Corrupt by the published code. Raise ImportError if it is not installed."""
    setattr(np, "float_", np.float64)  # noqa: B010 (it was written for numpy before 2.0)
    from imagecorruptions import corrupt  # pyrefly: ignore

    np.random.seed(seed % 2**32)  # noqa: NPY002 (it draws from the global generator)
    return corrupt(pixels, corruption_name=name, severity=SEVERITY)


def loop_seconds(folder: Path, change: Change) -> float | None:
    """Return the seconds of a loop over all photographs; None if the code that changes them is not
    installed."""
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
    """Return the seconds of a whole build, its libraries imported, and the bytes that its processes
    held."""
    import os

    import datasets  # noqa: F401 (imported before the loop's clock runs, and so is this)

    from counterfoil.building.build_dataset import build

    classes = sorted(path.name for path in folder.iterdir())
    each = len(list((folder / classes[0]).iterdir()))
    recipe: dict[str, Any] = {
        "recipe": 1,
        "name": "speed",
        "license": "other",
        "source": {
            "dataset": str(folder),
            "train_split": "train",
            "validation_split": "train",
            "classes": classes,
        },
        "generator": {"kind": "corrupt", "split": "train", "size": SIDE},
        "prompts": {
            "shifts": {name: {"corruption": name, "severity": SEVERITY} for name in CORRUPTIONS}
        },
        "samples": {"candidates": each},
    }
    path = out.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    started = time.monotonic()
    with watched_memory(os.getpid()) as held:
        build(path, out, workers=workers, device="cpu")
    return time.monotonic() - started, held[0]


def kind_lines(images: int) -> list[str]:
    """Return the table of each corruption alone. A library that is not installed has no numbers."""
    from counterfoil.corrupting.corruptions import CORRUPTIONS as EVERY

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_windows(folder, images)
        pictures = [small_picture(path) for path in sorted(folder.glob("*/*.jpg"))][:images]
    rows = []
    for name in EVERY:
        speeds = [images_a_second(way, name, pictures) for way in (ours, published, transformed)]
        mine, of_published, other = speeds
        near = "" if other is None else ALBUMENTATIONS[name][0]
        row = [name, shown_speed(mine), *beside(mine, of_published), near, *beside(mine, other)]
        rows.append(row)
    head = [
        f"`python scripts/bench.py corrupt --parts kinds --images {images}`, in one run, in one"
        " thread. Images a"
        " second; a ratio is theirs to ours. Empty: the library has no such corruption, is not"
        " installed, or fails.",
        "",
    ]
    return [*head, *table(KIND_TITLES, rows)]


def small_picture(path: Path) -> np.ndarray:
    """Return the middle of a photograph, uint8 [224, 224, 3]."""
    from PIL import Image

    image = Image.open(path).convert("RGB")
    left = (image.width - KIND_SIDE) // 2
    top = (image.height - KIND_SIDE) // 2
    return np.asarray(image.crop((left, top, left + KIND_SIDE, top + KIND_SIDE)))


@functools.cache
def albumentations_transform(name: str) -> Any:
    """Return the nearest transform of albumentations. KeyError without one, and ImportError without
    the library."""
    kind, arguments = ALBUMENTATIONS[name]
    import albumentations  # pyrefly: ignore

    return getattr(albumentations, kind)(p=1.0, **arguments)


def transformed(pixels: np.ndarray, name: str, seed: int) -> np.ndarray:
    """Corrupt by the nearest transform of albumentations."""
    return albumentations_transform(name)(image=pixels)["image"]


def images_a_second(change: Change, name: str, pictures: list[np.ndarray]) -> float | None:
    """Return the images that a function corrupts in a second, after one that is not counted; None
    if it fails."""
    try:
        change(pictures[0], name, 0)
        started = time.monotonic()
        for seed, picture in enumerate(pictures):
            change(picture, name, seed)
        return len(pictures) / (time.monotonic() - started)
    except Exception:
        return None


def shown_speed(speed: float | None) -> str:
    return "" if speed is None else f"{speed:,.0f}"


def beside(mine: float | None, other: float | None) -> tuple[str, str]:
    """Return a speed and its ratio to ours."""
    return shown_speed(other), "" if mine is None or other is None else f"{other / mine:.2f}"
