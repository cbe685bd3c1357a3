"""Where a folder lies that a dataset pins by its content: this user's cache remembers it, so no dataset has to say.

A built dataset names no folder of the machine that it was built on. On that machine the one of this very content is
found again by its pin, for what looks at the input dataset later: a reference, controls of a review, distances.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from counterfoil.errors import CounterfoilError
from counterfoil.recipe.names import ELSEWHERE, is_local
from counterfoil.regular_files import read_regular
from counterfoil.sources.folder_content import folder_content
from counterfoil.store.atomic import write_atomically
from counterfoil.user_cache import user_cache

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Source

_MOST_BYTES = 1 << 16
_HEX = frozenset("0123456789abcdef")


def remember_folder(folder: Path, content: str) -> None:
    """Remember that a folder has this content (64 hex digits), as `folder_content` found."""
    with contextlib.suppress(CounterfoilError, OSError, RuntimeError):  # a cache that cannot be written is no cache
        place, written = _place(content), json.dumps({"folder": str(folder.resolve())}).encode()
        if not place.is_file() or read_regular(place, _MOST_BYTES) != written:
            write_atomically(place, written)


def placed(source: Source, recorded: Any) -> Source:
    """A dataset's source with the folder of this machine that has the recorded content, where one is known.

    `recorded` is the document of its pin. Any other source is given back as it is.
    """
    content = recorded.get("content") if isinstance(recorded, Mapping) else None
    if not (is_local(source.dataset) and source.dataset.startswith(ELSEWHERE)) or not _is_content(content):
        return source
    folder = _known_folder(content)
    return source if folder is None else source.model_copy(update={"dataset": str(folder)})


def _known_folder(content: str) -> Path | None:
    """The folder that had this content when it was last looked at, and has it still."""
    try:
        folder = Path(json.loads(read_regular(_place(content), _MOST_BYTES))["folder"])
        same = folder.is_absolute() and folder.is_dir() and folder_content(folder).sha256 == content
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, CounterfoilError):
        return None
    return folder if same else None


def _is_content(content: Any) -> TypeGuard[str]:
    return isinstance(content, str) and len(content) == 64 and _HEX.issuperset(content)


def _place(content: str) -> Path:
    return user_cache() / "folders-by-content" / f"{content}.json"
