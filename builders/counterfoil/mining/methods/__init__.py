"""Methods that find hypotheses: each is a file here and a line in this table."""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.mining.method import FindMethod, SearchMethod
from counterfoil.mining.methods.bugs.mine_bugs import BUGS
from counterfoil.mining.methods.contexts import CONTEXTS
from counterfoil.mining.methods.directions import DIRECTIONS
from counterfoil.mining.methods.slices import SLICES

METHODS: Mapping[str, FindMethod | SearchMethod] = {
    "directions": DIRECTIONS, "bugs": BUGS, "contexts": CONTEXTS, "slices": SLICES,
}  # fmt: skip
