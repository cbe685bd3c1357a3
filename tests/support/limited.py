"""Code in a process of its own that may take little memory: what takes more ends it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import warm

# Libraries take memory of their own when they are first used, so the function is called once before
# it is limited.
_CODE = """
import json, resource, sys
from pathlib import Path
CODE
most, first, *others = json.loads(sys.argv[1])
function(first)
kb = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
resource.setrlimit(resource.RLIMIT_DATA, ((kb << 10) + most,) * 2)
for argument in others:
    print(json.dumps(function(argument)), flush=True)
"""


def limited(code: str, arguments: Sequence[Any], most: int) -> list[Any]:
    """Return what `function` of the code returns for each argument but the first, with `most` bytes
    more than for that.

    A process that is ended returns nothing for the rest.
    """
    words = [sys.executable, "-c", _CODE.replace("CODE", code), json.dumps([most, *arguments])]
    done = warm.run(words, dict(os.environ))
    return [json.loads(line) for line in done.stdout.splitlines()]


# What opening a folder as a dataset says.
OPENING = """
from counterfoil.data.labelled_sources import NamedDataset
from counterfoil.data.objects import cells_of
from counterfoil.data.open_source import open_source
from counterfoil.errors import CounterfoilError
def function(given):
    folder, objects = given
    try:
        rows = open_source(NamedDataset(folder, objects=objects)).rows("train", labelled=False)
        return "opened" if objects is None else f"{len(cells_of(rows, objects))} rows"
    except CounterfoilError as error:
        return f"{type(error).__name__}: {error}"
"""
