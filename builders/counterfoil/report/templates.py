"""The Jinja2 templates of cards and pages: their folder, in a package or a checkout, and their
environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure
from counterfoil.regular_files import visible_text

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment
    from jinja2.bccache import Bucket


def templates_folder(template: str) -> Path:
    """Return the folder that holds this template. Raise RunFailure when an installation lacks
    it."""
    package = Path(str(files("counterfoil")))
    for folder in (package / "_cards", package.parent.parent / "cards"):
        if (folder / template).is_file():
            return folder
    raise RunFailure(
        f"the template {template} is missing from this installation",
        hint="Install Counterfoil again.",
    )


def template_environment(
    template: str,
    filters: Mapping[str, Callable[..., Any]] | None = None,
    *,
    markdown: bool = False,
) -> Environment:
    """Return an environment for a template: a missing name is an error, all text is escaped, and
    `visible`.

    filters: by their names in the template. In `markdown` nothing is escaped: its filters make text
    safe. Raise as `templates_folder`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(templates_folder(template)),
        autoescape=not markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=markdown,
        finalize=_visible,
        bytecode_cache=_compiled(),
    )
    environment.policies["json.dumps_function"] = lambda value, **options: json.dumps(
        _visible(value), **options
    )
    environment.filters |= filters or {}
    return environment


def _visible(value: Any) -> Any:
    """Make the characters visible that would act on the page, in a text and in what a page's script
    reads."""
    if isinstance(value, str):
        return (
            value if value.isascii() and value.isprintable() else type(value)(visible_text(value))
        )
    if isinstance(value, dict):
        return {_visible(key): _visible(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(each) for each in value]
    return value


@cache
def _compiled() -> BytecodeCache:
    """Return the compiled templates of this process: compiling one takes longer than rendering
    it."""
    from jinja2 import BytecodeCache

    class Compiled(BytecodeCache):
        def __init__(self) -> None:
            self.kept: dict[str, bytes] = {}

        def load_bytecode(self, bucket: Bucket) -> None:
            if bucket.key in self.kept:
                bucket.bytecode_from_string(self.kept[bucket.key])

        def dump_bytecode(self, bucket: Bucket) -> None:
            self.kept[bucket.key] = bucket.bytecode_to_string()

    return Compiled()
