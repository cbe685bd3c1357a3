"""Where what can be computed again is kept for a person: under XDG_CACHE_HOME, or ~/.cache."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Counterfoil's folder in the user's cache; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "counterfoil"
