"""How long it takes to score many classifiers on one set of images, beside as many plain loops; ratios of one run.

    python scripts/bench_evaluate.py [--images 1500] [--models 8 40] [--workers 1 2] [--write]

Three ways to the same answers, with the same models, transforms, batch size and machine:

- loops:    a timm validation loop a model, one after another: an image folder, a data loader whose processes decode and
            transform, the model in batches. Models are loaded before, on the better of two splits of the cores
            (decoding in the loop's own process with a thread a core, or in as many processes as cores);
- pass:     what `counterfoil evaluate` does for answers: each image decoded once for all models that fit in memory
            together, loading of their weights included;
- evaluate: the whole of it, with intervals, tables and the report.

Two sets of pictures: of 64 x 64 pixels in PNG, and of 512 x 512 in JPEG, where decoding is the larger part. More models
than the lab's eight are these with weights of their own. Libraries are imported before either side begins.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import results_page

RESULTS = Path(__file__).parent / "RESULTS.md"
BATCH = 64
LAB = (
    "convnext_atto", "convnext_pico", "lcnet_035", "mobilenetv3_small_050", "resnet10t", "resnet14t",
    "vit_tiny_patch16", "vit_tiny_patch8",
)  # fmt: skip


def save_pictures(folder: Path, images: int, side: int, suffix: str) -> None:
    """The lab's own photographs, so large, in folders that are called after their classes."""
    from PIL import Image

    from counterfoil.data.labelled_sources import labelled_split
    from counterfoil.recipe import load_recipe

    recipe = load_recipe("wardrobe-mini")
    source = labelled_split(recipe.source, "audit", recipe.classes, None, units=False)
    for place, (_, encoded) in zip(range(images), source.images(), strict=False):
        picture = source.decoded(encoded)
        assert picture is not None
        name = recipe.classes[int(source.labels[place])].name
        (folder / name).mkdir(parents=True, exist_ok=True)
        picture = picture.resize((side, side), Image.Resampling.BICUBIC)
        picture.save(folder / name / f"{place:06d}.{suffix}", quality=90)


def save_models(folder: Path, count: int) -> list[str]:
    """The lab's classifiers by name, and behind them others of the same architectures with weights of their own."""
    import torch
    from safetensors.torch import load_file, save_file

    from counterfoil.models import LAB_WEIGHTS

    made = [f"lab:{name}" for name in LAB[:count]]
    for place in range(len(LAB), count):
        target = folder / f"{LAB[place % len(LAB)]}-{place}"
        shutil.copytree(LAB_WEIGHTS / LAB[place % len(LAB)], target)
        weights = load_file(target / "model.safetensors")
        draw = torch.Generator().manual_seed(place)
        moved = {
            key: own * (1 + 1e-3 * torch.rand((), generator=draw)).to(own.dtype) if own.is_floating_point() else own
            for key, own in weights.items()
        }
        save_file(moved, target / "model.safetensors")
        made.append(f"local-dir:{target}")
    return made


def loops(folder: Path, models: Sequence[Any], processes: int, threads: int) -> float:
    """Seconds of a plain validation loop of each model, one after another."""
    import torch
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    started = time.monotonic()
    for model in models:
        right = 0
        data = ImageFolder(str(folder), transform=model.transform())
        loader = DataLoader(data, batch_size=BATCH, num_workers=processes)
        with torch.inference_mode():
            for pictures, labels in loader:
                right += int((model.module(pictures).argmax(dim=1) == labels).sum())
    seconds = time.monotonic() - started
    torch.set_num_threads(before)
    return seconds


def measure(images: int, side: int, suffix: str, count: int, workers: Sequence[int]) -> dict[str, float]:
    """Seconds of each way, by its name."""
    import datasets  # noqa: F401 (the loops' libraries are imported before they begin, and so is this one)

    from counterfoil.evaluation.evaluate_dataset import evaluate
    from counterfoil.models.classifiers import load_classifier
    from counterfoil.progress import listening

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        os.environ["XDG_CACHE_HOME"] = str(place / "cache")
        folder = place / "pictures"
        save_pictures(folder, images, side, suffix)
        names = save_models(place / "models", count)
        loaded = [load_classifier(name) for name in names]
        splits = ((0, cores), (cores, 1))
        found = {"loops": min(loops(folder, loaded, processes, threads) for processes, threads in splits)}
        del loaded
        for each in workers:
            started = time.monotonic()
            told: list[tuple[str, float]] = []
            out = place / f"out-{each}"
            with listening(lambda stage, told=told: told.append((stage.name, time.monotonic()))):
                evaluate(folder, names, recipe="wardrobe-mini", out=out, device="cpu", batch_size=BATCH, workers=each)
            measuring = [moment for name, moment in told if name == "measuring"]
            found[f"pass, {each}"] = (measuring[0] if measuring else time.monotonic()) - started
            found[f"evaluate, {each}"] = time.monotonic() - started
            shutil.rmtree(place / "cache", ignore_errors=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--models", type=int, nargs="+", default=[8, 40])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--write", action="store_true", help="put the table into scripts/RESULTS.md")
    arguments = parser.parse_args()
    table = [
        "| pictures | models | workers | plain loops | pass | ratio | whole evaluate | ratio |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for side, suffix in ((64, "png"), (512, "jpg")):
        for count in arguments.models:
            found = measure(arguments.images, side, suffix, count, arguments.workers)
            for workers in arguments.workers:
                one, whole = found[f"pass, {workers}"], found[f"evaluate, {workers}"]
                table.append(
                    f"| {arguments.images:,} of {side} x {side}, {suffix} | {count} | {workers} |"
                    f" {found['loops']:.1f} s | {one:.1f} s | {found['loops'] / one:.2f} | {whole:.1f} s |"
                    f" {found['loops'] / whole:.2f} |"
                )
                print(table[-1], flush=True)
    if arguments.write:
        chosen = " ".join(map(str, arguments.models))
        opening = [
            f"`python scripts/bench_evaluate.py --images {arguments.images} --models {chosen}`, in one run. Aim: 1.5"
            " times with the lab's eight, more where decoding is heavy.",
        ]
        title = "Speed of an evaluation"
        results_page.write(RESULTS, "bench_evaluate", title, opening, {"speed": table}, ["speed"])


if __name__ == "__main__":
    main()
