"""Three ways to the same images on one device: the build, the bare models in batches, one call of a pipeline an image.

Each is a process of its own (`python -m gpu_bench.ways WAY`, settings as JSON on its input, its figures on its output),
so that none finds another's memory or settings. What loads and warms up is not counted, in none of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

GUIDANCE = 7.5
NAMES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


@dataclass(frozen=True)
class Settings:
    """What all ways share. `folder` holds `pipeline` and `clip`; `images` are the build's, `seconds` the others'."""

    folder: str
    device: str
    steps: int
    batch: int
    seconds: float
    compiled: bool
    images: int = 0


def bare(settings: Settings) -> dict[str, float]:
    """UNet, VAE and CLIP in batches and nothing else: prompts are encoded, images stay there, and none is stored."""
    import torch

    from counterfoil.models.clip import load_clip
    from counterfoil.models.devices import computing_on
    from counterfoil.models.diffusion import load_pipeline

    with computing_on(settings.device), torch.inference_mode():
        pipeline = load_pipeline(
            f"local-dir:{settings.folder}/pipeline", device=settings.device, compiled=settings.compiled
        )
        clip = load_clip(f"local-dir:{settings.folder}/clip", device=settings.device)
        side = clip.module.visual.image_size
        encoded = pipeline.encode_prompt(
            prompt=f"a photo of a {NAMES[0]}", device=pipeline.device, num_images_per_prompt=1,
            do_classifier_free_guidance=True,
        )  # fmt: skip
        names = ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds")
        arguments = {
            name: part.repeat(settings.batch, *(1,) * (part.ndim - 1))
            for name, part in zip(names, encoded, strict=False)
        }

        def batch(number: int) -> int:
            noise = [torch.Generator().manual_seed(number * settings.batch + place) for place in range(settings.batch)]
            drawn = pipeline(
                **arguments, generator=noise, num_inference_steps=settings.steps, guidance_scale=GUIDANCE,
                output_type="pt",
            ).images  # fmt: skip
            smaller = torch.nn.functional.interpolate(drawn.float(), size=side, mode="bilinear", antialias=True)
            clip.module.encode_image(smaller)
            return settings.batch

        return {"rate": _rate(batch, settings)} | _memory(settings.device)


def single(settings: Settings) -> dict[str, float]:
    """One call of diffusers' own pipeline, one of CLIP for image and caption, and one PNG for each image."""
    import diffusers
    import torch

    from counterfoil.models.clip import load_clip
    from counterfoil.models.devices import resolve_dtype

    dtype = resolve_dtype("auto", settings.device)
    opener: Any = diffusers.DiffusionPipeline
    pipeline = opener.from_pretrained(f"{settings.folder}/pipeline", dtype=dtype).to(settings.device)
    pipeline.set_progress_bar_config(disable=True)
    clip = load_clip(f"local-dir:{settings.folder}/clip", device=settings.device)

    def image(number: int) -> int:
        prompt = f"a photo of a {NAMES[number % len(NAMES)]}"
        noise = torch.Generator(settings.device).manual_seed(number)
        drawn = pipeline(prompt, generator=noise, num_inference_steps=settings.steps, guidance_scale=GUIDANCE).images[0]
        with torch.inference_mode():
            seen = clip.module.encode_image(clip.preprocess(drawn)[None].to(settings.device))
            said = clip.module.encode_text(clip.tokenizer([prompt]).to(settings.device))
            torch.nn.functional.cosine_similarity(seen, said).item()
        drawn.save(io.BytesIO(), "PNG")
        return 1

    return {"rate": _rate(image, settings)} | _memory(settings.device)


def whole(settings: Settings) -> dict[str, float]:
    """`counterfoil build`: from its first batch to its last receipt; and the whole call, models loading included."""
    from counterfoil.building import BuildProgress, build
    from counterfoil.progress import listening

    began = time.monotonic()
    seen: list[tuple[float, int]] = []

    def hear(event: object) -> None:
        if isinstance(event, BuildProgress):
            seen.append((time.monotonic(), event.images_done))

    with listening(hear):
        result = build(
            "wardrobe-mini",
            Path(settings.folder) / "dataset",
            overrides=_recipe(settings),
            device=settings.device,
            workers=1,
        )
    ended = time.monotonic()
    first = next(moment for moment in seen if moment[1])
    last = seen[-1]
    files = list((Path(settings.folder) / "dataset").rglob("*.parquet"))
    return {
        "rate": (last[1] - first[1]) / (last[0] - first[0]),
        "whole_rate": result.images_made / (ended - began),
        "bytes_an_image": sum(file.stat().st_size for file in files) / result.images_made,
    }


def _recipe(settings: Settings) -> list[str]:
    """One shift of a few classes, whose cells fill whole batches: what a plan pads is `bench_build`'s to measure."""
    batches = settings.images // settings.batch
    classes = max(count for count in range(1, len(NAMES) + 1) if batches % count == 0)
    listed = [f"{{id: '0{place}', name: {name}, source_label: {place}}}" for place, name in enumerate(NAMES[:classes])]
    shifts = ("in_the_grass", "in_the_snow", "at_night", "red", "pencil_sketch")
    return [
        f"source.classes=[{', '.join(listed)}]",
        "tokens=null",
        *(f"prompts.shifts.{shift}=null" for shift in shifts),
        f"generator={{model: 'local-dir:{settings.folder}/pipeline', steps: {settings.steps}, guidance: {GUIDANCE},"
        f" batch_size: {settings.batch}, dtype: auto, compile: {json.dumps(settings.compiled)}}}",
        f"screen={{model: 'local-dir:{settings.folder}/clip', object_threshold: -1, shift_threshold: -1,"
        " keep: thresholds, judge: null}",
        f"samples.candidates={settings.images // classes}",
        f"output.rows_per_shard={5 * settings.batch}",
    ]


def _rate(draw: Callable[[int], int], settings: Settings) -> float:
    """Images a second of `draw`, called for so many seconds after one call that is not counted, and twice at least."""
    draw(0)
    _wait(settings.device)
    began, made, number = time.monotonic(), 0, 1
    while number < 3 or time.monotonic() - began < settings.seconds:
        made += draw(number)
        number += 1
        _wait(settings.device)
    return made / (time.monotonic() - began)


def _wait(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def _memory(device: str) -> dict[str, float]:
    import torch

    return {"memory": torch.cuda.max_memory_allocated(device) / 1e9} if device.startswith("cuda") else {}


WAYS = {"build": whole, "bare": bare, "single": single}


def main() -> None:
    settings = Settings(**json.load(sys.stdin))
    with _said_elsewhere():
        figures = WAYS[sys.argv[1]](settings)
    print(json.dumps(figures))


@contextlib.contextmanager
def _said_elsewhere() -> Iterator[None]:
    """What libraries print goes to the other stream: this one is for the figures."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def as_json(settings: Settings) -> str:
    return json.dumps(asdict(settings))


if __name__ == "__main__":
    main()
