"""Kinds of cases about a built dataset's files: JSON and YAML documents with changes, and any file
with other bytes."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import yaml

from fuzzing.cases import NAME, Bench, Prepared
from fuzzing.commands import on_the_dataset
from fuzzing.recipes import damaged_text, mutated_recipe
from fuzzing.templates import BUILT, ROWS
from fuzzing.trees import at, json_text, places, yaml_text
from fuzzing.values import as_bytes, json_fragment, odd_value

# How often each document is the one; all receipts together are one.
_OFTEN = {
    "recipe.yaml": 4,
    "lock.json": 4,
    "manifest.json": 3,
    "receipts": 5,
    "thresholds.json": 3,
    "croissant.json": 1,
    "README.md": 1,
    "evaluation/results.json": 2,
    "tokens/manifest.json": 1,
    "_info.json": 1,
    ".counterfoil/replacement/swap.json": 2,
    "tokens": 2,
    ROWS: 2,
}


def document(bench: Bench) -> Prepared:
    """Change one or two documents of a dataset."""
    chance = bench.chance
    directory = bench.copy(chance.choice(BUILT))
    for _ in range(chance.choice((1, 1, 2))):
        _mutate(bench, directory, chance.choices(list(_OFTEN), list(_OFTEN.values()))[0])
    return on_the_dataset(bench, other_recipe=True)


def _mutate(bench: Bench, directory: Path, name: str) -> None:
    chance = bench.chance
    if name in ("receipts", "tokens"):
        suffix = "json" if name == "receipts" else "safetensors"
        files = sorted((directory / name).glob(f"*.{suffix}"))
        if not files:
            return
        name = chance.choice(files).relative_to(directory).as_posix()
    bench.tell(f"{name}:")
    path = directory / name
    try:
        _rewrite(path, name, bench, directory)
    except (ValueError, RecursionError, yaml.YAMLError):
        bench.tell("cannot be read any more")


def _rewrite(path: Path, name: str, bench: Bench, directory: Path) -> None:
    chance = bench.chance
    if name.endswith(".safetensors"):
        path.write_bytes(_token(path.read_bytes(), bench))
    elif name == "recipe.yaml":
        tree = mutated_recipe(yaml.safe_load(path.read_text()), bench, directory, None)
        path.write_bytes(damaged_text(yaml_text(tree, chance), bench))
    elif name == ROWS:
        if path.is_file():
            path.write_bytes(_lines(path.read_text(), bench))
    elif name == "README.md":
        path.write_bytes(_card(path.read_text(), bench))
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        tree = _DEFAULTS.get(name, {"files": []})
        if path.is_file():
            tree = json.loads(path.read_text())
        path.write_bytes(_json(tree, bench, directory))


_DEFAULTS: dict[str, Any] = {
    ".counterfoil/replacement/swap.json": {
        "new": ["data", "receipts", "manifest.json"],
        "gone": ["README.md", "x"],
    },
}


def _json(tree: Any, bench: Bench, directory: Path) -> bytes:
    chance = bench.chance
    paths = [path for path in places(tree) if path[-1] == "path" or path[0] in ("new", "gone")]
    chosen = []
    if paths and chance.random() < 0.5:
        texts = [path for path in paths if isinstance(at(tree, path), str)]
        chosen = chance.sample(texts, min(len(texts), 2))
        bench.replace(tree, chosen, lambda: _path(bench, directory))
    if not chosen or chance.random() < 0.4:
        tree = bench.mutate(tree, json_fragment, 1, 1, 2, 3)
    return _encoded(json_text(tree, canonical=chance.random() < 0.7), chance)


def _path(bench: Bench, directory: Path) -> str:
    """Return a path for a receipt, manifest or journal; receipts know tables by the first part."""
    path = bench.hostile_path(directory)
    if bench.chance.random() < 0.6:
        first = bench.chance.choice(("data", "candidates", "rejected", "evaluation"))
        path = f"{first}/../{path.lstrip('/')}"
    return path


def _encoded(text: str, chance: Random) -> bytes:
    if chance.random() < 0.03:
        return text.encode(chance.choice(("utf-16", "utf-8-sig", "utf-32")), "surrogatepass")
    return as_bytes(text)


def _card(text: str, bench: Bench) -> bytes:
    """Change the card's YAML or its text."""
    chance = bench.chance
    _, header, body = text.split("---\n", 2)
    if chance.random() < 0.7:
        tree = mutated_recipe(yaml.safe_load(header), bench, bench.folder / NAME, None)
        return as_bytes(f"---\n{yaml_text(tree, chance)}---\n{body}")
    odd = odd_value(chance)
    position = chance.randrange(len(text))
    bench.tell(f"{odd!r} at {position}")
    rest = text[position + chance.choice((0, 5, 500)) :]
    return as_bytes(f"{text[:position]}{odd}{rest}")


def _lines(text: str, bench: Bench) -> bytes:
    """Make a table of rows with an odd cell or two, or with lines that are gone, doubled or in
    another order."""
    chance = bench.chance
    lines = text.splitlines()
    for _ in range(chance.choice((1, 1, 2))):
        index = chance.randrange(len(lines))
        match chance.choice(("cell", "cell", "cell", "gone", "twice", "order", "number")):
            case "gone":
                lines = [*lines[:index], *lines[index + 1 :]] or [""]
            case "twice":
                lines.insert(index, lines[index])
            case "order":
                chance.shuffle(lines)
            case "number":
                number = chance.choice((-1, 10**14, 2**63, 1e3))
                lines[index] = f"{lines[index].split(',')[0]},{number},"
            case _:
                cells = lines[index].split(",")
                cells[chance.randrange(len(cells))] = str(odd_value(chance))
                lines[index] = ",".join(cells)
        bench.tell(f"line {index}")
    return _encoded("\n".join(lines) + "\n", chance)


def _token(content: bytes, bench: Bench) -> bytes:
    """Change what the header of a safetensors file says of its tensors, or its length."""
    chance = bench.chance
    length = int.from_bytes(content[:8], "little")
    tree = bench.mutate(json.loads(content[8 : 8 + length]), json_fragment, 1, 2)
    header = _encoded(json_text(tree), chance)
    right = len(header)
    wrong = (0, length, right + 1, 2**31, 2**63, 2**64 - 1)
    length_written = chance.choice((*[right] * 4, *wrong))
    return length_written.to_bytes(8, "little") + header + content[8 + length :]


def random_bytes(bench: Bench) -> Prepared:
    """Replace bytes of one file of a dataset: random, flipped, cut short, doubled, or those of
    another file."""
    chance = bench.chance
    directory = bench.copy(chance.choice(BUILT))
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    kinds = sorted({_kind(path, directory) for path in files})
    kind = chance.choice(kinds)
    path = chance.choice([file for file in files if _kind(file, directory) == kind])
    other = chance.choice(files)
    shown = path.relative_to(directory).as_posix()
    path.write_bytes(bench.damage(path.read_bytes(), other.read_bytes(), f"{shown}: "))
    return on_the_dataset(bench, 0.7, other_recipe=True)


def _kind(path: Path, directory: Path) -> str:
    """Return a kind: files of one folder and suffix are alike; each file at the top is a kind of
    its own."""
    first, _, rest = path.relative_to(directory).as_posix().partition("/")
    return f"{first}/{path.suffix}" if rest else first
