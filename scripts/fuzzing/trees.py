"""Mutations of trees of plain values, as recipes and JSON are, and their writing with what no tree
can hold."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from fuzzing.values import Fragment, marker, odd_value

Path = tuple[Any, ...]
FragmentOf = Callable[[Random], Fragment]


# Changes nest values far deeper; no path has to lead there.
_DEEPEST = 60


def places(tree: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value below the root, down to the depth that is of use."""
    if len(path) == _DEEPEST:
        return
    items: Any = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list):
        items = enumerate(tree)
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def put(tree: Any, path: Path, value: Any) -> None:
    at(tree, path[:-1])[path[-1]] = value


def mutated(tree: Any, chance: Random, fragment: FragmentOf, times: int) -> tuple[Any, list[str]]:
    """Return a copy with `times` changes, and each change in words. The root may be replaced
    too."""
    tree = copy.deepcopy(tree)
    changes = []
    for _ in range(times):
        if not isinstance(tree, dict | list) or not tree or chance.random() < 0.01:
            tree = _new(tree, chance, fragment)
            changes.append(f"all ← {_shown(tree)}")
        else:
            changes.append(_change(tree, chance, fragment))
    return tree, changes


def _place(tree: Any, chance: Random) -> Path:
    """Return a path; each level is drawn evenly, so that a long list does not draw all."""
    path: Path = ()
    while True:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        key = chance.choice(keys)
        path = (*path, key)
        tree = tree[key]
        if not isinstance(tree, dict | list) or not tree or chance.random() < 0.2:
            return path


def _change(tree: Any, chance: Random, fragment: FragmentOf) -> str:
    path = _place(tree, chance)
    name = ".".join(str(part)[:40] for part in path)
    holder = at(tree, path[:-1])
    key = path[-1]
    old = holder[key]
    what = chance.choice(
        ("new", "new", "new", "new", "delete", "rename", "add", "borrow", "swap", "wrap", "many")
    )
    match what:
        case "delete":
            del holder[key]
            return f"{name} deleted"
        case "rename" if isinstance(holder, dict):
            other = chance.choice((f"{key}_", str(key).upper(), str(key)[:-1], odd_value(chance)))
            other = other if isinstance(other, str | int | float | None) else "x"
            del holder[key]
            holder[other] = old
            return f"{name} renamed {_shown(other)}"
        case "add":
            new = copy.deepcopy(old if chance.random() < 0.5 else _new(old, chance, fragment))
            if isinstance(holder, list):
                holder.insert(key, new)
                return f"{name} has {_shown(new)} before it"
            added = chance.choice(("x", f"{key}2", str(odd_value(chance))[:2_000]))
            holder[added] = new
            return f"{name} has {_shown(added)}: {_shown(new)} beside it"
        case "borrow":
            other = at(tree, _place(tree, chance))
            holder[key] = copy.deepcopy(other)
            return f"{name} ← {_shown(other)}"
        case "swap":
            second = _place(tree, chance)
            if second[: len(path)] != path and path[: len(second)] != second:
                value = at(tree, second)
                put(tree, second, old)
                put(tree, path, value)
                return f"{name} ↔ {'.'.join(map(str, second))[:60]}"
        case "wrap":
            wrapped = ([old], {"a": old}, [old, copy.deepcopy(old)], {str(key): old})
            holder[key] = chance.choice(wrapped)
            return f"{name} wrapped"
        case "many" if isinstance(old, list) and old:
            # Copies: a value in two places could come to hold itself.
            holder[key] = [copy.deepcopy(value) for value in old * chance.choice((2, 100, 3_000))]
            return f"{name} repeated to {len(holder[key])}"
    holder[key] = _new(old, chance, fragment)
    return f"{name} ← {_shown(holder[key])}"


def _new(old: Any, chance: Random, fragment: FragmentOf) -> Any:
    """Return another value: near the old one, odd, or one that only text can spell."""
    draw = chance.random()
    if draw < 0.15:
        return fragment(chance)
    if draw < 0.6 or old is None or isinstance(old, bool):
        return odd_value(chance)
    if isinstance(old, int | float):
        near = [old + 1, old - 1, -old, old * 1_000, [old]]
        # of a number that is too large for them
        with contextlib.suppress(OverflowError, ValueError):
            near += [old / 3, float(old), str(old)]
        return chance.choice(near)
    if isinstance(old, str):
        position = chance.randrange(len(old) + 1)
        odd = odd_value(chance)
        odd = odd if isinstance(odd, str) else "x"
        inside = old[:position] + odd + old[position:]
        changed = (old[:position], inside, old * 2, old.upper(), old[::-1], old + " ", odd + old)
        return chance.choice(changed)
    if isinstance(old, list):
        return chance.choice(
            (old[::-1], old[:1], dict.fromkeys(map(str, old), 1), old[0] if old else None)
        )
    return chance.choice((list(old), list(old.values()), str(old)[:1_000], {}))


def _shown(value: Any) -> str:
    text = value if isinstance(value, Fragment) else repr(value)
    return text if len(text) <= 60 else f"{text[:40]}…({len(text)})"


def written(tree: Any, write: Callable[[Any], str]) -> str:
    """Return a tree as text, with its fragments as they are."""
    fragments: list[Fragment] = []
    text = write(_marked(tree, fragments))
    for number, fragment in enumerate(fragments):
        mark = marker(number)
        quoted = next((q for q in (f'"{mark}"', f"'{mark}'") if q in text), mark)
        text = text.replace(quoted, fragment, 1)
    return text


def _marked(tree: Any, fragments: list[Fragment]) -> Any:
    if isinstance(tree, Fragment):
        fragments.append(tree)
        return marker(len(fragments) - 1)
    if isinstance(tree, dict):
        return {_marked(key, fragments): _marked(value, fragments) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_marked(value, fragments) for value in tree]
    return tree


def yaml_text(tree: Any, chance: Random) -> str:
    """Return YAML in one of its styles."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Without what nobody chose: anchors for equal values, and texts such as 08, which are
        numbers in YAML 1.2."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar(
            "tag:yaml.org,2002:str", value, style='"' if value[:1].isdecimal() else None
        )

    Plain.add_representer(str, text)
    flow = chance.choice((False, False, False, None, True))
    sort = chance.random() < 0.1 and _is_sortable(tree)
    return written(
        tree, lambda value: yaml.dump(value, Dumper=Plain, default_flow_style=flow, sort_keys=sort)
    )


def json_text(tree: Any, canonical: bool = False) -> str:
    """Return JSON, if `canonical` in the form of datasets."""
    if not canonical or not _is_sortable(tree):
        return written(tree, json.dumps)
    text = written(
        tree, lambda value: json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False)
    )
    return f"{text}\n"


def _is_sortable(tree: Any) -> bool:
    """Return whether the keys of each mapping can be sorted."""
    if isinstance(tree, dict):
        kinds = {type(key) is str for key in tree}
        return len(kinds) < 2 and all(map(_is_sortable, tree.values()))
    return not isinstance(tree, list) or all(map(_is_sortable, tree))


def replace_leaves(tree: Any, paths: Sequence[Path], value: Callable[[], Any]) -> list[str]:
    """Put values at these paths, making what is not there; what was put, in words."""
    changes = []
    for path in paths:
        holder = tree
        for key in path[:-1]:
            if isinstance(holder, dict):
                if not isinstance(holder.get(key), dict | list):
                    holder[key] = {}
                holder = holder[key]
            elif isinstance(holder, list) and isinstance(key, int) and key < len(holder):
                holder = holder[key]
        new = value()
        if isinstance(holder, dict):
            holder[path[-1]] = new
        elif isinstance(holder, list):
            holder.append(new)
        changes.append(f"{'.'.join(map(str, path))} ← {_shown(new)}")
    return changes
