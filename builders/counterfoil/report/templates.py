"""The Jinja2 templates of cards and pages: where they lie, in a package or a checkout, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment
    from jinja2.bccache import Bucket


def templates_folder(template: str) -> Path:
    """Return the folder that holds this template. Raise RunFailure when an installation lacks it."""
    package = Path(str(files("counterfoil")))
    for folder in (package / "_cards", package.parent.parent / "cards"):
        if (folder / template).is_file():
            return folder
    raise RunFailure(f"the template {template} is missing from this installation", hint="Install Counterfoil again.")


def template_environment(
    template: str, filters: Mapping[str, Callable[..., Any]] | None = None, *, markdown: bool = False
) -> Environment:
    """Return what reads a template: a name that it lacks is an error, and everything put into a page is escaped.

    filters: by the names that the template calls them. Nothing is escaped in `markdown`, whose filters make text safe.
    Raises as `templates_folder`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(templates_folder(template)),
        autoescape=not markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=markdown,
        bytecode_cache=_compiled(),
    )
    environment.filters |= filters or {}
    return environment


@cache
def _compiled() -> BytecodeCache:
    """Return what this process has compiled: a template takes longer to compile than to render."""
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
