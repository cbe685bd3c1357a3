"""Names of classes and of outputs as they are compared: without case, and `_`, `-` and spaces are one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from counterfoil.recipe.names import nearest
from counterfoil.recipe.prompts import RecipeClass

MOST_LINES = 10
_LONGEST_NAME = 32
# The nearest name is looked for among this many: comparing thousands with thousands takes minutes.
_MOST_COMPARED = 2_000
_SEPARATORS = re.compile(r"[\s_-]+")


def plain_name(name: str) -> str:
    """A name in the form in which names are compared."""
    return _SEPARATORS.sub(" ", name.casefold()).strip()


def unique_names(classes: Sequence[RecipeClass]) -> tuple[str, ...]:
    """A name for each class that is no other's: its own, or its id where another class has the same name."""
    times = Counter(plain_name(one.name) for one in classes)
    return tuple(one.name if times[plain_name(one.name)] == 1 else one.id for one in classes)


def side_by_side(missing: Sequence[RecipeClass], names: Sequence[str], taken: Iterable[int | None]) -> list[str]:
    """At most some ten lines: classes that were not found, and outputs that are left, the nearest beside its class."""
    used = set(taken)
    left = [name for output, name in enumerate(names) if output not in used]
    by_folded = {name.casefold(): name for name in reversed(left[:_MOST_COMPARED])}
    close = [nearest(one.name.casefold(), by_folded) for one in missing[:MOST_LINES]]
    beside = [f"{_cut(by_folded[name])}  (nearest)" if name is not None else None for name in close]
    others = iter(_cut(name) for name in left if name.casefold() not in close)
    right = [name or next(others, "") for name in beside]
    right += [name for _, name in zip(range(MOST_LINES - len(right)), others, strict=False)]
    texts = [one.name if one.id == one.name else f"{one.name} ({one.id})" for one in missing]
    texts = [*(_cut(text) for text in texts[:MOST_LINES]), *[""] * (len(right) - len(beside))]
    rows = [("classes", "outputs that are left"), *zip(texts, right, strict=True)]
    more = len(missing) - len(beside), len(left) - sum(map(bool, right))
    if any(count > 0 for count in more):
        rows.append((f"and {more[0]:,} more" if more[0] else "", f"and {more[1]:,} more" if more[1] > 0 else ""))
    width = max(len(text) for text, _ in rows)
    return [f"  {text:<{width}} | {name}".rstrip() for text, name in rows]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
