"""Render one chat template in a separate process with limits on memory and time.

`text_models.py` runs this file as a script. The two arguments are the largest number of bytes of
memory and the largest number of characters of the rendered text. The script reads a JSON object
with `template` and `variables` from stdin. It writes a JSON object with `text` or `problem` to
stdout. A template can use the same functions as in transformers 5. The script imports nothing of
Counterfoil, because the import takes longer than rendering.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Generation(Extension):
    """Parse a `{% generation %}` block as its body. The block marks the text that a model learns in
    training."""

    tags = {"generation"}  # noqa: RUF012 (jinja's own form)

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(jinja2.utils.Namespace):
    """A namespace without access to Python's own attributes."""

    def __init__(*arguments: Any, **named: Any) -> None:
        self = arguments[0]
        arguments = arguments[1:]
        values = dict(*arguments, **named)
        for name in values:
            _refuse_private(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace has no {name!r}")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def environment() -> ImmutableSandboxedEnvironment:
    """Return a sandbox with the functions that transformers provides to its templates."""
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = _tojson
    functions: dict[str, Any] = {
        "raise_exception": _raise_exception,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "namespace": _Namespace,
    }
    sandbox.globals.update(functions)
    return sandbox


def main() -> None:
    memory, characters = map(int, sys.argv[1:])
    request = json.load(sys.stdin)
    # Some systems cannot limit the memory of a process.
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        text = environment().from_string(request["template"]).render(**request["variables"])
        answer = {"text": text}
        if len(text) > characters:
            answer = {"problem": f"it says more than {characters:,} letters"}
        sys.stdout.write(json.dumps(answer))
    except MemoryError:
        sys.stdout.write(
            json.dumps({"problem": f"it takes more than {memory >> 20:,} MB of memory"})
        )
    except Exception as error:  # a template may raise anything
        reason = " ".join(str(error).split())
        problem = f"{reason} ({type(error).__name__})"
        sys.stdout.write(json.dumps({"problem": problem[:1_000]}))


if __name__ == "__main__":
    main()
