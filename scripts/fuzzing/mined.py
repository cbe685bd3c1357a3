"""Kinds of cases about files that mining reads and leaves: candidate captions, and the vectors that
shifts name."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import yaml

from fuzzing.cases import Bench, Prepared, Step
from fuzzing.recipes import damaged_text
from fuzzing.trees import json_text, mutated, replace_leaves, yaml_text
from fuzzing.values import NUMBERS, TEXTS, damaged_bytes, json_fragment, odd_value, yaml_fragment

_NOUNS = ("class", "category", "hyponyms")
_KEYS = ("05_hard", "08_hard")
_WIDTH = 16
_RECIPE = (
    "source.classes=[{id: '05', name: sandal, source_label: 5}, {id: '08', name: bag, source_label:"
    " 8}]",
    "tokens=null",
    "prompts.shifts.red.embedding={file: ./vectors.safetensors, key: '{class_id}_hard'}",
)


@functools.cache
def _grammars() -> dict[str, Any]:
    """Return the bundled grammars as trees, and a small one with every key."""
    from counterfoil.recipe import bundled_recipes

    folder = next(iter(bundled_recipes().values())).parent / "captions"
    trees = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.yaml"))
    }
    trees["small"] = {
        "about": "a small one",
        "reference": "a photo of a {noun}",
        "templates": ["a photo of a {adjective} {noun} {preposition}"],
        "adjectives": [None, "red"],
        "prepositions": [None, "on the road"],
        "by_name": {"sandal": {"adjectives": ["worn"], "captions": ["a photo of an old sandal"]}},
    }
    trees["list"] = [
        "a photo of a sandal",
        "a photo of a red sandal",
        "a photo of a sandal on the road",
    ]
    return trees


def captions(bench: Bench) -> Prepared:
    """Change a grammar of captions, make a list of captions, or damage the bytes; read it and
    gather its captions."""
    chance = bench.chance
    name = chance.choice((*sorted(_grammars()), "wardrobe", "small", "small", "list"))
    bench.tell(name)
    draw = chance.random()
    suffix = "txt" if draw < 0.25 else "yaml"
    if suffix == "txt":
        lines = [
            chance.choice((chance.choice(TEXTS), "a photo of a {noun}", "# a note", "a red sandal"))
            for _ in "12345"
        ]
        content = "\n".join(lines).encode("utf-8", "surrogatepass")
        bench.tell(f"lines {lines!r}")
    else:
        tree, changes = mutated(
            _grammars()[name], chance, yaml_fragment, chance.choice((1, 1, 2, 3))
        )
        bench.tell(*changes)
        content = damaged_text(yaml_text(tree, chance), bench)
    if chance.random() < 0.2:
        how, content = damaged_bytes(content, b"a photo of a {noun}\n", chance)
        bench.tell(how)
    (bench.folder / f"captions.{suffix}").write_bytes(content)
    noun = chance.choice(_NOUNS)
    return Prepared(
        bench.told, [Step("captions", function=lambda: _gathered(f"./captions.{suffix}", noun))]
    )


def _gathered(source: str, noun: Any) -> None:
    from counterfoil.mining.captions import CaptionGrammar, gather_captions, words_of
    from counterfoil.recipe import load_recipe

    classes = load_recipe("wardrobe-mini").classes
    texts, references, candidates = gather_captions(CaptionGrammar.load(source), classes, noun)
    for cls, reference, candidate in zip(classes, references, candidates, strict=True):
        if not all(0 <= row < len(texts) for row in (reference, *candidate.tolist())):
            raise AssertionError("a row of no caption")
        for row in candidate.tolist()[:50]:
            words_of(cls.name, texts[row], texts[reference], "far_from")


def vectors(bench: Bench) -> Prepared:
    """Change the header, the numbers or the bytes of a safetensors file of vectors; read it as a
    build does."""
    chance = bench.chance
    header: Any = {
        key: {
            "dtype": "F32",
            "shape": [_WIDTH],
            "data_offsets": [4 * _WIDTH * index, 4 * _WIDTH * (index + 1)],
        }
        for index, key in enumerate(_KEYS)
    }
    data = bytearray(
        chance.randbytes(8 * _WIDTH) if chance.random() < 0.2 else b"\0\0\x80\x3f" * 2 * _WIDTH
    )
    changes: list[str] = []
    draw = chance.random()
    if draw < 0.5:
        places = [(key, what) for key in _KEYS for what in ("dtype", "shape", "data_offsets")]
        changes += replace_leaves(
            header, chance.sample(places, chance.choice((1, 2))), lambda: _said(chance)
        )
    elif draw < 0.8:
        header, changes = mutated(header, chance, json_fragment, chance.choice((1, 2)))
    bench.tell(*changes)
    text = json_text(header, canonical=False).encode("utf-8", "surrogatepass")
    length = chance.choice((len(text),) * 20 + (0, len(text) + 1, 2**31, 2**63, 2**64 - 1))
    content = length.to_bytes(8, "little") + text + bytes(data)
    if chance.random() < 0.2:
        how, content = damaged_bytes(content, json.dumps(header, default=str).encode(), chance)
        bench.tell(how)
    (bench.folder / "vectors.safetensors").write_bytes(content)
    return Prepared(bench.told, [Step("embeddings", function=_read)])


def _said(chance: random.Random) -> Any:
    numbers = [number for number in NUMBERS if isinstance(number, int) and number < 2**64]
    return chance.choice(
        (
            chance.choice(("F16", "BF16", "F64", "I64", "BOOL", "F8_E4M3", "f32", "")),
            [chance.choice(numbers)],
            [chance.choice(numbers), chance.choice(numbers)],
            [0, 4 * _WIDTH],
            [_WIDTH, 0],
            odd_value(chance),
        )
    )


def _read() -> None:
    import numpy as np

    from counterfoil.generate.image_embeddings import read_image_embeddings
    from counterfoil.recipe import load_recipe

    embeddings = read_image_embeddings(load_recipe("wardrobe-mini", _RECIPE))
    for class_id in ("05", "08"):
        vector = None if embeddings is None else embeddings.of("red", class_id)
        if vector is None or vector.ndim != 1 or not np.isfinite(vector).all():
            raise AssertionError(f"{class_id} has no vector")
