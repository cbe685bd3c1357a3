"""Kinds of cases about what a person fetched to build with: a generator's or CLIP's folder,
released tokens."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path

from fuzzing.cases import Bench, Prepared, command
from fuzzing.places import opening_pickle
from fuzzing.trees import json_text, mutated, replace_leaves
from fuzzing.values import damaged_bytes, hostile_path, json_fragment

# One class, one image, one step: what a build of it asks of its models is all that a larger one
# does.
_RECIPE = """
recipe: 1
name: one
source: {dataset: lab:wardrobe, classes: [{id: "00", name: t-shirt, source_label: 0}]}
generator: {model: GENERATOR, steps: 1, batch_size: 1, dtype: float32}
prompts: {base: {prompt: "a photo of a {class}"}}
screen: {model: CLIP, object_threshold: -1}
samples: {candidates: 1}
"""
# Weights that are pickles by these names, where they are read at all.
_PICKLES = {
    "sd": ("diffusion_pytorch_model.bin", "pytorch_model.bin"),
    "clip": ("open_clip_pytorch_model.bin",),
}
_TOKENS = 10
_WIDTH = 128  # of the text encoder of lab:sd


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
        how, content = damaged_bytes(path.read_bytes(), b"x" * 1_000, chance)
        bench.tell(f"{path.relative_to(folder).as_posix()}: {how}")
        path.write_bytes(content)
    elif draw < 0.4:
        path = chance.choice(weights)
        path.unlink()
        name = chance.choice((*_PICKLES[which], path.name))
        (path.parent / name).write_bytes(opening_pickle(bench.canaries.paths()[0]))
        bench.tell(f"{name} for {path.name} is a pickle that opens a canary")
    else:
        read = [path for path in texts if path.name not in ("metrics.json", "training.json")]
        _change(chance.choice(read), folder, bench)
    models = {"GENERATOR": "lab:sd", "CLIP": "lab:clip"} | {
        "GENERATOR" if which == "sd" else "CLIP": f"./{which}"
    }
    text = _RECIPE
    for name, model in models.items():
        text = text.replace(name, model if model.startswith("lab:") else f"local-dir:{model}")
    (bench.folder / "one.yaml").write_text(text)
    return Prepared(
        bench.told,
        [command("build", "./one.yaml", "--out", "out", "--device", "cpu", "--workers", "1")],
    )


def _change(path: Path, folder: Path, bench: Bench) -> None:
    chance = bench.chance
    tree = json.loads(path.read_text(encoding="utf-8"))
    bench.tell(f"{path.relative_to(folder).as_posix()}:")
    changes: list[str] = []
    if chance.random() < 0.2:
        keys = [
            ("_name_or_path",),
            ("_class_name",),
            ("tokenizer_class",),
            ("auto_map", "AutoModel"),
            ("architectures",),
        ]
        changes += replace_leaves(
            tree, [chance.choice(keys)], lambda: hostile_path(chance, bench.canaries, folder)
        )
    if not changes or chance.random() < 0.3:
        tree, more = mutated(tree, chance, json_fragment, chance.choice((1, 1, 2)))
        changes += more
    bench.tell(*changes)
    path.write_bytes(json_text(tree, canonical=False).encode("utf-8", "surrogatepass"))


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
            how, content = damaged_bytes(content, b"x" * 1_000, chance)
            bench.tell(f"zip: {how}")
        (bench.folder / "released").write_bytes(content)
    words = ("tokens", "wardrobe-mini", "--import", "released", "--out", "out")
    return Prepared(bench.told, [command(*words)])


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
            name = (
                hostile_path(chance, bench.canaries, bench.folder)[:200]
                .replace("\0", "")
                .replace("\ud800", "")
            )
        case "bytes":
            _, content = damaged_bytes(content, b"x" * 1_000, chance)
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
            values = (
                flat[:0],
                flat[None, :0],
                flat.long(),
                nan,
                many,
                torch.zeros(2, 3, _WIDTH),
                {"a": flat},
                flat.to_sparse(),
            )
            with io.BytesIO() as file:
                torch.save(chance.choice(values), file)
                content = file.getvalue()
    bench.tell(f"{members[index][0]}: {how} {name if how == 'name' else ''}")
    return [*members[:index], (name, content), *members[index + 1 :]]
