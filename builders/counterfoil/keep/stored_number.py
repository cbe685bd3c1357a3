"""Numbers as a column of float32 holds them, so that what is measured and what is asked are compared in one form."""

from __future__ import annotations

import struct


def as_stored(value: float) -> float:
    """The float32 number that is nearest."""
    return struct.unpack("f", struct.pack("f", value))[0]
