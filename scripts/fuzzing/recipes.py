"""Kinds of cases about recipes: bundled ones with changes, `--set` options, and cuts; shown,
checked and planned."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import yaml

from fuzzing.cases import Bench, Prepared, Step, command
from fuzzing.extremes import extreme
from fuzzing.templates import PARQUET, TAR, TOKENS
from fuzzing.trees import Path as Place
from fuzzing.trees import at, places, written, yaml_text
from fuzzing.values import as_bytes, odd_value, set_traps, yaml_fragment

_LAYER = """
extends: wardrobe-mini
name: layer
samples: {candidates: 5}
prompts: {shifts: {red: null, blue: {prompt: "a blue {class}", caption: a photo blue}}}
"""
_CUT = """
screen: {object_threshold: 0.3, shift_threshold: {value: 0.3}, keep: thresholds, keep_rejected: true}
prompts:
  base: {object_threshold: 0.1}
  shifts: {in_the_snow: {threshold: 0.25}, pencil_sketch: {threshold: {percentile: 40}}}
"""
# A cut that is valid, at its ends.
_ENDS = (
    -1,
    1,
    0.0,
    0.25,
    {"value": 1},
    {"percentile": 0},
    {"percentile": 100},
    {"percentile": 1e-9},
)
# Where a recipe names files.
PATHS: tuple[Place, ...] = (
    ("extends",),
    ("source", "dataset"),
    ("source", "classes"),
    ("tokens", "path"),
    ("generator", "model"),
    ("screen", "model"),
    ("evaluate", "models", 0),
)
_FILES = (
    "r.yaml",
    "r.yaml",
    "recipe.yaml",
    "-r.yaml",
    "[bold]r.yaml",
    "r\n.yaml",
    "日本語.yaml",
    "r",
)
# Reading the file that a person's own recipe names here is what the keys are for.
_NAMES_FILES = ("extends", "classes")
_ODD_BYTES = (
    b"\0",
    b"\t",
    b"\r",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\x85",
    b"\xe2\x80\xa8",
    b"\n---\n",
    b"\n...\n",
    b"%YAML 9.9\n",
    b"\xef\xbb\xbf",
    b"\x1b[2J",
    b": ",
    b"- ",
    b"\n  ",
    b"#",
    b"&",
    b"*",
    b"!",
    b"{",
    b"]",
    b"\n" * 5_000,
    b" " * 50_000,
)


_ODD_KEYS = (
    "",
    ".",
    "a.",
    ".a",
    "a..b",
    "x" * 9_000,
    ".".join("a" * 2_000),
    "samples.",
    "é",
)


@functools.cache
def bundled() -> dict[str, dict[str, Any]]:
    """Return the bundled recipes as trees, and one that extends another."""
    from counterfoil.recipe import bundled_recipes

    trees = {
        name: yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, path in bundled_recipes().items()
    }
    return trees | {"layer": yaml.safe_load(_LAYER)}


def mutated_recipe(tree: Any, bench: Bench, folder: Path, traps: Path | None) -> Any:
    """Make one to four changes, some of them paths that lead away; or some that keep it nearly
    valid."""
    chance = bench.chance
    if chance.random() < 0.45:
        tree = copy.deepcopy(tree)
        for _ in range(chance.choice((1, 1, 2, 3, 5))):
            bench.tell(extreme(tree, chance))
        return tree
    tree = bench.mutate(tree, yaml_fragment, 1, 1, 2, 3, 4)
    if chance.random() < 0.4 and isinstance(tree, dict):
        chosen = chance.sample(PATHS, chance.choice((1, 1, 2)))
        bench.replace(tree, chosen, lambda: bench.hostile_path(folder, traps))
    return tree


def recipe(bench: Bench) -> Prepared:
    """Write a bundled recipe with changes to a file of its own."""
    chance = bench.chance
    traps = set_traps(bench.folder / "traps", bench.canaries)
    name = chance.choice(sorted(bundled()))
    bench.tell(name)
    tree = mutated_recipe(bundled()[name], bench, bench.folder, traps)
    file = chance.choice(_FILES)
    bench.write(file, damaged_text(yaml_text(tree, chance), bench))
    source = f"./{file}"
    named = named_by(tree, bench.folder)
    return bench.prepared(_round_trip(source), command(*_shown(source, chance)), named=named)


def damaged_text(text: str, bench: Bench) -> bytes:
    """Return the text as bytes, seldom with something that no YAML file has."""
    chance = bench.chance
    content = as_bytes(text)
    if chance.random() >= 0.08:
        return content
    position = chance.randrange(len(content) + 1)
    odd = chance.choice(_ODD_BYTES)
    bench.tell(f"{odd[:10]!r} at {position}")
    whole = chance.random()
    if whole < 0.1:
        return content.decode("utf-8", "replace").encode("utf-16")
    return content[:position] + odd + content[position:]


def _shown(source: str, chance: Random) -> tuple[str, ...]:
    """Return the words of a command that shows or checks a recipe."""
    rate: tuple[str, ...] = ()
    if chance.random() < 0.2:
        rate = ("--rate", chance.choice(("1", "0.000001", "1e300", "inf", "nan", "-1")))
    json = ("--json",) if chance.random() < 0.3 else ()
    return chance.choice((("show", source, *json), ("check", source, *json, *rate)))


def _round_trip(source: str, *overrides: str) -> Step:
    return Step("load, plan, dump", function=lambda: _check_round_trip(source, overrides))


def _check_round_trip(source: str, overrides: tuple[str, ...]) -> None:
    """Plan, estimate and write a recipe that loads, and check that its portable text is the same
    recipe."""
    from counterfoil.plan.estimate import estimate
    from counterfoil.plan.layout import make_plan
    from counterfoil.recipe import dump_recipe, load_recipe, load_recipe_text

    loaded = load_recipe(source, overrides)
    plan = make_plan(loaded)
    estimate(plan)
    again = load_recipe_text(loaded.portable_yaml)
    if (again.plan_hash, again.screen_hash) != (loaded.plan_hash, loaded.screen_hash):
        raise AssertionError("a hash of the portable text is another")
    if load_recipe_text(dump_recipe(loaded)) != loaded:
        raise AssertionError("the written recipe is another")


def named_by(tree: Any, folder: Path) -> frozenset[str]:
    """Return the files that a recipe names as layers or lists of classes, and their folders (for
    near names)."""
    named = set()
    for leaf in places(tree):
        value = at(tree, leaf)
        if leaf[-1] in _NAMES_FILES and isinstance(value, str) and "\0" not in value:
            for path in (folder / value, _at_home(value), folder / _at_home(value)):
                with contextlib.suppress(OSError, ValueError):
                    both = (os.path.normpath(path), os.path.realpath(path))
                    named |= {*both, *(str(Path(each).parent) for each in both)}
    return frozenset(named)


def _at_home(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # no user of this machine has this name
        return Path(path)


def override(bench: Bench) -> Prepared:
    """Load a bundled recipe with odd `--set` options."""
    chance = bench.chance
    traps = set_traps(bench.folder / "traps", bench.canaries)
    name = chance.choice([name for name in sorted(bundled()) if name != "layer"])
    tree = bundled()[name]
    options = [_option(tree, bench, traps) for _ in range(chance.choice((1, 1, 2, 5)))]
    bench.tell(*options)
    words = [word for option in options for word in ("--set", option)]
    named = frozenset().union(*(_named_by_option(option, bench.folder) for option in options))
    source = chance.choice((name, name, name, str(odd_value(chance))[:5_000].replace("\0", "")))
    shown = command(*_shown(source, chance), *words)
    named |= named_by({"extends": source}, bench.folder)
    return bench.prepared(_round_trip(name, *options), shown, named=named)


def _option(tree: Any, bench: Bench, traps: Path) -> str:
    chance = bench.chance
    path = chance.choice([leaf for leaf in places(tree) if len(leaf) <= 4])
    if chance.random() < 0.3:
        path = chance.choice(PATHS)
        value = bench.hostile_path(traps=traps)
        path = tuple(part for part in path if isinstance(part, str))
    elif chance.random() < 0.3:
        value = yaml_fragment(chance)
    else:
        value = odd_value(chance)
    key = ".".join(map(str, path))
    if chance.random() < 0.1:
        key = chance.choice((*_ODD_KEYS, str(path)))
    text = written(value, _flow)
    equals = "" if chance.random() < 0.03 else "="
    # An argument of a command holds no NUL and is at most 128 kB.
    return f"{key}{equals}{text.strip()}".replace("\0", "")[:120_000]


def _flow(leaf: Any) -> str:
    text = yaml.safe_dump(leaf, default_flow_style=True, width=1_000_000)
    return text.removesuffix("...\n")


def _named_by_option(option: str, folder: Path) -> frozenset[str]:
    key, _, text = option.partition("=")
    name = key.rpartition(".")[2]
    if name == "dataset":
        path = folder / text.strip()
        with contextlib.suppress(OSError, ValueError):
            files = islice(path.rglob("*"), 5000) if path.is_dir() else ()
            return frozenset(
                way(path) for path in (path, *files) for way in (os.path.normpath, os.path.realpath)
            )
    if name not in _NAMES_FILES or "&" in text:  # aliases of aliases make a tree too large to walk
        return frozenset()
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return frozenset()
    return named_by({name: value}, folder)


def cut(bench: Bench) -> Prepared:
    """Cut a dataset as it was built by a file with changes."""
    chance = bench.chance
    directory = bench.copy(chance.choice((PARQUET, TAR, TOKENS)))
    tree = yaml.safe_load(_CUT)
    for key in ("screen", "prompts"):
        if chance.random() < 0.4:
            del tree[key]
    tree = tree or {"screen": {"shift_threshold": 0.3}}
    if chance.random() < 0.5:
        thresholds = [path for path in places(tree) if str(path[-1]).endswith("threshold")]
        chosen = chance.sample(thresholds, min(2, len(thresholds)))
        bench.replace(tree, chosen, lambda: chance.choice(_ENDS))
    else:
        tree = bench.mutate(tree, yaml_fragment, 1, 1, 2)
    bench.write("cut.yaml", damaged_text(yaml_text(tree, chance), bench))
    out = ("--out", "recut") if chance.random() < 0.3 else ("--in-place", "--yes")
    words = ("calibrate", directory.name, "--apply", "cut.yaml", "--device", "cpu", *out)
    return bench.prepared(command(*words))


def recipe_bytes(bench: Bench) -> Prepared:
    """Damage the bytes of a recipe's file, and give its path."""
    chance = bench.chance
    texts = [yaml.safe_dump(tree).encode() for tree in bundled().values()]
    content = bench.damage(chance.choice(texts), chance.choice(texts), "r.yaml: ")
    bench.write("r.yaml", content)
    return bench.prepared(_round_trip("./r.yaml"), command("check", "./r.yaml"))
