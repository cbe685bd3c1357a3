"""The page of mending."""

from __future__ import annotations

from counterfoil.mending.document import Mended


def mend_report(mended: Mended) -> str:
    return f"<!doctype html><title>{mended.recipe['name']}</title>\n"
