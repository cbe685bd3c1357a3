"""A dataset whose images are plain colours, and real timm models that read colours: every answer is
known.

Class `red` is painted red, and so on. Under `dusk` nothing goes wrong. Under `swap` the first
images of each class are painted as the next class, so a model that reads colours is wrong on
exactly those.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from timm.models import save_for_hf

from clip_verdicts import clip_verdict
from counterfoil.documents import sha256_json
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.recipe import dump_recipe
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.rows import Candidate

COLOURS = ((220, 40, 40), (40, 200, 60), (50, 70, 230))
NAMES = ("red", "green", "blue")
# A colour for each of four folders.
FOUR = (*COLOURS, (235, 215, 40))
CANDIDATES = 12
SWAPPED = 4
SIZE = 32
# Of a folder of photographs: images a class, and a file's name that means something wherever names
# are shown unescaped.
EACH = 6
FIRST = "=0 <img src=x onerror=document.title='broken'>\a\u202e.png"

RECIPE = """
recipe: 1
name: colours
license: cc0-1.0
source:
  dataset: lab:wardrobe
  classes:
    - {id: "00", name: red, source_label: 0}
    - {id: "01", name: green, source_label: 1}
    - {id: "02", name: blue, source_label: 2}
generator: {model: lab:sd, steps: 20, batch_size: 4}
prompts:
  base: {prompt: "a photo of a {class}"}
  shifts:
    dusk: {prompt: "a photo of a {class} at dusk", caption: "a photo at dusk", kind: light}
    swap: {prompt: "a photo of a swapped {class}", caption: "a swapped photo", kind: colour}
screen: {model: lab:clip, object_threshold: 0.25, shift_threshold: 0.2}
samples: {candidates: 12, seed: 3}
output: {rows_per_shard: 12}
"""


def painted(sample: Sample) -> tuple[int, int, int]:
    """Return the colour of a sample, which is what a model that reads colours answers."""
    label = sample.label
    if sample.shift == "swap" and sample.index < SWAPPED:
        label = (label + 1) % len(COLOURS)
    red, green, blue = COLOURS[label]
    return (
        (red * 3 // 4, green * 3 // 4, blue * 3 // 4)
        if sample.shift == "dusk"
        else (red, green, blue)
    )


def png_of(sample: Sample) -> bytes:
    with io.BytesIO() as file:
        Image.new("RGB", (SIZE, SIZE), painted(sample)).save(file, "PNG")
        return file.getvalue()


def graded_png(sample: Sample) -> bytes:
    """Return `png_of`, with one more image of the next colour at each quarter of the way to
    `swap`."""
    share = int(sample.shift.partition("_")[2] or 100) / 100
    swapped = sample.shift.startswith("swap") and sample.index < SWAPPED * share
    return png_of(
        replace(
            sample, shift="swap" if swapped else "base" if "swap" in sample.shift else sample.shift
        )
    )


def save_photographs(root: Path) -> Path:
    """Write an imagefolder, class/number.png, all painted as their class but the first two greens,
    which are blue.

    The first green is called `FIRST`, and `red/cut.png` is no image.
    """
    for label, name in enumerate(NAMES):
        (root / name).mkdir(parents=True)
        for number in range(EACH):
            blue = name == "green" and number < 2
            called = FIRST if name == "green" and number == 0 else f"{number}.png"
            Image.new("RGB", (40, 32), COLOURS[2 if blue else label]).save(root / name / called)
    (root / "red" / "cut.png").write_bytes(b"no image")
    return root


def save_folders(root: Path, names: Sequence[str], per_class: int = 4) -> Path:
    for name, colour in zip(names, FOUR, strict=False):
        (root / name).mkdir(parents=True)
        for number in range(per_class):
            Image.new("RGB", (SIZE, SIZE), colour).save(root / name / f"{number}.png")
    return root


def build_colours(
    out: Path,
    *overrides: str,
    keep: Callable[[Sample], bool] = lambda sample: True,
    image: Callable[[Sample], bytes] = png_of,
) -> Path:
    """Write a finished dataset in `out` by the store; `keep` says which candidates the screen
    accepts."""
    plan = make_plan(load_recipe_text(RECIPE, overrides))
    pin = {"revision": None, "sha256": "0" * 64, "license": None}
    models = {"generator": {"name": "lab:sd", **pin}, "screen": {"name": "lab:clip", **pin}}
    inputs = {"models": models, "source": {}, "tokens": None, "thresholds": None}
    hashes = {
        "plan": plan.recipe.plan_hash,
        "screen": plan.recipe.screen_hash,
        "inputs": sha256_json(inputs),
    }
    stack = {"device": "cpu"}
    with DatasetStore.open(
        out, plan, hashes, inputs, stack, recipe_yaml=dump_recipe(plan.recipe)
    ) as store:
        for shard in store.pending():
            store.writer.write(
                shard, [_candidate(sample, keep, image) for sample in shard.samples(plan)]
            )
        store.finish("# Colours\n", {})
    return out


def _candidate(
    sample: Sample, keep: Callable[[Sample], bool], image: Callable[[Sample], bytes]
) -> Candidate:
    return Candidate(
        sample=sample,
        verdict=clip_verdict(
            *(((0.3, None), (0.25, None)) if sample.shift == "base" else ((0.3, 0.3), (0.25, 0.2)))
        ),
        reason="accepted" if keep(sample) else "low_object",
        image=image(sample),
    )


def save_colour_model(
    folder: Path,
    *,
    blind: Sequence[int] = (),
    outputs: int = 3,
    size: int = SIZE,
    labels: bool = False,
    colours: Sequence[tuple[int, int, int]] = COLOURS,
) -> Path:
    """Save a small convolutional timm model in `folder` whose head reads the colours, output i
    colour i.

    It never answers a class in `blind`, or an output beyond the colours.
    """
    torch.manual_seed(0)
    model: Any = timm.create_model("test_resnet", num_classes=outputs).eval()
    bright = [np.array(colour) * share for share in (1.0, 0.75) for colour in colours]
    pixels = torch.tensor(np.stack(bright), dtype=torch.float32).div(255).sub(0.5).div(0.5)
    images = pixels[:, :, None, None].expand(-1, -1, size, size)
    with torch.inference_mode():
        features = model.forward_head(model.forward_features(images), pre_logits=True).double()
    centre = features.mean(dim=0)
    wanted = torch.full((len(bright), outputs), -1.0, dtype=torch.double)
    wanted[torch.arange(len(bright)), torch.arange(len(bright)) % len(colours)] = 1.0
    # The second answer is the next colour, clearly: no top-k hangs on the last bits of a float.
    wanted[torch.arange(len(bright)), (torch.arange(len(bright)) + 1) % len(colours)] = -0.5
    weight = torch.linalg.pinv(features - centre) @ (wanted - wanted.mean(dim=0))
    bias = wanted.mean(dim=0) - centre @ weight
    bias[list(blind)] -= 100.0
    head = model.get_classifier()
    with torch.no_grad():
        head.weight.copy_(weight.T)
        head.bias.copy_(bias)
    model.pretrained_cfg |= {
        "input_size": [3, size, size],
        "crop_pct": 1.0,
        "interpolation": "bilinear",
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
    }
    save_for_hf(model, str(folder), safe_serialization=True)
    if labels:
        _name_outputs(folder, [*NAMES, *(f"other {index}" for index in range(3, outputs))])
    return folder


def save_trained(
    folder: Path, names: Sequence[str], order: Sequence[str], labels: Sequence[str] | None = None
) -> str:
    """Save a timm model that reads the colours of `save_folders`, its outputs in `order` and called
    `labels`."""
    colours = dict(zip(names, FOUR, strict=False))
    save_colour_model(folder, outputs=len(order), colours=[colours[name] for name in order])
    if labels is not None:
        _name_outputs(folder, labels)
    return f"local-dir:{folder}"


def save_colour_models(root: Path) -> dict[str, str]:
    """Save models, of which `sharp` and `small` know every colour and the others never answer some
    class.

    `only_blue` is as right as chance is. The other five are enough for a slope.
    """
    blind = {"sharp": (), "no_red": (0,), "no_green": (1,), "no_blue": (2,), "only_blue": (0, 1)}
    saved = {name: save_colour_model(root / name, blind=which) for name, which in blind.items()}
    saved["small"] = save_colour_model(root / "small", size=SIZE // 2)
    return {name: f"local-dir:{folder}" for name, folder in saved.items()}


def _name_outputs(folder: Path, names: Sequence[str]) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"label_names": list(names)}))
