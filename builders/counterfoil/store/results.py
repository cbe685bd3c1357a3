"""The folder `evaluation/` of a dataset: what was measured on its images, sealed together with them.

It holds for the content of the data that it names, and for no other (`sealed_folder.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterfoil.store.sealed_folder import EVALUATED

RESULTS = EVALUATED.document


def read_results(directory: Path, content: str) -> dict[str, Any] | None:
    """The results in a dataset directory, where they are whole and of data with this content; else None."""
    return EVALUATED.read(directory, content)
