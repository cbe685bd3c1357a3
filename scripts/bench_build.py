"""How close `counterfoil build` comes to the bare models, and how far ahead of a plain loop it is; ratios of one run.

    python scripts/bench_build.py [--candidates 17 20 50] [--rounds 1] [--steps 12] [--cores 2] [--skip-memory]

A row for each number of candidates a cell, of ten classes under a base and five shifts, in shards of a hundred images
and batches of 20. Three ways to make as many images with the same models, steps and machine:

- build: the whole `counterfoil build` (render, screen, encode, store, card), from its first shard to its last;
- bare:  UNet + VAE + CLIP in full batches and nothing else, before and after each build of a round, on the better of
         two splits of the cores (one process a core with one thread each, or one process with a thread a core);
- loop:  one pipeline call and one CLIP call an image, pipeline loaded once, on the better of the same splits.

The times of build and bare count from the start of the worker processes, models loading included; bare renders whole
batches in every process, so a few images less. The loop is slow, so it makes fewer images and its time starts when its
models are loaded, which favours it.
Peak memory is that of the whole process tree, at 500 and at 5000 images (with few steps: memory does not
depend on them).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import results_page

RESULTS = Path(__file__).parent / "RESULTS.md"

GUIDANCE = 4.0
BATCH = 20
CELLS = 60  # ten classes, base and five shifts
PROMPTS = [
    f"a photo of a {name}{where}"
    for name in ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
    for where in ("", " in the grass", " in the snow", " at night")
]


Splits = dict[str, tuple[int, int]]  # processes and threads of each


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
                prompts, generator=generators, num_inference_steps=steps, guidance_scale=GUIDANCE, output_type="pt"
            ).images
        levels = (drawn.permute(0, 2, 3, 1).numpy().clip(0, 1) * 255).round().astype("uint8")
        clip.embed_images([Image.fromarray(image) for image in levels], batch)
        if batch == 1:
            clip.embed_texts(prompts)


def bare_run(images: int, steps: int, processes: int, threads: int, batch: int, loading: bool) -> tuple[int, float]:
    """Images and seconds of `processes` processes with `threads` threads each, with or without models loading."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    context = multiprocessing.get_context("spawn")
    share = images // processes // batch * batch
    ready = context.Barrier(processes + 1)
    workers = [context.Process(target=bare, args=(share, steps, threads, batch, ready)) for _ in range(processes)]
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
    """Images of `counterfoil build`, its seconds from first shard to last, and those of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "counterfoil.cli.main", "build", "wardrobe-mini", "--out", f"{folder}/d"]
        command += ["--set", "tokens=null"]  # by class name, as the bare models and the plain loop draw
        command += ["--workers", str(cores), "--device", "cpu", "--json"]
        settings = {"samples.candidates": candidates, "generator.steps": steps, "generator.guidance": GUIDANCE}
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        command += ["--set", f"generator.batch_size={BATCH}", "--set", "output.rows_per_shard=100"]
        started = time.monotonic()
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        whole = time.monotonic() - started
    return result["images_made"], result["seconds"], whole


def measured(candidates: int, splits: Splits, arguments: argparse.Namespace) -> list[str]:
    """A row of the table: bare models and builds of so many candidates by turns, on the better of the splits."""
    images, steps, cores = candidates * CELLS, arguments.steps, arguments.cores
    bare_images, bare_seconds = bare_run(images, steps, *splits["bare"], BATCH, True)
    built, seconds, whole = 0, 0.0, 0.0
    for _ in range(arguments.rounds):
        done = build_run(candidates, steps, cores)
        built, seconds, whole = built + done[0], seconds + done[1], whole + done[2]
        again = bare_run(images, steps, *splits["bare"], BATCH, True)
        bare_images, bare_seconds = bare_images + again[0], bare_seconds + again[1]
    loop_images, loop_seconds = bare_run(arguments.loop_images, steps, *splits["loop"], 1, False)
    bare, loop, build = bare_images / bare_seconds, loop_images / loop_seconds, built / seconds
    row = [f"{candidates}", f"{built // arguments.rounds:,}", *(f"{rate:.2f}" for rate in (bare, loop, build))]
    row += [f"{built / whole:.2f}", f"{build / bare:.3f}", f"{build / loop:.2f}"]
    print(f"| {' | '.join(row)} |", flush=True)
    return row


def better_splits(arguments: argparse.Namespace) -> Splits:
    """The processes and threads by which the bare models, and the loop, are faster."""
    cores, found = arguments.cores, {}
    for name, batch in (("bare", BATCH), ("loop", 1)):
        images = max(arguments.loop_images, batch * cores)
        rates = {}
        for split in ((cores, 1), (1, cores)):
            done, seconds = bare_run(images, arguments.steps, *split, batch, False)
            rates[split] = done / seconds
            print(f"{name}, {split[0]} × {split[1]} threads: {rates[split]:.2f} images a second", flush=True)
        found[name] = max(rates, key=lambda split: rates[split])
    return found


def peak_memory(images: int, cores: int) -> float:
    """Peak resident memory (GB) of a build's process tree, shared pages counted once a process."""
    import psutil

    peak = 0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "counterfoil.cli.main", "build", "wardrobe-mini", "--out", f"{folder}/d"]
        command += ["--workers", str(cores), "--device", "cpu", "--json", "--set", "generator.steps=1"]
        command += ["--set", f"samples.candidates={round(images / 60)}", "--set", "output.rows_per_shard=100"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        done = threading.Event()

        def watch() -> None:
            nonlocal peak
            root = psutil.Process(process.pid)
            while not done.wait(0.1):
                total = 0
                for member in [root, *root.children(recursive=True)]:
                    try:
                        total += member.memory_info().rss
                    except psutil.NoSuchProcess:
                        continue
                peak = max(peak, total)

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        done.set()
        watcher.join()
        if code:
            raise SystemExit(f"the build of {images} images failed")
    return peak / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, nargs="+", default=[17, 20, 50], help="of a cell, a row for each")
    parser.add_argument("--rounds", type=int, default=1, help="builds a row, each between two runs of the bare models")
    parser.add_argument("--loop-images", type=int, default=200)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--skip-memory", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table into scripts/RESULTS.md")
    arguments = parser.parse_args()
    os.environ.pop("OMP_NUM_THREADS", None)
    splits = better_splits(arguments)
    rows = [measured(candidates, splits, arguments) for candidates in arguments.candidates]
    table = [
        "| Candidates | Images | Bare | Loop | Build | Whole command | Build / bare | Build / loop |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "| aim | | | | | | ≥ 0.95 | ≥ 1.8 |",
    ]
    ways = {name: f"{processes} × {threads}" for name, (processes, threads) in splits.items()}
    told = [
        f"Images a second at {arguments.steps} steps: bare models in batches ({ways['bare']} processes × threads), one"
        f" call an image ({ways['loop']}), and `counterfoil build` with {arguments.cores} workers.",
        "",
        *table,
    ]
    if not arguments.skip_memory:
        few, many = peak_memory(500, arguments.cores), peak_memory(5000, arguments.cores)
        told += ["", f"Peak memory at 500 and at 5000 images: {few:.2f} GB, {many:.2f} GB ({many / few - 1:+.1%})."]
    print("\n".join(told))
    if arguments.write:
        chosen = " ".join(map(str, arguments.candidates))
        opening = [
            f"`python scripts/bench_build.py --candidates {chosen} --rounds {arguments.rounds} --steps"
            f" {arguments.steps}`, in one run."
        ]
        results_page.write(RESULTS, "bench_build", "Speed of a build", opening, {"speed": told}, ["speed"])


if __name__ == "__main__":
    main()
