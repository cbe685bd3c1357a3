"""How close `counterfoil build` comes to the bare models, and how far ahead of a plain loop it is;
ratios of one run.

A row for each number of candidates a cell, of ten classes under a base and five shifts, in shards
of a hundred images and batches of 20. Three ways to make as many images with the same models, steps
and machine:

- build: the whole `counterfoil build` (render, screen, encode, store, card), from its first shard
  to its last;
- bare:  UNet + VAE + CLIP in full batches and nothing else, before and after each build of a round,
         on the better of two splits of the cores (one process a core with one thread each, or one
         process with a thread a core);
- loop:  one pipeline call and one CLIP call an image, pipeline loaded once, on the better of the
  same splits.

The times of build and bare count from the start of the worker processes, models loading included;
bare renders whole batches in every process, so a few images less. The loop is slow, so it makes
fewer images and its time starts when its models are loaded, which favours it.
Peak memory is that of the whole process tree, at 500 and at 5000 images (with few steps: memory
does not depend on them).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benches import Page
from benches.processes import watched_memory
from counterfoil.lab.vocabulary import CLASSES
from results_page import table

TITLE = "Speed of a build"
PARTS = ("speed",)
GUIDANCE = 4.0
BATCH = 20
CELLS = 60  # ten classes, base and five shifts
PROMPTS = [
    f"a photo of a {name}{where}"
    for name in CLASSES
    for where in ("", " in the grass", " in the snow", " at night")
]
Splits = dict[str, tuple[int, int]]  # processes and threads of each


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how much is built, and on what."""
    parser.add_argument(
        "--candidates", type=int, nargs="+", default=[17, 20, 50], help="of a cell, a row for each"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=1,
        help="builds a row, each between two runs of the bare models",
    )
    parser.add_argument("--loop-images", type=int, default=200)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--skip-memory", action="store_true")


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Build so many candidates, then so many more, and at the end measure memory."""
    os.environ.pop("OMP_NUM_THREADS", None)
    splits = better_splits(options)
    ways = {name: f"{processes} × {threads}" for name, (processes, threads) in splits.items()}
    titles = [
        "Candidates",
        "Images",
        "Bare",
        "Loop",
        "Build",
        "Whole command",
        "Build / bare",
        "Build / loop",
    ]
    opening = [
        f"`python scripts/bench.py build --candidates {' '.join(map(str, options.candidates))}"
        f" --rounds {options.rounds} --steps {options.steps}`, in one run."
    ]
    head = [
        f"Images a second at {options.steps} steps: bare models in batches ({ways['bare']}"
        " processes × threads), one"
        f" call an image ({ways['loop']}), and `counterfoil build` with {options.cores} workers.",
        "",
    ]
    rows: list[list[str]] = []
    lines: list[str] = []
    for candidates in options.candidates:
        rows.append(measured(candidates, splits, options))
        print(f"| {' | '.join(rows[-1])} |", flush=True)
        lines = [*head, *table(titles, [*rows, ["aim", *[""] * 5, "≥ 0.95", "≥ 1.8"]], words=0)]
        yield Page(opening, {"speed": lines})
    if not options.skip_memory:
        few = peak_memory(500, options.cores)
        many = peak_memory(5000, options.cores)
        more = (
            f"Peak memory at 500 and at 5000 images: {few:.2f} GB, {many:.2f} GB"
            f" ({many / few - 1:+.1%})."
        )
        yield Page(opening, {"speed": [*lines, "", more]})


def measured(candidates: int, splits: Splits, options: argparse.Namespace) -> list[str]:
    """Return a row of the table: bare models and builds of so many candidates by turns, on the
    better of the splits."""
    images = candidates * CELLS
    steps = options.steps
    bare_runs = [bare_run(images, steps, *splits["bare"], BATCH, True)]
    builds = []
    for _ in range(options.rounds):
        builds.append(build_run(candidates, steps, options.cores))
        bare_runs.append(bare_run(images, steps, *splits["bare"], BATCH, True))
    loop_images, loop_seconds = bare_run(options.loop_images, steps, *splits["loop"], 1, False)
    bare_images, bare_seconds = (sum(column) for column in zip(*bare_runs, strict=True))
    built, seconds, whole = (sum(column) for column in zip(*builds, strict=True))
    bare = bare_images / bare_seconds
    loop = loop_images / loop_seconds
    build = built / seconds
    row = [
        f"{candidates}",
        f"{built // options.rounds:,}",
        *(f"{rate:.2f}" for rate in (bare, loop, build)),
    ]
    return [*row, f"{built / whole:.2f}", f"{build / bare:.3f}", f"{build / loop:.2f}"]


def better_splits(options: argparse.Namespace) -> Splits:
    """Return the processes and threads by which the bare models, and the loop, are faster."""
    fastest = {}
    for name, batch in (("bare", BATCH), ("loop", 1)):
        images = max(options.loop_images, batch * options.cores)
        rates = {}
        for split in ((options.cores, 1), (1, options.cores)):
            done, seconds = bare_run(images, options.steps, *split, batch, False)
            rates[split] = done / seconds
            print(
                f"{name}, {split[0]} × {split[1]} threads: {rates[split]:.2f} images a second",
                flush=True,
            )
        fastest[name] = max(rates, key=lambda split: rates[split])
    return fastest


def bare(images: int, steps: int, threads: int, batch: int, ready: Any) -> None:
    """Render and score `images` images in batches (batch 1: the plain loop) and keep nothing."""
    import torch

    torch.set_num_threads(threads)
    from PIL import Image

    from counterfoil.models.clip import load_clip
    from counterfoil.models.diffusion import load_pipeline

    pipeline = load_pipeline("lab:sd", dtype="float32")
    clip = load_clip("lab:clip")
    ready.wait()
    for start in range(0, images, batch):
        prompts = [PROMPTS[(start + k) % len(PROMPTS)] for k in range(batch)]
        generators = [torch.Generator().manual_seed(start + k) for k in range(batch)]
        with torch.inference_mode():
            drawn = pipeline(
                prompts,
                generator=generators,
                num_inference_steps=steps,
                guidance_scale=GUIDANCE,
                output_type="pt",
            ).images
        levels = (drawn.permute(0, 2, 3, 1).numpy().clip(0, 1) * 255).round().astype("uint8")
        clip.embed_images([Image.fromarray(image) for image in levels], batch)
        if batch == 1:
            clip.embed_texts(prompts)


def bare_run(
    images: int, steps: int, processes: int, threads: int, batch: int, loading: bool
) -> tuple[int, float]:
    """Return images and seconds of `processes` processes of `threads` threads each, with or without
    loading models."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    context = multiprocessing.get_context("spawn")
    share = images // processes // batch * batch
    ready = context.Barrier(processes + 1)
    workers = [
        context.Process(target=bare, args=(share, steps, threads, batch, ready))
        for _ in range(processes)
    ]
    started = time.monotonic()
    for worker in workers:
        worker.start()
    ready.wait()
    if not loading:
        started = time.monotonic()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise SystemExit("a bare process failed")
    del os.environ["OMP_NUM_THREADS"]
    return share * processes, time.monotonic() - started


def build_run(candidates: int, steps: int, cores: int) -> tuple[int, float, float]:
    """Return the images of a build, its seconds from the first shard to the last, and those of the
    whole command."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "samples.candidates": candidates,
            "generator.steps": steps,
            "generator.guidance": GUIDANCE,
        }
        # By class name, as the bare models and the plain loop draw.
        settings |= {"tokens": "null", "generator.batch_size": BATCH}
        started = time.monotonic()
        done = subprocess.run(
            build_command(folder, cores, settings), check=True, stdout=subprocess.PIPE
        )
        whole = time.monotonic() - started
    result = json.loads(done.stdout)
    return result["images_made"], result["seconds"], whole


def peak_memory(images: int, cores: int) -> float:
    """Return the peak resident memory (GB) of a build's process tree, shared pages counted once a
    process."""
    with tempfile.TemporaryDirectory() as folder:
        command = build_command(
            folder, cores, {"samples.candidates": round(images / CELLS), "generator.steps": 1}
        )
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with watched_memory(process.pid) as most:
            code = process.wait()
        if code:
            raise SystemExit(f"the build of {images} images failed")
    return most[0] / 1e9


def build_command(folder: str, cores: int, settings: dict[str, Any]) -> list[str]:
    """Return the words that build `wardrobe-mini` with these settings, in shards of a hundred
    images."""
    command = [sys.executable, "-m", "counterfoil.cli.main", "build", "wardrobe-mini"]
    command += ["--out", f"{folder}/d", "--workers", str(cores), "--device", "cpu", "--json"]
    command += ["--set", "output.rows_per_shard=100"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    return command
