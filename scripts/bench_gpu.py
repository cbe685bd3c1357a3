"""How much of a GPU a build uses: true architectures with random weights, in one run and without a network.

    python scripts/bench_gpu.py [--models sd15 xl] [--seconds 30] [--steps 30] [--compile] [--write]
    python scripts/bench_gpu.py --tiny          # on a CPU, in two minutes: that everything runs, and no more

Stable Diffusion 1.5 at 512 pixels and XL at 1024, screened by ViT-H-14, are made from their published sizes
(`gpu_bench/architectures.py`); their folders take 6 and 11 GB of the temporary folder (`--folder` names another).
Three ways to the same images, in bfloat16 on a GPU:

- build:  the whole `counterfoil build` (render, screen, encode, store), from its first batch to its last receipt;
- bare:   UNet, VAE and CLIP in batches and nothing else;
- single: one call of diffusers' pipeline, one CLIP call and one PNG an image, as public code does it.

Loading and the first call of each are not counted. The share of the peak counts the operations of UNet, VAE and CLIP
(by torch's own counter) against the GPU's dense bf16 products. Aims: build ≥ 0.95 of bare, and ≥ 4 times single.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import results_page
from gpu_bench import architectures, flops
from gpu_bench.architectures import ARCHITECTURES, Architecture
from gpu_bench.flops import dense_bf16_peak
from gpu_bench.ways import GUIDANCE, Settings, as_json

SCRIPTS = Path(__file__).resolve().parent
RESULTS = SCRIPTS / "RESULTS.md"
# The order matters: how fast the bare models are says how many images fill the build's seconds.
ORDER = ("bare", "build", "single")


def measure(way: str, settings: Settings) -> dict[str, float]:
    """One way, in a process of its own."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(SCRIPTS), *(path for path in sys.path if path)])
    command = [sys.executable, "-m", "gpu_bench.ways", way]
    began = time.monotonic()
    done = subprocess.run(command, input=as_json(settings), stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{way} of {settings.folder} failed")
    print(f"{way}: {done.stdout.strip()} in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return json.loads(done.stdout)


def passes(architecture: Architecture, steps: int) -> int:
    """How often the UNet is asked about an image: twice a step, and some schedulers repeat one."""
    import diffusers

    name, settings = architecture.scheduler
    scheduler: Any = getattr(diffusers, name)(**settings)
    scheduler.set_timesteps(steps)
    return 2 * len(scheduler.timesteps)


def table(architecture: Architecture, settings: Settings, clip: dict[str, Any], device: str, title: str) -> list[str]:
    """Make the folder, measure the three ways, and say what came out."""
    import torch

    from counterfoil.models.devices import resolve_dtype

    folder = Path(settings.folder)
    began = time.monotonic()
    architectures.write_pipeline(
        architecture, folder / "pipeline", settings.device, resolve_dtype("auto", settings.device)
    )
    architectures.write_clip(clip, folder / "clip", settings.device)
    if settings.device.startswith("cuda"):
        torch.cuda.empty_cache()
    print(f"{architecture.title}: weights in {time.monotonic() - began:.0f} s", file=sys.stderr)
    found: dict[str, dict[str, float]] = {}
    for way in ORDER:
        if way == "build":
            batches = max(4, round(found["bare"]["rate"] * settings.seconds / settings.batch))
            settings = replace(settings, images=settings.batch * (batches + batches % 2))
        found[way] = measure(way, settings)
    an_image = flops.count(architecture, clip).image(passes(architecture, settings.steps))
    peak = dense_bf16_peak(device)

    def row(way: str, name: str) -> str:
        rate = found[way]["rate"]
        share = "–" if peak is None else f"{an_image * rate / (peak[0] * 1e12):.1%}"
        memory = f"{found[way]['memory']:.1f} GB" if "memory" in found[way] else ""
        return f"| {name} | {rate:.3g} | {share} | {memory} | |"

    rates = {way: found[way]["rate"] for way in ORDER}
    return [
        f"### {title}",
        "",
        f"On {device}, batches of {settings.batch}, {settings.steps} steps at guidance {GUIDANCE:g}"
        f"{', compiled' if settings.compiled else ''}; {an_image / 1e12:.3g} TFLOP an image; "
        + ("no peak is known for this device." if peak is None else f"peak {peak[0]:g} TFLOPS ({peak[1]})."),
        "",
        "| | Images a second | Of the dense bf16 peak | Memory | Aim |",
        "|:--|--:|--:|--:|--:|",
        row("bare", "bare UNet + VAE + CLIP in batches"),
        row("single", "one pipeline call, one CLIP call and one PNG an image"),
        row("build", f"`counterfoil build` of {settings.images} images, from first batch to last receipt"),
        f"| the whole build, models loading and closing included | {found['build']['whole_rate']:.3g} | | | |",
        f"| build / bare | {rates['build'] / rates['bare']:.3f} | | | ≥ 0.95 |",
        f"| build / one call an image | {rates['build'] / rates['single']:.2f} | | | ≥ 4 |",
        "",
        f"A stored image takes {found['build']['bytes_an_image'] / 1e3:.0f} kB.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=sorted(ARCHITECTURES), default=sorted(ARCHITECTURES))
    parser.add_argument("--seconds", type=float, default=30.0, help="of each way, after loading")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, help="images a batch; default: the architecture's own")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", action="store_true", help="the build and the bare models with compiled blocks")
    parser.add_argument("--tiny", action="store_true", help="few channels and two steps: for a CPU")
    parser.add_argument("--folder", type=Path, help="where the weights lie for a while; default: a temporary folder")
    parser.add_argument("--write", action="store_true", help="put the tables into scripts/RESULTS.md")
    arguments = parser.parse_args()
    import torch

    from counterfoil.models.devices import resolve_device

    resolved = resolve_device(arguments.device)
    if not resolved.startswith("cuda") and not arguments.tiny:
        raise SystemExit("These architectures take a GPU; on a CPU: --tiny")
    device = torch.cuda.get_device_name(resolved) if resolved.startswith("cuda") else "a CPU"
    clip = architectures.tiny_clip_sizes() if arguments.tiny else architectures.clip_sizes()
    tables: dict[str, list[str]] = {}
    for name in arguments.models:
        architecture = ARCHITECTURES[name]
        architecture = architectures.tiny(architecture) if arguments.tiny else architecture
        title = f"{architecture.title} at {architecture.side}" + (", few channels" if arguments.tiny else "")
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            settings = Settings(
                folder=folder,
                device=resolved,
                steps=2 if arguments.tiny else arguments.steps,
                batch=arguments.batch or architecture.batch,
                seconds=arguments.seconds,
                compiled=arguments.compile,
            )
            tables[name] = table(architecture, settings, clip, device, title)
        print("\n".join(tables[name]) + "\n", flush=True)
    if arguments.write:
        if arguments.tiny:
            raise SystemExit("--tiny measures nothing worth writing down")
        said = f" --steps {arguments.steps}{' --compile' if arguments.compile else ''}"
        opening = [f"`python scripts/bench_gpu.py --models {' '.join(arguments.models)}{said}`, each model in one run."]
        script = "bench_gpu compiled" if arguments.compile else "bench_gpu"
        results_page.write(RESULTS, script, "How much of a GPU a build uses", opening, tables, sorted(ARCHITECTURES))


if __name__ == "__main__":
    main()
