"""What tells one half of labelled images from another: a hash of its keys."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def keys_sha256(keys: Sequence[str]) -> str:
    """sha256 over keys in their order."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()
