"""Forgets the package in a process that was forked with it, so that it is imported beside the
plugins of that process."""

from __future__ import annotations

import sys

for name in list(sys.modules):
    if name.partition(".")[0] == "counterfoil":
        del sys.modules[name]
