"""How much of a GPU Counterfoil uses: true architectures with random weights, in one run and
without a network.

    python scripts/bench.py gpu [--parts sd15 killed …] [--seconds 15] [--steps 30] [--compile]
    [--write [FILE]] python scripts/bench.py gpu --tiny          # on a CPU, in two minutes: that
    everything runs, and no more

Stable Diffusion 1.5 at 512 pixels and XL at 1024 (a third of the steps), screened by ViT-H-14, are
made from their published sizes (`gpu_bench/architectures.py`); their folders take 16 GB of the
temporary folder (`--folder` names another). The parts, in this order:

- sd15, xl: three ways to the same images, in bfloat16 on a GPU: the whole `counterfoil build`
  (render, screen, encode, store) from its first batch to its last receipt; UNet, VAE and CLIP in
  batches and nothing else; one call of the pipeline of diffusers, one CLIP call and one PNG an
  image, as public code does it;
- killed: the build of sd15 killed behind its first receipt and resumed, compared byte by byte with
  the one before;
- tokens: textual inversion of four tokens together, with sd15;
- clip: embeddings of finished images as the screen makes them, and the bare model;
- evaluate: a ResNet-50 and a ViT-B/16 of timm, each in a whole `counterfoil evaluate`, and bare.

Loading and the first call of each are not counted. The share of the peak counts the operations of
UNet, VAE and CLIP (by torch's own counter) against the GPU's dense bf16 products. With `--write`
each row is written when it is there, so a run that is killed leaves the rows it had. A part that
fails says so in its table, and the others run.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benches import Page
from benches.processes import SCRIPTS, json_of
from gpu_bench import architectures, flops
from gpu_bench.architectures import ARCHITECTURES, Architecture
from gpu_bench.flops import dense_bf16_peak
from gpu_bench.ways import CLASSIFIERS, GUIDANCE, Figures, Settings, as_json
from results_page import table

TITLE = "How much of a GPU is used"
# In this order: the most informative part first, the longest last.
TITLES = {
    "sd15": "Stable Diffusion 1.5",
    "killed": "A build that is killed and resumed",
    "tokens": "Class tokens",
    "clip": "CLIP",
    "evaluate": "Classifiers",
    "xl": "Stable Diffusion XL",
}
PARTS = tuple(TITLES)
HEAD = ["", "A second", "Of the dense bf16 peak", "Memory", "Aim"]
Row = tuple[str, ...]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what is measured, for how long, and on which device."""
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each way, after loading")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, help="images a batch; default: the architecture's own")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--compile", action="store_true", help="the build and the bare models with compiled blocks"
    )
    parser.add_argument("--tiny", action="store_true", help="few channels and two steps: for a CPU")
    parser.add_argument(
        "--folder", type=Path, help="where the weights lie for a while; default: a temporary folder"
    )


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Measure a part after another; a page for each row."""
    import torch

    from counterfoil.models.devices import resolve_device

    resolved = resolve_device(options.device)
    if not resolved.startswith("cuda") and not options.tiny:
        raise SystemExit("These architectures take a GPU; on a CPU: --tiny")
    if options.tiny and options.write == SCRIPTS / "RESULTS.md":
        raise SystemExit(
            "--tiny measures nothing worth writing down there; --write FILE takes another file"
        )
    device = torch.cuda.get_device_name(resolved) if resolved.startswith("cuda") else "a CPU"
    clip = architectures.tiny_clip_sizes() if options.tiny else architectures.clip_sizes()
    flags = (
        " --steps"
        f" {options.steps}{' --compile' if options.compile else ''}{' --tiny' if options.tiny else ''}"
    )
    opening = [
        f"`python scripts/bench.py gpu --parts {' '.join(options.parts)}{flags}`, each part in one"
        " run."
    ]
    tables: dict[str, list[str]] = {}
    failed = False
    present = ""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for part in sorted(options.parts, key=PARTS.index):
            name = "xl" if part == "xl" else "sd15"
            architecture = (
                architectures.tiny(ARCHITECTURES[name]) if options.tiny else ARCHITECTURES[name]
            )
            settings = Settings(
                folder=folder,
                device=resolved,
                side=architecture.side,
                steps=2 if options.tiny else options.steps // (3 if name == "xl" else 1),
                batch=options.batch or architecture.batch,
                seconds=options.seconds,
                compiled=options.compile,
                tiny=options.tiny,
            )
            if name != present:
                for stale in ("pipeline", "dataset", "killed"):
                    shutil.rmtree(settings.path(stale), ignore_errors=True)
                write_weights(architecture, clip, settings)
                present = name
            if part in ARCHITECTURES:
                operations = flops.count(architecture, clip).image(
                    passes(architecture, settings.steps)
                )
                title = conditions(architecture, operations, settings, device)
                measured = drawn(operations, settings, device)
            else:
                title = [f"### {TITLES[part]}"]
                measured = others(part, settings)
            rows: list[Row] = []
            for row in _until_it_fails(measured):
                rows.append(row)
                failed = failed or row[0].startswith("**failed")
                tables[part] = [*title, "", *table(HEAD, rows)]
                yield Page(
                    opening, tables, variant="compiled" if options.compile else "", failed=failed
                )


def _until_it_fails(measured: Iterator[Row]) -> Iterator[Row]:
    try:
        yield from measured
    except subprocess.CalledProcessError as error:  # which has printed why
        yield (f"**failed: {error.cmd[3]}**", "", "", "", "")


def figures_of(way: str, settings: Settings) -> Figures:
    """Return what one way measures, in a process of its own."""
    began = time.monotonic()
    figures = json_of("gpu_bench.ways", way, given=as_json(settings), HF_HUB_OFFLINE="1")
    print(f"{way}: {figures} in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return figures


def passes(architecture: Architecture, steps: int) -> int:
    """Return how often the UNet is called for an image: twice a step, and some schedulers repeat a
    step."""
    import diffusers

    name, settings = architecture.scheduler
    scheduler: Any = getattr(diffusers, name)(**settings)
    scheduler.set_timesteps(steps)
    return 2 * len(scheduler.timesteps)


def write_weights(architecture: Architecture, clip: dict[str, Any], settings: Settings) -> None:
    """Write the folders of the pipeline and of CLIP, if they do not exist yet."""
    import torch

    from counterfoil.models.devices import resolve_dtype

    began = time.monotonic()
    dtype = resolve_dtype("auto", settings.device)
    architectures.write_pipeline(architecture, settings.path("pipeline"), settings.device, dtype)
    if not settings.path("clip").exists():
        architectures.write_clip(clip, settings.path("clip"), settings.device)
    if settings.device.startswith("cuda"):
        torch.cuda.empty_cache()
    print(f"{architecture.title}: weights in {time.monotonic() - began:.0f} s", file=sys.stderr)


def drawn(operations: int, settings: Settings, device: str) -> Iterator[Row]:
    """Yield rows of the three ways to the same images. The rate of the bare models decides a
    build's images."""
    peak = dense_bf16_peak(device)

    def row(name: str, figures: Figures) -> Row:
        rate = figures["rate"]
        share = "–" if peak is None else f"{operations * rate / (peak[0] * 1e12):.1%}"
        return (f"{name}, images", f"{rate:.3g}", share, memory(figures), "")

    bare = figures_of("bare", settings)
    yield row("bare UNet + VAE + CLIP in batches", bare)
    batches = max(4, round(bare["rate"] * settings.seconds / settings.batch))
    build = figures_of("build", replace(settings, images=settings.batch * (batches + batches % 2)))
    yield row("`counterfoil build`, from first batch to last receipt", build)
    size = f"{build['bytes_an_image'] / 1e3:.0f} kB an image"
    yield (
        f"the whole build, models loading and closing included ({size})",
        f"{build['whole_rate']:.3g}",
        "",
        "",
        "",
    )
    yield ("build / bare", f"{build['rate'] / bare['rate']:.3f}", "", "", "≥ 0.95")
    single = figures_of("single", settings)
    yield row("one pipeline call, one CLIP call and one PNG an image", single)
    yield ("build / one call an image", f"{build['rate'] / single['rate']:.2f}", "", "", "≥ 4")


def others(part: str, settings: Settings) -> Iterator[Row]:
    """Yield the rows that do not compare ways to images."""
    figures = figures_of(part, replace(settings, images=8 * settings.batch))
    if part == "killed":
        progress = (
            f"{figures['receipts']:.0f} of {figures['shards']:.0f} shards were done when it"
            " was killed"
        )
        same = (
            f"{figures['files'] - figures['different']:.0f} of {figures['files']:.0f} files are"
            " the same"
        )
        yield (f"{progress}; {same}", "", "", "", "all")
    elif part == "tokens":
        name = "`counterfoil tokens`, four classes together, steps"
        yield (name, f"{figures['rate']:.3g}", "", memory(figures), "")
        yield (
            "four tokens of 3,000 steps, minutes in all",
            f"{3000 / figures['rate'] / 60:.3g}",
            "",
            "",
            "",
        )
    elif part == "clip":
        yield (
            "bare CLIP on prepared batches, images",
            f"{figures['bare']:.4g}",
            "",
            memory(figures),
            "",
        )
        yield (
            "CLIP as the screen calls it, on finished images",
            f"{figures['rate']:.4g}",
            "",
            "",
            "",
        )
    else:
        for name in CLASSIFIERS.values() if settings.tiny else CLASSIFIERS:
            yield (
                f"bare {name} on prepared batches, images",
                f"{figures[f'{name}, bare']:.4g}",
                "",
                "",
                "",
            )
            yield (
                f"`counterfoil evaluate` of {name}, images",
                f"{figures[name]:.4g}",
                "",
                memory(figures),
                "",
            )


def memory(figures: Figures) -> str:
    return f"{figures['memory']:.1f} GB" if "memory" in figures else ""


def conditions(
    architecture: Architecture, operations: int, settings: Settings, device: str
) -> list[str]:
    """Return the lines above a table of ways to images."""
    peak = dense_bf16_peak(device)
    return [
        f"### {architecture.title} at"
        f" {architecture.side}{', few channels' if settings.tiny else ''}",
        "",
        f"On {device}, batches of {settings.batch}, {settings.steps} steps at guidance {GUIDANCE:g}"
        f"{', compiled' if settings.compiled else ''}; {operations / 1e12:.3g} TFLOP an image; "
        + (
            "no peak is known for this device."
            if peak is None
            else f"peak {peak[0]:g} TFLOPS ({peak[1]})."
        ),
    ]
