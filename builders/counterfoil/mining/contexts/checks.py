"""What a context may be: a few plain words in one line, whoever proposed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from counterfoil.recipe.checks import RecipePath, RecipeProblem
from counterfoil.recipe.names import did_you_mean

LONGEST_CONTEXT = 200  # characters
MOST_CONTEXTS = 2_000
"""Of one class, of a list or of a list and a chat model together."""


def context_problem(text: str) -> str | None:
    """What keeps a text from being a context, or None."""
    shown = text if len(text) <= 60 else f"{text[:57]}…"
    if not text.strip():
        return "found empty text, expected words"
    if not text.isprintable():
        return f"found {shown!r}, expected words in one line that can be printed"
    if len(text) > LONGEST_CONTEXT:
        return f"found '{shown}' of {len(text):,} characters, expected at most {LONGEST_CONTEXT}"
    if {*"{}"} & {*text}:
        return f"found '{shown}', expected plain words without braces"
    return None if any(map(str.isalnum, text)) else f"found '{shown}', expected words"


def list_problems(document: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Every problem of a list of contexts as (path in the file, message); parts of wrong types are borne."""
    contexts, by_name, covers = (document.get(key) for key in ("contexts", "by_name", "covers"))
    yield from _contexts(("contexts",), contexts)
    names = by_name if isinstance(by_name, Mapping) else {}
    for name, own in names.items():
        yield from _contexts(("by_name", name), own)
        if not own and own is not None:
            yield ("by_name", name), "found an empty list, expected at least one context"
    known = [name for name in covers if isinstance(name, str)] if isinstance(covers, list | tuple) else []
    for name in names:
        if known and name not in known:
            yield ("by_name", name), f"found '{name[:80]}', expected a name of `covers`{did_you_mean(name, known)}"
    if not contexts and not names:
        yield (), "found no contexts, expected `contexts` or `by_name`"


def _contexts(path: RecipePath, value: Any) -> Iterator[RecipeProblem]:
    texts: Sequence[Any] = value if isinstance(value, list | tuple) else ()
    if len(texts) > MOST_CONTEXTS:
        yield path, f"found {len(texts):,} contexts, expected at most {MOST_CONTEXTS:,}"
        return
    for index, text in enumerate(texts):
        problem = context_problem(text) if isinstance(text, str) else None
        if problem is not None:
            yield (*path, index), problem
