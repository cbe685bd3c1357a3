"""Work that ends early, since whoever hears of it raises; and an item of an engine's work, done here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from counterfoil.engines import Doing
from counterfoil.progress import listening

Result = TypeVar("Result")


class Enough(Exception):
    """Whoever listens has heard enough."""


@contextmanager
def given_up(when: Callable[[Any], bool]) -> Iterator[None]:
    """The work within ends as soon as something is told of which `when` holds; it must be told."""

    def hear(told: Any) -> None:
        if when(told):
            raise Enough

    with pytest.raises(Enough), listening(hear):
        yield


def done_of(doing: Doing[Any, Result]) -> Result:
    """The result of an item; what it tells on the way is left."""
    while True:
        try:
            next(doing)
        except StopIteration as end:
            return end.value
