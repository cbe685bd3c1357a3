"""The chat template of a model's folder: a program of a stranger's, rendered in a process of its own.

transformers renders templates in jinja2's sandbox, which keeps them from files and code, and lets them take all memory
and run for ever. Here a child with bounds renders (`rendering.py`), with transformers' own words for what templates
ask for, and transformers is given the text.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.errors import RunFailure

# A template that says nothing but what it is given: transformers adds what it does around a rendered text.
AS_RENDERED = "{{ rendered }}"

# Published templates take some megabytes and a hundredth of a second.
_MOST_MEMORY = 1 << 30  # bytes; where the system bounds a process
_MOST_SECONDS = 10
_MOST_CHARACTERS = 1_000_000
_CHILD = Path(__file__).with_name("rendering.py")
# What Python needs to find itself and its packages; keys of services are not among it.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "HOME", "SYSTEMROOT", "APPDATA", "USERPROFILE")


def rendered(
    model: str, holder: Any, turns: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = False, **more: Any
) -> str:
    """What the template of a tokenizer or processor of transformers (`holder`) makes of a talk's turns.

    Images are told apart from texts by their keys alone; a template never sees one. `more` are further variables.
    RunFailure where it fails, or takes more than 1 GB, 10 seconds or a million letters.
    """
    templates = holder.chat_template
    template = templates.get("default") if isinstance(templates, Mapping) else templates
    if not isinstance(template, str):
        raise RunFailure(f"model {model!r} has no chat template of the name default")
    special = getattr(holder, "tokenizer", holder).special_tokens_map
    asked = {
        "template": template,
        "variables": {
            **special,
            **more,
            "messages": list(turns),
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        },
    }
    found = _rendered(json.dumps(asked, default=lambda value: f"<{type(value).__name__}>"))
    if "text" not in found:
        raise RunFailure(
            f"model {model!r}: its chat template cannot be rendered: {found['problem'][:300]}",
            "Correct the template, or name another model.",
        )
    return found["text"]


@functools.lru_cache(maxsize=16)  # every image is asked about in the same words
def _rendered(asked: str) -> dict[str, str]:
    bounds = [str(bound) for bound in (_MOST_MEMORY, _MOST_CHARACTERS)]
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(_CHILD), *bounds],
            input=asked.encode(),
            capture_output=True,
            timeout=_MOST_SECONDS,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"it takes more than {_MOST_SECONDS} seconds"}
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"problem": f"its process ended with {done.returncode}"}
