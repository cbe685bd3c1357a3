"""Work that ends early, because a listener raises; and an item of an engine's work, done here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from counterfoil.engines import Doing
from counterfoil.progress import listening

Result = TypeVar("Result")


class Enough(Exception):
    """Raised by a listener to end the work."""


@contextmanager
def given_up(when: Callable[[Any], bool]) -> Iterator[None]:
    """End the work within at the first event for which `when` holds; fail without one."""

    def hear(event: Any) -> None:
        if when(event):
            raise Enough

    with pytest.raises(Enough), listening(hear):
        yield


def done_of(doing: Doing[Any, Result]) -> Result:
    """Return the result of an item, without its events."""
    while True:
        try:
            next(doing)
        except StopIteration as end:
            return end.value
