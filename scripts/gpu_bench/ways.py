"""What is measured on one device: ways to the same images, and what else Counterfoil asks of a GPU.

Each is a process of its own (`python -m gpu_bench.ways WAY`, settings as JSON on its input, its
figures on its output), so that none finds another's memory or settings. What loads and warms up is
not counted, in none of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from counterfoil.lab.vocabulary import CLASSES

GUIDANCE = 7.5
NAMES = tuple(sorted(CLASSES))
# timm's names of what `evaluate` scores, and of what replaces them on a CPU.
CLASSIFIERS = {"resnet50": "test_resnet", "vit_base_patch16_224": "test_vit"}


@dataclass(frozen=True)
class Settings:
    """What all ways share. `folder` holds `pipeline`, `clip` and `photographs`; `images` are the
    build's."""

    folder: str
    device: str
    side: int
    steps: int
    batch: int
    seconds: float
    compiled: bool
    tiny: bool
    images: int = 0

    def path(self, name: str) -> Path:
        return Path(self.folder) / name

    def clip(self) -> Any:
        from counterfoil.models.clip import load_clip

        return load_clip(f"local-dir:{self.folder}/clip", device=self.device)


Figures = dict[str, float]


def bare(settings: Settings) -> Figures:
    """Run UNet, VAE and CLIP in batches and nothing else: prompts are encoded, images stay on the
    device, none is stored."""
    import torch

    from counterfoil.models.arithmetic import computing_on
    from counterfoil.models.diffusion import load_pipeline

    with computing_on(settings.device), torch.inference_mode():
        pipeline = load_pipeline(
            f"local-dir:{settings.folder}/pipeline",
            device=settings.device,
            compiled=settings.compiled,
        )
        clip = settings.clip()
        side = clip.module.visual.image_size
        encoded = pipeline.encode_prompt(
            prompt=f"a photo of a {NAMES[0]}", device=pipeline.device, num_images_per_prompt=1,
            do_classifier_free_guidance=True,
        )  # fmt: skip
        names = (
            "prompt_embeds",
            "negative_prompt_embeds",
            "pooled_prompt_embeds",
            "negative_pooled_prompt_embeds",
        )
        arguments = {
            name: part.repeat(settings.batch, *(1,) * (part.ndim - 1))
            for name, part in zip(names, encoded, strict=False)
        }

        def batch(number: int) -> int:
            noise = [
                torch.Generator().manual_seed(number * settings.batch + index)
                for index in range(settings.batch)
            ]
            drawn = pipeline(
                **arguments, generator=noise, num_inference_steps=settings.steps, guidance_scale=GUIDANCE,
                output_type="pt",
            ).images  # fmt: skip
            smaller = torch.nn.functional.interpolate(
                drawn.float(), size=side, mode="bilinear", antialias=True
            )
            clip.module.encode_image(smaller)
            return settings.batch

        return {"rate": _rate(batch, settings)} | _memory(settings.device)


def single(settings: Settings) -> Figures:
    """Call diffusers' own pipeline, CLIP for image and caption, and save a PNG, once for each
    image."""
    import diffusers
    import torch

    from counterfoil.models.devices import resolve_dtype

    dtype = resolve_dtype("auto", settings.device)
    opener: Any = diffusers.DiffusionPipeline
    pipeline = opener.from_pretrained(f"{settings.folder}/pipeline", dtype=dtype).to(
        settings.device
    )
    pipeline.set_progress_bar_config(disable=True)
    clip = settings.clip()

    def image(number: int) -> int:
        prompt = f"a photo of a {NAMES[number % len(NAMES)]}"
        noise = torch.Generator(settings.device).manual_seed(number)
        drawn = pipeline(
            prompt, generator=noise, num_inference_steps=settings.steps, guidance_scale=GUIDANCE
        ).images[0]
        with torch.inference_mode():
            seen = clip.module.encode_image(clip.preprocess(drawn)[None].to(settings.device))
            text_vector = clip.module.encode_text(clip.tokenizer([prompt]).to(settings.device))
            torch.nn.functional.cosine_similarity(seen, text_vector).item()
        drawn.save(io.BytesIO(), "PNG")
        return 1

    return {"rate": _rate(image, settings)} | _memory(settings.device)


def whole(settings: Settings) -> Figures:
    """Run `counterfoil build`: from its first batch to its last receipt; and the whole call, with
    loading."""
    from counterfoil.building.build_dataset import BuildProgress, build

    began = time.monotonic()
    with _heard(BuildProgress, lambda event: event.images_done) as seen:
        result = build(
            _recipe(settings), settings.path("dataset"), device=settings.device, workers=1
        )
    files = list(settings.path("dataset").rglob("*.parquet"))
    return {
        "rate": _pace(seen),
        "whole_rate": result.images_made / (time.monotonic() - began),
        "bytes_an_image": sum(file.stat().st_size for file in files) / result.images_made,
    }


def killed(settings: Settings) -> Figures:
    """Kill the build above, or a short one, after its first receipt, and begin again: count how
    many files differ."""
    if not settings.path("dataset").exists():
        whole(settings)
    again = settings.path("killed")
    recipe = settings.path("recipe.yaml")
    command = [sys.executable, "-m", "counterfoil.cli.main", "build", str(recipe)]
    command += ["--out", str(again), "--device", settings.device, "--workers", "1"]
    first = subprocess.Popen(command, stdout=sys.stderr, start_new_session=True)
    while first.poll() is None and not any(again.glob("receipts/*.json")):
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    receipts = len(list(again.glob("receipts/*.json")))
    began = time.monotonic()
    subprocess.run(command, stdout=sys.stderr, check=True)
    made = _digests(again)
    expected = _digests(settings.path("dataset"))
    shards = len(list(again.glob("receipts/*.json")))
    if not 0 < receipts < shards:
        raise SystemExit(f"{receipts} of {shards} receipts were there when the build was killed")
    return {
        "receipts": receipts,
        "shards": shards,
        "files": len(expected),
        "different": sum(made.get(path) != expected.get(path) for path in {*made, *expected}),
        "seconds": time.monotonic() - began,
    }


def tokens(settings: Settings) -> Figures:
    """Run `counterfoil tokens` of four classes together: steps a second after the first, latents
    encoded before."""
    from counterfoil import learn_tokens
    from counterfoil.generate.tokens.learn_tokens import TokenProgress

    steps = 4 if settings.tiny else 60
    recipe = _recipe(settings, classes=NAMES[:4], learn={"steps": steps, "classes_in_flight": 4})
    with _heard(TokenProgress, lambda event: event.steps_done) as seen:
        learn_tokens(recipe, settings.path("tokens"), device=settings.device, workers=1)
    return {"rate": _pace(seen)} | _memory(settings.device)


def scoring(settings: Settings) -> Figures:
    """Run CLIP's embeddings of finished images as the screen makes them, and the bare model on
    prepared batches."""
    import torch
    from PIL import Image

    from counterfoil.models.arithmetic import computing_on

    with computing_on(settings.device), torch.inference_mode():
        clip = settings.clip()
        images = [
            Image.open(io.BytesIO(_photograph(index, settings.side))).convert("RGB")
            for index in range(8)
        ]
        images = [images[index % len(images)] for index in range(settings.batch)]
        prepared = torch.stack([clip.preprocess(image) for image in images]).to(settings.device)

        def screened(number: int) -> int:
            return len(clip.embed_images(images, settings.batch))

        def alone(number: int) -> int:
            return len(clip.module.encode_image(prepared))

        return {"rate": _rate(screened, settings), "bare": _rate(alone, settings)} | _memory(
            settings.device
        )


def evaluation(settings: Settings) -> Figures:
    """Run `counterfoil evaluate` of each classifier, from its first batch to its last, and the bare
    one in batches."""
    import timm
    import torch
    from timm.models import save_for_hf

    from counterfoil import evaluate
    from counterfoil.models.arithmetic import computing_on
    from counterfoil.progress import Stage

    _photographs(settings, "test", 48 if settings.tiny else 4096)
    figures: Figures = {}
    for name in CLASSIFIERS.values() if settings.tiny else CLASSIFIERS:
        torch.manual_seed(0)
        model: Any = timm.create_model(name, num_classes=len(NAMES))
        save_for_hf(
            model,
            str(settings.path(name)),
            model_config={"label_names": list(NAMES)},
            safe_serialization=True,
        )
        with _heard(
            Stage, lambda event, name=name: event.done if name in event.name else None
        ) as seen:
            evaluate(
                f"{settings.path('photographs')}:test", [f"local-dir:{settings.path(name)}"],
                out=settings.path(f"scores-{name}"), device=settings.device, batch_size=64 if not settings.tiny else 8,
            )  # fmt: skip
        figures[name] = _pace(seen)
        with computing_on(settings.device), torch.inference_mode():
            model = model.eval().to(settings.device)
            batch = torch.randn(64, *model.pretrained_cfg["input_size"], device=settings.device)
            figures[f"{name}, bare"] = _rate(
                lambda number, model=model, batch=batch: len(model(batch)), settings
            )
    return figures | _memory(settings.device)


def _recipe(
    settings: Settings, classes: tuple[str, ...] = NAMES, learn: dict[str, int] | None = None
) -> Path:
    """Write a recipe of one shift of a few classes, whose cells fill whole batches: `bench_build`
    measures padding."""
    _photographs(settings, "train", 8 * len(NAMES))
    _photographs(settings, "validation", 2 * len(NAMES))
    batches = max(1, settings.images // settings.batch)
    if learn is None:
        classes = classes[
            : max(count for count in range(1, len(classes) + 1) if batches % count == 0)
        ]
    recipe = {
        "recipe": 1,
        "name": "gpu-bench",
        "license": "other",
        "description": "Random weights and photographs of nothing, for a measurement.",
        "source": {
            "dataset": str(settings.path("photographs")),
            "train_split": "train",
            "validation_split": "validation",
            "classes": [
                {"id": f"{index:02d}", "name": name, "source_label": index}
                for index, name in enumerate(classes)
            ],
        },
        "generator": {
            "kind": "diffusers",
            "model": f"local-dir:{settings.folder}/pipeline",
            "steps": settings.steps,
            "guidance": GUIDANCE,
            "batch_size": settings.batch,
            "compile": settings.compiled,
        },
        "tokens": None if learn is None else {"learn": learn},
        "prompts": {"base": {"prompt": "a photo of a {class}"}},
        "screen": {
            "model": f"local-dir:{settings.folder}/clip",
            "object_threshold": -1,
            "shift_threshold": -1,
        },
        "samples": {"candidates": batches * settings.batch // len(classes)},
        "output": {"rows_per_shard": 2 * settings.batch},
    }
    path = settings.path("recipe.yaml" if learn is None else "tokens.yaml")
    path.write_text(json.dumps(recipe, indent=1), encoding="utf-8")
    return path


def _photographs(settings: Settings, split: str, images: int) -> None:
    """Write a split of photographs of nothing in folders of their classes, once."""
    folder = settings.path("photographs") / split
    if folder.is_dir():
        return
    for name in NAMES:
        (folder / name).mkdir(parents=True)

    def save(index: int) -> None:
        path = folder / NAMES[index % len(NAMES)] / f"{index:06d}.jpg"
        path.write_bytes(
            _photograph(zlib.crc32(f"{split} {index}".encode()), 64 if settings.tiny else 512)
        )

    with ThreadPoolExecutor() as pool:
        list(pool.map(save, range(images)))


def _photograph(seed: int, side: int) -> bytes:
    """Return a JPEG of smooth colours, three quarters as high as wide, no two alike."""
    import numpy as np
    from PIL import Image

    colours = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(colours).resize((side, side * 3 // 4), Image.Resampling.BICUBIC).save(
        file, "JPEG", quality=90
    )
    return file.getvalue()


def _digests(dataset: Path) -> dict[str, str]:
    """Return path → SHA-256 of all that would be published."""
    from counterfoil.store.layout import INDEX, PRIVATE

    files = [path for path in dataset.rglob("*") if path.is_file()]
    names = {path.relative_to(dataset).as_posix(): path for path in files}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in names.items()
        if name != INDEX and not name.startswith(f"{PRIVATE}/")
    }


@contextlib.contextmanager
def _heard(kind: type, done: Callable[[Any], int | None]) -> Iterator[list[tuple[float, int]]]:
    """Collect when events of a kind came and how much was done by then, of events that say how
    much."""
    from counterfoil.progress import listening

    seen: list[tuple[float, int]] = []

    def hear(event: object) -> None:
        if isinstance(event, kind) and (count := done(event)):
            seen.append((time.monotonic(), count))

    with listening(hear):
        yield seen


def _pace(seen: list[tuple[float, int]]) -> float:
    """Return units a second from the first event to the last."""
    (first, before), (last, after) = seen[0], seen[-1]
    return (after - before) / (last - first)


def _rate(work: Callable[[int], int], settings: Settings) -> float:
    """Return units a second of `work`: one call is not counted, then at least two calls and this
    many seconds are."""
    work(0)
    _wait(settings.device)
    began = time.monotonic()
    made = 0
    number = 1
    while number < 3 or time.monotonic() - began < settings.seconds:
        made += work(number)
        number += 1
        _wait(settings.device)
    return made / (time.monotonic() - began)


def _wait(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def _memory(device: str) -> Figures:
    import torch

    return (
        {"memory": torch.cuda.max_memory_allocated(device) / 1e9}
        if device.startswith("cuda")
        else {}
    )


WAYS = {
    "build": whole,
    "bare": bare,
    "single": single,
    "killed": killed,
    "tokens": tokens,
    "clip": scoring,
    "evaluate": evaluation,
}


def main() -> None:
    settings = Settings(**json.load(sys.stdin))
    os.environ["XDG_CACHE_HOME"] = str(settings.path("cache"))
    # What libraries print goes to the other stream: this one is for the figures.
    with contextlib.redirect_stdout(sys.stderr):
        figures = WAYS[sys.argv[1]](settings)
    print(json.dumps(figures))


def as_json(settings: Settings) -> str:
    return json.dumps(asdict(settings))


if __name__ == "__main__":
    main()
