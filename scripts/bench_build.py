"""How close `counterfoil build` comes to the bare models, and how far ahead of a plain loop it is; ratios of one run.

    python scripts/bench_build.py [--images 1200] [--steps N] [--cores 2] [--skip-memory]

Three ways to make the same images with the same models, steps and machine:

- build: the whole `counterfoil build` (render, screen, encode, store, card), from its first shard to its last;
- bare:  UNet + VAE + CLIP in batches and nothing else, on the better of two splits of the cores
         (one process a core with one thread each, or one process with a thread a core);
- loop:  one pipeline call and one CLIP call an image, pipeline loaded once, on the better of the same splits.

The times of build and bare count from the start of the worker processes, models loading included, over the same
number of images. The loop is slow, so it makes fewer images and its time starts when its models are loaded,
which favours it.
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
PROMPTS = [
    f"a photo of a {name}{where}"
    for name in ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
    for where in ("", " in the grass", " in the snow", " at night")
]


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


def split_rate(images: int, steps: int, processes: int, threads: int, batch: int, loading: bool) -> float:
    """Images a second of `processes` processes with `threads` threads each, with or without models loading."""
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
    return share * processes / (time.monotonic() - started)


def build_rate(images: int, steps: int, cores: int) -> tuple[float, float]:
    """Images a second of `counterfoil build`: from first shard to last, and of the whole command."""
    candidates = -(-images // 60)  # ten classes, base and five shifts
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
    return result["images_made"] / result["seconds"], result["images_made"] / whole


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
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--loop-images", type=int, default=200)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--skip-memory", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table into scripts/RESULTS.md")
    arguments = parser.parse_args()
    images, steps, cores = arguments.images, arguments.steps, arguments.cores
    splits = {f"{cores} processes × 1 thread": (cores, 1), f"1 process × {cores} threads": (1, cores)}
    rates = {name: split_rate(images, steps, p, t, BATCH, True) for name, (p, t) in splits.items()}
    loops = {name: split_rate(arguments.loop_images, steps, p, t, 1, False) for name, (p, t) in splits.items()}
    os.environ.pop("OMP_NUM_THREADS", None)
    built, whole = build_rate(images, steps, cores)
    rows = [
        *((f"bare UNet + VAE + CLIP in batches, {name}", f"{rate:.2f}", "") for name, rate in rates.items()),
        *((f"one pipeline call and one CLIP call an image, {name}", f"{rate:.2f}", "") for name, rate in loops.items()),
        ("`counterfoil build`", f"{built:.2f}", ""),
        ("the whole command, models loading included", f"{whole:.2f}", ""),
        ("build / bare, best split", f"{built / max(rates.values()):.3f}", "≥ 0.92"),
        ("build / loop, best split", f"{built / max(loops.values()):.2f}", "≥ 1.8"),
    ]
    if not arguments.skip_memory:
        few, many = peak_memory(500, cores), peak_memory(5000, cores)
        found = f"{few:.2f} GB, {many:.2f} GB ({many / few - 1:+.1%})"
        rows.append(("peak memory at 500 and at 5000 images", found, "within 5 %"))
    table = [f"| {images:,} images at {steps} steps | Images a second | Aim |", "|:--|--:|--:|"]
    table += [f"| {' | '.join(row)} |" for row in rows]
    print("\n".join(table))
    if arguments.write:
        opening = [f"`python scripts/bench_build.py --images {images} --steps {steps}`, in one run."]
        results_page.write(RESULTS, "bench_build", "Speed of a build", opening, {"speed": table}, ["speed"])


if __name__ == "__main__":
    main()
