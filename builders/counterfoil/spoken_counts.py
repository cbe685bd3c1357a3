"""Counts as people say them: "1 grid", "2 grids", "1,400 images", "1 class"."""

from __future__ import annotations


def counted(count: int, what: str, several: str | None = None) -> str:
    """The number and its noun, in the plural but for one: by an s, or as `several` spells it."""
    return f"{count:,} {what if count == 1 else several or f'{what}s'}"
