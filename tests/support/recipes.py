"""Small recipes, and what refusals say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, load_recipe


def mini(*changes: str) -> Recipe:
    """Return the smallest bundled recipe, with `a.b=c` changes."""
    return load_recipe("wardrobe-mini", changes)


def refusal(call: Callable[..., object], *arguments: Any, **options: Any) -> UserError:
    with pytest.raises(UserError) as refused:
        call(*arguments, **options)
    return refused.value


def problems(call: Callable[..., object], *arguments: Any, **options: Any) -> list[str]:
    """Return what a call is refused for, a line each."""
    return list(refusal(call, *arguments, **options).problems)
