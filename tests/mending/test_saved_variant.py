"""Which head is saved: the one that is named, before those whose names begin with its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from counterfoil.mending.one_model import _saved


@pytest.mark.parametrize(
    ("wanted", "saved"),
    [
        ("built", "built"),
        ("built:hard", "built:hard"),
        ("pool", "pool:near"),
        ("none", None),
        ("best", "retrained"),
    ],
)
def test_the_named_variant_comes_before_longer_names(wanted: str, saved: str | None) -> None:
    names = ("retrained", "built:hard", "built", "pool:near")
    results: Any = [SimpleNamespace(name=name) for name in names]
    assert _saved(wanted, "retrained", results) == saved
