"""Methods that find hypotheses: each is a file here and a line in this table."""

from __future__ import annotations

from typing import Any

from counterfoil.mining.method import FindMethod, SearchMethod
from counterfoil.mining.methods.bugs.mine_bugs import BUGS
from counterfoil.mining.methods.contexts import CONTEXTS
from counterfoil.mining.methods.directions import DIRECTIONS
from counterfoil.mining.methods.slices import SLICES
from counterfoil.registry import Registry


def _problem(registered: Any) -> str | None:
    return (
        None
        if isinstance(registered, FindMethod | SearchMethod)
        else "no `FindMethod` and no `SearchMethod`"
    )


METHODS: Registry[FindMethod | SearchMethod] = Registry(
    "counterfoil.methods",
    {"directions": DIRECTIONS, "bugs": BUGS, "contexts": CONTEXTS, "slices": SLICES},
    _problem,
)
