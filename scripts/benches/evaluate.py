"""How long it takes to score classifiers on one set of images, beside as many plain loops; ratios
of one run.

    python scripts/bench.py evaluate [--images 1500] [--models 8 40] [--workers 1 2] [--write]
    python scripts/bench.py evaluate --photographs [--data cifar10-test-even.zip] [--share 1]
    [--write]

Three ways to the same answers, with the same models, transforms and machine, each in a process of
its own:

- loops:    a timm validation loop a model, one after another: an image folder, a data loader whose
            processes decode and transform, the model in batches. Models are loaded before, on the
            best of two splits of the cores (decoding in the loop's own process with a thread a
            core, or in as many processes as cores);
- pass:     what `counterfoil evaluate` does for answers: each image decoded once for all models
            that fit in memory together, loading of their weights included;
- evaluate: the whole of it, with intervals, tables and the report.

Pictures of the first command are the lab's: of 64 x 64 pixels in PNG, and of 512 x 512 in JPEG,
where decoding is the larger part. More models than the lab's eight are these with weights of their
own. Those of the second are photographs of 500 x 400 pixels (windows of scikit-learn's two) for a
ResNet-50 and a ResNet-18 at 224 pixels, and the photographs of `--data`, a zip with a folder a
class, for six small networks at 32. Weights are random: only time is measured. There the loop has
the batch size that is fastest on a few images. Libraries are imported before either side begins.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benches import Page
from benches.processes import watched_memory
from proof_files import CLASSIFIERS
from results_page import table

TITLE = "Speed of an evaluation"
PARTS = ("speed", "photographs")
BATCH = 64
# Of the plain loops on photographs, whose best is taken.
SIZES = (8, 32, 64)
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
SMALL = (
    "resnet10t",
    "resnet14t",
    "resnet18",
    "mobilenetv3_small_050",
    "lcnet_050",
    "efficientnet_lite0",
)
LAB = tuple(sorted(CLASSIFIERS))
TITLES = (
    "pictures",
    "models",
    "workers",
    "plain loops (batch)",
    "pass",
    "ratio",
    "whole evaluate",
    "ratio",
    "busy",
    "memory",
)
Row = list[str]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what is scored, and by how many workers."""
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--models", type=int, nargs="+", default=[8, 40])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--photographs", action="store_true", help="large networks, and small ones with --data"
    )
    parser.add_argument(
        "--data", type=Path, help="a zip of CIFAR-10's photographs, a folder a class"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the photographs, for a quick look"
    )


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Score the lab's pictures, or photographs, a row after another."""
    if options.photographs:
        part = "photographs"
        command = f"--photographs --data ZIP --share {options.share:g}"
        measured = photograph_rows(options.share, options.data, options.workers)
        aim = (
            "Aims: .95 of the best loop at 224 pixels, 1.0 of six loops, cores busy for 90 % of"
            " the time."
        )
    else:
        part = "speed"
        command = f"--images {options.images} --models {' '.join(map(str, options.models))}"
        measured = lab_rows(options.images, options.models, options.workers)
        aim = "Aim: 1.5 times with the lab's eight, more where decoding is heavy."
    opening = [
        "Ratios are of the plain loops' seconds, so more is faster. *Busy* is the share of all"
        " cores that the"
        " machine was busy during the evaluation, *memory* the most that its processes held"
        " together, shared pages"
        " counted in each.",
    ]
    head = [f"`python scripts/bench.py evaluate {command}`, in one run on {CORES} cores. {aim}", ""]
    rows = []
    for row in measured:
        rows.append(row)
        print(f"| {' | '.join(row)} |", flush=True)
        yield Page(opening, {part: [*head, *table(TITLES, rows)]})


def save_pictures(folder: Path, images: int, side: int, suffix: str) -> None:
    """Save the lab's own photographs at this size, in one folder a class."""
    from PIL import Image

    from counterfoil.data.labelled_sources import labelled_split
    from counterfoil.recipe import load_recipe

    recipe = load_recipe("wardrobe-mini")
    source = labelled_split(recipe.source, "audit", recipe.classes, None, units=False)
    for index, (_, encoded) in zip(range(images), source.images(), strict=False):
        picture = source.decoded(encoded)
        assert picture is not None
        name = recipe.classes[int(source.labels[index])].name
        (folder / name).mkdir(parents=True, exist_ok=True)
        picture = picture.resize((side, side), Image.Resampling.BICUBIC)
        picture.save(folder / name / f"{index:06d}.{suffix}", quality=90)


def save_models(folder: Path, count: int) -> list[str]:
    """Save the lab's classifiers, and as many copies with other weights as `count` needs; return
    their names."""
    import torch
    from safetensors.torch import load_file, save_file

    from counterfoil.models.names import LAB_WEIGHTS

    made = [f"lab:{name}" for name in LAB[:count]]
    for index in range(len(LAB), count):
        target = folder / f"{LAB[index % len(LAB)]}-{index}"
        shutil.copytree(LAB_WEIGHTS / LAB[index % len(LAB)], target)
        weights = load_file(target / "model.safetensors")
        draw = torch.Generator().manual_seed(index)
        moved = {
            key: tensor * (1 + 1e-3 * torch.rand((), generator=draw)).to(tensor.dtype)
            if tensor.is_floating_point()
            else tensor
            for key, tensor in weights.items()
        }
        save_file(moved, target / "model.safetensors")
        made.append(f"local-dir:{target}")
    return made


def save_windows(folder: Path, images: int) -> None:
    """Save windows of 500 x 400 pixels of two photographs, in a folder for each."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_images

    draw = np.random.default_rng(0)  # of places in the photographs
    for name, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        (folder / name).mkdir(parents=True)
        for index in range(images // 2):
            top = draw.integers(pixels.shape[0] - 399)
            left = draw.integers(pixels.shape[1] - 499)
            window = Image.fromarray(pixels[top : top + 400, left : left + 500])
            window.save(folder / name / f"{index:06d}.jpg", quality=90)


def save_architecture(folder: Path, name: str, classes: Sequence[str], side: int) -> str:
    """Save an architecture of timm with random weights, for images of this side; return its
    name."""
    import timm
    import torch

    torch.manual_seed(0)
    model: Any = timm.create_model(name, num_classes=len(classes))
    model.pretrained_cfg = {
        **model.pretrained_cfg,
        "input_size": (3, side, side),
        "test_input_size": (3, side, side),
    }
    timm.models.save_for_hf(
        model,
        str(folder / name),
        model_config={"label_names": list(classes)},
        safe_serialization="both",
    )
    return f"local-dir:{folder / name}"


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the function gives in a process of its own, with the allocator's own settings."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def timed_loops(
    folder: Path, names: Sequence[str], batch_sizes: Sequence[int], probed: int
) -> tuple[float, int]:
    """Return the seconds of plain loops, with the split of cores and the batch size that are
    fastest on some images."""
    from counterfoil.models.classifiers import load_classifier

    models = [load_classifier(name) for name in names]
    ways = [
        (processes, threads, size)
        for processes, threads in ((0, CORES), (CORES, 1))
        for size in batch_sizes
    ]
    loops(folder, models[:1], 0, CORES, batch_sizes[0], 16)  # the first is slower
    best = min(ways, key=lambda way: loops(folder, models, *way, probed))
    return loops(folder, models, *best, None), best[2]


def loops(
    folder: Path,
    models: Sequence[Any],
    processes: int,
    threads: int,
    batch_size: int,
    most: int | None,
) -> float:
    """Return the seconds of a plain validation loop of each model in turn, over at most this many
    images."""
    import torch
    from torch.utils.data import DataLoader, Subset
    from torchvision.datasets import ImageFolder

    torch.set_num_threads(threads)
    started = time.monotonic()
    for model in models:
        right = 0
        data = ImageFolder(str(folder), transform=model.transform())
        part = (
            data if most is None else Subset(data, range(0, len(data), max(1, len(data) // most)))
        )
        loader = DataLoader(
            part,
            batch_size=batch_size,
            num_workers=processes,
            # as where the loop is a program's own
            multiprocessing_context="fork" if processes else None,
        )
        with torch.inference_mode():
            for pictures, labels in loader:
                right += int((model.module(pictures).argmax(dim=1) == labels).sum())
    return time.monotonic() - started


def timed_evaluation(
    folder: Path, names: Sequence[str], recipe: str | None, workers: int, work: Path
) -> list[float]:
    """Return seconds of the pass and of all, the share of cores that was busy, and bytes of the
    processes."""
    import datasets  # noqa: F401 (the loops' libraries are imported before they begin, and so is this one)
    import psutil
    import timm  # noqa: F401
    import torch

    from counterfoil.evaluation.evaluate_dataset import evaluate
    from counterfoil.progress import listening

    torch.set_num_threads(CORES)
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    stages: list[tuple[str, float]] = []
    with watched_memory(os.getpid()) as most:
        started = time.monotonic()
        before = psutil.cpu_times()
        with listening(lambda stage: stages.append((stage.name, time.monotonic()))):
            evaluate(
                folder,
                names,
                recipe=recipe,
                out=work / "out",
                device="cpu",
                batch_size=BATCH,
                workers=workers,
            )
        seconds = time.monotonic() - started
        after = psutil.cpu_times()
    idle = after.idle + getattr(after, "iowait", 0) - before.idle - getattr(before, "iowait", 0)
    measuring = [moment for name, moment in stages if name == "measuring"]
    shutil.rmtree(work / "cache")
    return [measuring[0] - started, seconds, 1 - idle / (seconds * (os.cpu_count() or 1)), most[0]]


def compared_rows(
    what: str,
    folder: Path,
    names: Sequence[str],
    recipe: str | None,
    workers: Sequence[int],
    batch_sizes: Sequence[int],
    probed: int,
) -> Iterator[Row]:
    """Yield a row of the table for each number of workers; `probed` images choose the loops."""
    plain, best = alone(timed_loops, folder, names, batch_sizes, probed)
    for each in workers:
        with tempfile.TemporaryDirectory() as temporary:
            answered, whole, busy, held = alone(
                timed_evaluation, folder, names, recipe, each, Path(temporary)
            )
        yield [
            what, f"{len(names)}", f"{each}", f"{plain:.1f} s ({best})", f"{answered:.1f} s", f"{plain / answered:.2f}",
            f"{whole:.1f} s", f"{plain / whole:.2f}", f"{busy:.0%}", f"{held / 1e9:.1f} GB",
        ]  # fmt: skip


def lab_rows(images: int, counts: Sequence[int], workers: Sequence[int]) -> Iterator[Row]:
    """Yield rows of the lab's pictures of two sizes, for each number of models."""
    for side, suffix in ((64, "png"), (512, "jpg")):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "pictures"
            save_pictures(folder, images, side, suffix)
            what = f"{images:,} of {side} x {side}, {suffix}"
            for count in counts:
                names = save_models(Path(temporary) / f"models-{count}", count)
                yield from compared_rows(what, folder, names, "wardrobe-mini", workers, [BATCH], 96)


def photograph_rows(share: float, data: Path | None, workers: Sequence[int]) -> Iterator[Row]:
    """Yield rows of large networks on photographs, alone, and of small ones together on the images
    of `data`."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary)
        for name, images in (("resnet50", 400), ("resnet18", 600)):
            images = max(8, int(images * share))
            save_windows(path / name / "photographs", images)
            model = save_architecture(path / name, name, ("china", "flower"), 224)
            what = f"{images} photographs, {name} at 224"
            yield from compared_rows(
                what, path / name / "photographs", [model], None, workers, SIZES, 32
            )
        if data is not None:
            with zipfile.ZipFile(data) as archive:
                inside = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
                inside = inside[:: max(1, round(1 / share))]
                archive.extractall(path / "small", inside)
            folder = path / "small" / inside[0].split("/")[0]
            classes = sorted(each.name for each in folder.iterdir())
            names = [save_architecture(path / "models", name, classes, 32) for name in SMALL]
            yield from compared_rows(
                f"{len(inside):,} of CIFAR-10, six at 32", folder, names, None, workers, SIZES, 640
            )
