"""Names of classes and of outputs as they are compared: without case, and `_`, `-` and spaces are one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from counterfoil.recipe.prompts import RecipeClass

_SEPARATORS = re.compile(r"[\s_-]+")


def plain_name(name: str) -> str:
    """A name in the form in which names are compared."""
    return _SEPARATORS.sub(" ", name.casefold()).strip()


def unique_names(classes: Sequence[RecipeClass]) -> tuple[str, ...]:
    """A name for each class that is no other's: its own, or its id where another class has the same name."""
    times = Counter(plain_name(one.name) for one in classes)
    return tuple(one.name if times[plain_name(one.name)] == 1 else one.id for one in classes)
