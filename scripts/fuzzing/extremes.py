"""Changes that keep a recipe valid, or nearly: the largest and smallest numbers, odd words, a
thousand shifts.

Wild changes are refused where a recipe is read; these go on, to what is planned, estimated, printed
and written.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from fuzzing.values import TEXTS

Tree = dict[str, Any]

_THRESHOLDS = (
    -1,
    1,
    0,
    -0.0,
    1e-300,
    0.1,
    {"value": 1},
    {"percentile": 0},
    {"percentile": 100},
    {"percentile": 1e-9},
    {"percentile": 99.999},
    None,
)

_SOURCE_KEYS = (
    "dataset",
    "config",
    "revision",
    "train_split",
    "validation_split",
    "image_column",
    "label_column",
)


def extreme(tree: Tree, chance: Random) -> str:
    """Make one such change to a recipe's tree; return it in words. An earlier change may have left
    no mapping."""
    if not isinstance(tree, dict):
        return "no mapping"
    change = chance.choice(_CHANGES)
    words = change(tree, chance)
    return words if len(words) <= 150 else f"{words[:130]}…({len(words)})"


def _section(tree: Tree, *names: str) -> Tree:
    for name in names:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    return tree


def _set(tree: Tree, *path_and_value: Any) -> str:
    *path, value = path_and_value
    _section(tree, *path[:-1])[path[-1]] = value
    return f"{'.'.join(path)} ← {value!r}"


def _short(chance: Random) -> str:
    return chance.choice([text for text in TEXTS if len(text) < 1_000])


def _samples(tree: Tree, chance: Random) -> str:
    many = chance.choice((1, 7, 1_000, 999_999, 1_000_000))
    if chance.random() < 0.3:
        tree["samples"] = {"accepted": chance.choice((1, many)), "at_most": many}
    else:
        _section(tree, "samples").update(candidates=many, accepted=None, at_most=None)
    seed = chance.choice((0, 1, 2**53 - 1))
    _section(tree, "samples").update(seed=seed, noise=chance.choice(("paired", "independent")))
    return f"samples ← {tree['samples']}"


def _output(tree: Tree, chance: Random) -> str:
    tree["output"] = {
        "format": chance.choice(("parquet", "webdataset")),
        "image": {
            "format": chance.choice(("png", "jpg", "webp")),
            "quality": chance.choice((None, None, 1, 100, 50)),
        },
        "rows_per_shard": chance.choice((1, 1, 2, 1_000, 10**6, 10**12, 2**62, 10**40)),
        "split": chance.choice(("test", "train", "a" * 60, "x_1", _short(chance))),
    }
    return f"output ← {tree['output']}"


def _chosen(keys: dict[str, tuple[Any, ...]], chance: Random) -> tuple[str, Any]:
    """Return a key and one of its values."""
    key = chance.choice(list(keys))
    return key, chance.choice(keys[key])


def _generator(tree: Tree, chance: Random) -> str:
    keys = {
        "steps": (1, 10**6, 10**18, 10**40),
        "guidance": (0, 1.0, 1e9, 1e300),
        "batch_size": (1, 10**9, 10**30),
        "size": (8, 64, 512, 2**20, 2**40, 8 * 10**30),
        "saved_size": (1, 32, 2**20, 10**30),
        "scheduler": ("../x", "DDIM", "Euler Discrete", "__init__", "os.system", _short(chance)),
        "dtype": ("float16", "bfloat16", "float32"),
        "model": ("lab:sd", "a/b", "lab:clip", "hf-hub:a/b", _short(chance)),
        "revision": ("main", "0" * 40, "../x", _short(chance)),
    }
    return _set(tree, "generator", *_chosen(keys, chance))


def _words(tree: Tree, chance: Random) -> str:
    key = chance.choice(("name", "description", "license", "name"))
    return _set(tree, key, chance.choice(TEXTS))


def _prompt(tree: Tree, chance: Random) -> str:
    odd = _short(chance)
    text = chance.choice((f"{odd} {{class}}", f"a {{class}} {odd}", f"{{class}}{odd}{{class}}"))
    if chance.random() < 0.4:
        return _set(tree, "prompts", "base", "prompt", text)
    name = _shift(tree, chance)
    key = chance.choice(
        ("prompt", "caption", "object_caption", "kind", "group", "classes", "style")
    )
    kinds = ("background", "weather", "light", "colour", "co-occurrence", "style")
    many = [str(number) for number in range(2_000)]
    values: Tree = {
        "prompt": text,
        "caption": odd,
        "object_caption": text,
        "kind": chance.choice(kinds),
        "group": chance.choice(("base", "a", "all", "x" * 80, odd)),
        "classes": chance.choice((["00"], ["00", "00"], [], ["x"], many)),
        "style": chance.choice((True, False)),
    }
    return _set(tree, "prompts", "shifts", name, key, values[key])


def _shift(tree: Tree, chance: Random) -> str:
    shifts = _section(tree, "prompts", "shifts")
    names = [name for name in shifts if isinstance(name, str)] or ["red"]
    name = chance.choice(names)
    if not isinstance(shifts.get(name), dict):
        shifts[name] = {"prompt": "a {class}", "caption": "a photo", "threshold": 0.1}
    return name


def _shifts(tree: Tree, chance: Random) -> str:
    shifts = _section(tree, "prompts", "shifts")
    how = chance.choice(("one more", "renamed", "many", "none", "only base", "few in one group"))
    shift = {"prompt": "a {class} here", "caption": "here", "threshold": 0.1}
    match how:
        case "one more":
            shifts[chance.choice(("x", "a" * 64, "__", "0", "con", _short(chance)))] = shift
        case "renamed":
            name = _shift(tree, chance)
            shifts[f"{name}_2"] = shifts.pop(name)
        case "many":
            count = chance.choice((200, 1_500))
            shifts |= {f"s{number}": shift for number in range(count)}
            return f"{count} more shifts"
        case "none":
            tree["prompts"]["shifts"] = {}
        case "only base":
            del tree["prompts"]["shifts"]
        case _:
            shifts |= {f"g{number}": {**shift, "group": "together"} for number in range(5)}
    return f"shifts: {how}"


def _classes(tree: Tree, chance: Random) -> str:
    how = chance.choice(("one", "odd name", "odd name", "odd id", "many", "far label", "same name"))
    classes: list[Any] = [
        {"id": "00", "name": "t-shirt", "source_label": 0},
        {"id": "01", "name": "bag", "source_label": 1},
    ]
    match how:
        case "odd name":
            classes[0]["name"] = _short(chance)
        case "odd id":
            ids = ("a", "A", "x" * 64, "0.1", "..", "con", "00", "n01440764", _short(chance))
            classes[0]["id"] = chance.choice(ids)
        case "many":
            classes = [
                {"id": f"c{number}", "name": f"class {number}", "source_label": number}
                for number in range(3_000)
            ]
        case "far label":
            classes[1]["source_label"] = chance.choice((2**31, 2**63, 10**30, 0))
        case "same name":
            classes[1]["name"] = "t-shirt"
        case _:
            classes = classes[:1]
    _section(tree, "source")["classes"] = classes
    return f"classes: {how} {classes[0]['id']!r} {classes[0]['name']!r}"


def _threshold(tree: Tree, chance: Random) -> str:
    value = chance.choice(_THRESHOLDS)
    shift = _shift(tree, chance)
    paths = (
        ("screen", "object_threshold"),
        ("screen", "shift_threshold"),
        ("prompts", "base", "object_threshold"),
        ("prompts", "shifts", shift, "threshold"),
        ("prompts", "shifts", shift, "object_threshold"),
    )
    return _set(tree, *chance.choice(paths), value)


def _screen(tree: Tree, chance: Random) -> str:
    keys = {
        "object_caption": ("a {class}", "{class}" * 500, f"{_short(chance)}{{class}}"),
        "style_object_caption": ("{class}", f"{{class}} {_short(chance)}"),
        "model": ("lab:clip", "lab:sd", "ViT-B-32", "hf-hub:a/b", _short(chance)),
        "weights": ("openai", "laion2b", "../x", _short(chance)),
        "store_embeddings": (True, False),
        "keep_rejected": (True, False),
    }
    return _set(tree, "screen", *_chosen(keys, chance))


def _sections(tree: Tree, chance: Random) -> str:
    paths = ({"path": "a/b"}, {"path": "lab:tokens"}, {"path": "a/b", "revision": "x"})
    odd = ({"repo": _short(chance)}, {"tags": [_short(chance)]})
    models = ({"models": ["resnet50"] * 1_000}, {"models": [_short(chance)]})
    keys = {
        "tokens": (None, {"learn": {}}, *paths),
        "publish": (None, {"repo": "a/b", "tags": ["x", "x"]}, *odd),
        "evaluate": (None, *models, {"min_images_per_class": 10**30}),
        "extends": ("wardrobe-mini", "imagenet-star", "nosuch", "./r.yaml", "r.yaml"),
    }
    return _set(tree, *_chosen(keys, chance))


def _source(tree: Tree, chance: Random) -> str:
    key = chance.choice(_SOURCE_KEYS)
    names = ("lab:wardrobe", "a/b", "lab:nope", _short(chance))
    return _set(tree, "source", key, chance.choice(names))


_CHANGES: tuple[Callable[[Tree, Random], str], ...] = (
    _samples,
    _samples,
    _output,
    _output,
    _generator,
    _generator,
    _words,
    _prompt,
    _prompt,
    _prompt,
    _shifts,
    _shifts,
    _classes,
    _threshold,
    _screen,
    _sections,
    _source,
)
