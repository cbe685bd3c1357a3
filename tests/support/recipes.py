"""Small recipes, and what refusals say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from counterfoil.errors import ProblemLine, UserError
from counterfoil.recipe import Recipe, load_recipe


def mini(*changes: str) -> Recipe:
    """Return the smallest bundled recipe, with `a.b=c` changes."""
    return load_recipe("wardrobe-mini", changes)


def refusal(call: Callable[..., object], *arguments: Any, **options: Any) -> UserError:
    with pytest.raises(UserError) as refused:
        call(*arguments, **options)
    return refused.value


def problems(call: Callable[..., object], *arguments: Any, **options: Any) -> list[ProblemLine]:
    """Return what a call is refused for, a line each."""
    return list(refusal(call, *arguments, **options).problems)


def says(lines: Sequence[ProblemLine], path: str, code: str, *words: str) -> bool:
    """Return whether a problem has this path and code, and says these words: a near name, or what
    sets it apart from others of its code."""
    for line in lines:
        missing = [word for word in words if word not in line]
        if (line.path, line.code) == (path, code) and not missing:
            return True
    return False


def assert_refused(name: str, expected: str, *changes: str) -> None:
    """Check that a bundled recipe with these changes is refused. expected: "PATH CODE", or "PATH CODE
    WORDS", of a problem."""
    lines = problems(load_recipe, name, changes)
    assert says(lines, *expected.split(" ", 2)), lines
