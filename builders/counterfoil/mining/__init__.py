"""Methods that find where a classifier fails: each is a file here and a line in this table. None stands yet."""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.mining.method import DiscoverHalf, Hypothesis, Method

METHODS: Mapping[str, Method] = {}

__all__ = ["METHODS", "DiscoverHalf", "Hypothesis", "Method"]
