"""Kinds of cases about what a person fetched: a classifier's, generator's or CLIP's folder,
released tokens."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

from fuzzing.cases import NAME, Bench, Prepared, command
from fuzzing.places import opening_pickle
from fuzzing.templates import CLASSIFIER, PARQUET
from fuzzing.trees import json_text
from fuzzing.values import NUMBERS, as_bytes, damaged_bytes, json_fragment, odd_value

# One class, one image, one step: what a build of it asks of its models is all that a larger one
# does.
_RECIPE = """
recipe: 1
name: one
source: {dataset: lab:wardrobe, classes: [{id: "00", name: t-shirt, source_label: 0}]}
generator: {model: lab:sd, steps: 1, batch_size: 1, dtype: float32}
prompts: {base: {prompt: "a photo of a {class}"}}
screen: {model: lab:clip, object_threshold: -1}
samples: {candidates: 1}
"""
_OTHER = b"x" * 1_000
# Weights that are pickles by these names, where they are read at all.
_PICKLES = {
    "sd": ("diffusion_pytorch_model.bin", "pytorch_model.bin"),
    "clip": ("open_clip_pytorch_model.bin",),
    "classifier": (
        "pytorch_model.bin",
        "model.pth",
        "model.pth.tar",
        "open_clip_pytorch_model.bin",
    ),
}
_NAMES = (
    ("_name_or_path",),
    ("_class_name",),
    ("tokenizer_class",),
    ("auto_map", "AutoModel"),
    ("architectures",),
)
_TOKENS = 10
_SETTINGS = (
    "input_size",
    "mean",
    "std",
    "crop_pct",
    "interpolation",
    "crop_mode",
    "num_classes",
    "test_input_size",
    "pool_size",
)
_ARCHITECTURES = (
    "vit_giant_patch14_224",
    "resnet18",
    "vit_7b_patch16_dinov3",
    "../x",
    "lcnet_035.ra2_in1k",
    "",
    "eva_giant_patch14_560",
)
_WIDTH = 128  # of the text encoder of lab:sd


def model(bench: Bench) -> Prepared:
    """Change the configuration or weights of the lab's classifier, and evaluate it on a dataset as
    it was built."""
    from counterfoil.models.names import LAB_WEIGHTS

    chance = bench.chance
    bench.copy(PARQUET)
    folder = bench.folder / "model"
    shutil.copytree(LAB_WEIGHTS / CLASSIFIER.removeprefix("lab:"), folder)
    weights = folder / "model.safetensors"
    draw = chance.random()
    if draw < 0.15:
        weights.write_bytes(bench.damage(weights.read_bytes(), _OTHER, "weights: "))
    elif draw < 0.3:
        weights.unlink()
        name = chance.choice((*_PICKLES["classifier"], weights.name))
        (folder / name).write_bytes(opening_pickle(bench.canaries.paths()[0]))
        bench.tell(f"{name} is a pickle that opens a canary")
    if draw >= 0.15:
        config = json.loads((folder / "config.json").read_text())
        bench.write("model/config.json", json_text(_config(config, bench)))
    words = ("evaluate", NAME, "--models", "local-dir:./model", "--device", "cpu")
    return bench.prepared(command(*words))


def _config(config: Any, bench: Bench) -> Any:
    chance = bench.chance
    draw = chance.random()
    if draw < 0.5:
        names = chance.sample(_SETTINGS, chance.choice((1, 2)))
        places = [("pretrained_cfg", name) for name in names]
        bench.replace(config, places, lambda: _setting(bench))
    elif draw < 0.6:
        bench.replace(config, [("architecture",)], lambda: chance.choice(_ARCHITECTURES))
    elif draw < 0.7:
        key = "pretrained_cfg", chance.choice(("file", "url", "hf_hub_id", "source"))
        bench.replace(config, [key], lambda: bench.hostile_path(bench.folder / "model"))
    elif draw < 0.8:
        key = "model_args", str(odd_value(chance))[:50]
        bench.replace(config, [key], lambda: odd_value(chance))
    if draw >= 0.8 or chance.random() < 0.3:
        config = bench.mutate(config, json_fragment, 1, 2)
    return config


def _setting(bench: Bench) -> Any:
    chance = bench.chance
    number = [number for number in NUMBERS if abs(number) < 1e18 or number != number]
    sizes = [[3, 100_000, 100_000], [3, 64], [1, 64, 64]]
    size = [3, chance.choice(number), chance.choice(number)]
    mean = [chance.choice(number)] * 3
    single = (chance.choice(number), odd_value(chance), "nearest", "random", "squash")
    return chance.choice((size, mean, *sizes, *single))


def generator(bench: Bench) -> Prepared:
    """Change configuration, tokenizer or weights of the lab's diffusion or CLIP model, and build an
    image with it."""
    from counterfoil.models.names import LAB_WEIGHTS

    chance = bench.chance
    which = chance.choice(("sd", "sd", "clip"))
    folder = bench.folder / which
    shutil.copytree(LAB_WEIGHTS / which, folder)
    weights, texts = (sorted(folder.rglob(pattern)) for pattern in ("*.safetensors", "*.json"))
    draw = chance.random()
    if draw < 0.2:
        path = chance.choice(weights)
        shown = path.relative_to(folder).as_posix()
        path.write_bytes(bench.damage(path.read_bytes(), _OTHER, f"{shown}: "))
    elif draw < 0.4:
        path = chance.choice(weights)
        path.unlink()
        name = chance.choice((*_PICKLES[which], path.name))
        (path.parent / name).write_bytes(opening_pickle(bench.canaries.paths()[0]))
        bench.tell(f"{name} for {path.name} is a pickle that opens a canary")
    else:
        read = [path for path in texts if path.name not in ("metrics.json", "training.json")]
        _change(chance.choice(read), folder, bench)
    text = _RECIPE.replace(f"lab:{which}", f"local-dir:./{which}")
    bench.write("one.yaml", text)
    words = ("build", "./one.yaml", "--out", "out", "--device", "cpu", "--workers", "1")
    return bench.prepared(command(*words))


def _change(path: Path, folder: Path, bench: Bench) -> None:
    chance = bench.chance
    tree = json.loads(path.read_text(encoding="utf-8"))
    bench.tell(f"{path.relative_to(folder).as_posix()}:")
    replaced = chance.random() < 0.2
    if replaced:
        bench.replace(tree, [chance.choice(_NAMES)], lambda: bench.hostile_path(folder))
    if not replaced or chance.random() < 0.3:
        tree = bench.mutate(tree, json_fragment, 1, 1, 2)
    path.write_bytes(as_bytes(json_text(tree)))


def released(bench: Bench) -> Prepared:
    """Import as class tokens a zip or folder of tensors with damaged, odd, huge or running
    members."""
    import torch

    chance = bench.chance
    members: list[tuple[str, bytes]] = []
    for label in range(_TOKENS):
        with io.BytesIO() as file:
            torch.save(torch.full((1, _WIDTH), label / 100), file)
            members.append((f"{label}.bin", file.getvalue()))
    for _ in range(chance.choice((1, 1, 2))):
        members = _other_members(members, bench)
    if chance.random() < 0.3:
        (bench.folder / "released").mkdir()
        for name, content in members:
            if "/" not in name and name not in ("", ".", ".."):
                (bench.folder / "released" / name).write_bytes(content)
    else:
        content = _zipped(members)
        if chance.random() < 0.3:
            content = bench.damage(content, _OTHER, "zip: ")
        bench.write("released", content)
    words = ("tokens", "wardrobe-mini", "--import", "released", "--out", "out")
    return bench.prepared(command(*words))


def _zipped(members: list[tuple[str, bytes]]) -> bytes:
    import warnings

    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a name that is there twice is on purpose
            for name, content in members:
                archive.writestr(name or "x", content)
        return file.getvalue()


def _other_members(members: list[tuple[str, bytes]], bench: Bench) -> list[tuple[str, bytes]]:
    import torch

    chance = bench.chance
    index = chance.randrange(len(members))
    name, content = members[index]
    how = chance.choice(("name", "bytes", "pickle", "large", "twice", "gone", "tensor"))
    match how:
        case "name":
            name = bench.hostile_path()[:200].replace("\0", "").replace("\ud800", "")
        case "bytes":
            _, content = damaged_bytes(content, _OTHER, chance)
        case "pickle":
            content = opening_pickle(bench.canaries.paths()[0])
        case "large":
            content = content + b"\0" * 20_000_000
        case "twice":
            return [*members, members[index]]
        case "gone":
            return [*members[:index], *members[index + 1 :]]
        case "tensor":
            flat = torch.zeros(_WIDTH)
            nan = torch.full((1, _WIDTH), float("nan"))
            many = torch.zeros(1).expand(10**9, _WIDTH)
            cube = torch.zeros(2, 3, _WIDTH)
            empty = (flat[:0], flat[None, :0])
            values = (*empty, flat.long(), nan, many, cube, {"a": flat}, flat.to_sparse())
            with io.BytesIO() as file:
                torch.save(chance.choice(values), file)
                content = file.getvalue()
    bench.tell(f"{members[index][0]}: {how} {name if how == 'name' else ''}")
    return [*members[:index], (name, content), *members[index + 1 :]]
