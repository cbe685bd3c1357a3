"""Kinds of cases about files that mining reads and leaves: candidate captions, and the vectors that
shifts name."""

from __future__ import annotations

import functools
import json
from random import Random
from typing import Any

import yaml

from fuzzing.cases import Bench, Prepared, Step
from fuzzing.recipes import damaged_text
from fuzzing.trees import json_text, yaml_text
from fuzzing.values import NUMBERS, TEXTS, as_bytes, json_fragment, odd_value, yaml_fragment

_NOUNS = ("class", "category", "hyponyms")
_KEYS = ("05_hard", "08_hard")
_WIDTH = 16
_SMALL = """
small:
  about: a small one
  reference: a photo of a {noun}
  templates: ["a photo of a {adjective} {noun} {preposition}"]
  adjectives: [null, red]
  prepositions: [null, on the road]
  by_name: {sandal: {adjectives: [worn], captions: [a photo of an old sandal]}}
list: [a photo of a sandal, a photo of a red sandal, a photo of a sandal on the road]
"""
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
    return trees | yaml.safe_load(_SMALL)


def captions(bench: Bench) -> Prepared:
    """Change a grammar of captions, make a list of captions, or damage the bytes; read it and
    gather its captions."""
    chance = bench.chance
    name = chance.choice((*sorted(_grammars()), "wardrobe", "small", "small", "list"))
    bench.tell(name)
    draw = chance.random()
    suffix = "txt" if draw < 0.25 else "yaml"
    if suffix == "txt":
        lines = []
        for _ in range(5):
            others = ("a photo of a {noun}", "# a note", "a red sandal")
            lines.append(chance.choice((chance.choice(TEXTS), *others)))
        content = as_bytes("\n".join(lines))
        bench.tell(f"lines {lines!r}")
    else:
        tree = bench.mutate(_grammars()[name], yaml_fragment, 1, 1, 2, 3)
        content = damaged_text(yaml_text(tree, chance), bench)
    if chance.random() < 0.2:
        content = bench.damage(content, b"a photo of a {noun}\n")
    bench.write(f"captions.{suffix}", content)
    noun = chance.choice(_NOUNS)
    source = f"./captions.{suffix}"
    return bench.prepared(Step("captions", function=lambda: _gathered(source, noun)))


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
    size = 4 * _WIDTH
    header: Any = {}
    for index, key in enumerate(_KEYS):
        offsets = [size * index, size * (index + 1)]
        header[key] = {"dtype": "F32", "shape": [_WIDTH], "data_offsets": offsets}
    data = b"\0\0\x80\x3f" * 2 * _WIDTH
    if chance.random() < 0.2:
        data = chance.randbytes(len(data))
    draw = chance.random()
    if draw < 0.5:
        places = [(key, what) for key in _KEYS for what in ("dtype", "shape", "data_offsets")]
        chosen = chance.sample(places, chance.choice((1, 2)))
        bench.replace(header, chosen, lambda: _said(chance))
    elif draw < 0.8:
        header = bench.mutate(header, json_fragment, 1, 2)
    text = as_bytes(json_text(header))
    right = len(text)
    length = chance.choice((*[right] * 20, 0, right + 1, 2**31, 2**63, 2**64 - 1))
    content = length.to_bytes(8, "little") + text + data
    if chance.random() < 0.2:
        content = bench.damage(content, json.dumps(header, default=str).encode())
    bench.write("vectors.safetensors", content)
    return bench.prepared(Step("embeddings", function=_read))


def _said(chance: Random) -> Any:
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
