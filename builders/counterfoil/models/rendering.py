"""Render one chat template, in a process that does nothing else: what it may take is bounded from outside.

Run as a script by `text_models.py`: bytes of memory and letters of output in the arguments, a JSON of template and
variables on stdin, a JSON of `text` or `problem` on stdout. What templates may ask for is what transformers offers
them (5.x, `chat_template_utils`). Nothing of this package is imported: that would take longer than to render.
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
    """`{% generation %}`, which marks what the model is to learn: its body is rendered as it stands."""

    tags = {"generation"}  # noqa: RUF012 (jinja's own form)

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(jinja2.utils.Namespace):
    """A namespace whose names lead to nothing of Python's."""

    def __init__(*arguments: Any, **named: Any) -> None:
        self, arguments = arguments[0], arguments[1:]
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
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def environment() -> ImmutableSandboxedEnvironment:
    """Where templates are rendered: a sandbox with what transformers' templates ask for."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = _tojson
    offered: dict[str, Any] = {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "namespace": _Namespace,
    }
    made.globals.update(offered)
    return made


def main() -> None:
    memory, characters = map(int, sys.argv[1:])
    asked = json.load(sys.stdin)
    # Windows has no such bound, nor has every other system.
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        text = environment().from_string(asked["template"]).render(**asked["variables"])
        answer = {"text": text} if len(text) <= characters else {"problem": f"it says more than {characters:,} letters"}
        sys.stdout.write(json.dumps(answer))
    except MemoryError:
        sys.stdout.write(json.dumps({"problem": f"it takes more than {memory >> 20:,} MB of memory"}))
    except Exception as error:  # whatever a template of any content makes it raise
        sys.stdout.write(json.dumps({"problem": f"{' '.join(str(error).split())} ({type(error).__name__})"[:1_000]}))


if __name__ == "__main__":
    main()
