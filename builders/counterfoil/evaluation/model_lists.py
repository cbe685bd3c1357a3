"""Turn the words after `--models` into model names: each is a name, or a file that lists names.

A list is plain text: one name a line; blank lines, and whatever follows a `#`, are ignored. A word is a
file when it starts with `@`, when it ends in `.txt`, or when such a file exists and no timm model is
called so. Paths in a list are read as on the command line, from the working folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.recipe.names import is_local
from counterfoil.regular_files import named_path, read_regular

# A list of every model there is takes about 50 kB; larger files are weights named by mistake.
LARGEST_LIST = 1_000_000
_SOURCE = re.compile(r"[a-z][a-z_-]+:")
_COMMENT = re.compile(r"(^|\s)#.*")


@dataclass(frozen=True)
class NamedModel:
    """A model's name, and where it was listed; `place` is None for one named directly."""

    name: str
    place: str | None = None


def named_models(words: Sequence[str | Path]) -> tuple[tuple[NamedModel, ...], tuple[str, ...]]:
    """The models that the words name, each once, in order; and what is wrong with the lists, one text a problem."""
    models: dict[str, NamedModel] = {}
    problems: list[str] = []
    for word in words:
        file = _list_file(word)
        found = [NamedModel(str(word))] if file is None else _read_list(file, problems)
        for one in found:
            models.setdefault(one.name, one)
    return tuple(models.values()), tuple(problems)


def _list_file(word: str | Path) -> Path | None:
    """The file that a word means, or None for a model's name."""
    if isinstance(word, Path):
        return named_path(word)
    if word.startswith("@"):
        return named_path(word[1:])
    if _SOURCE.match(word):
        return None
    file = named_path(word)
    if file.suffix == ".txt":
        return file
    return file if file.is_file() and not _is_timm_name(word) else None


def _is_timm_name(word: str) -> bool:
    import timm

    return timm.is_model(word.partition(".")[0])


def _read_list(file: Path, problems: list[str]) -> list[NamedModel]:
    before = len(problems)
    try:
        text = read_regular(file, LARGEST_LIST).decode("utf-8-sig")
    except FileNotFoundError:
        problems.append(f"there is no list of models {file}")
        return []
    except UnicodeDecodeError:
        problems.append(f"{file} is no list of models: expected plain text, one name a line")
        return []
    except OSError as error:
        problems.append(f"the list of models {file} cannot be read: {error.strerror or error}")
        return []
    models = []
    for number, line in enumerate(text.splitlines(), start=1):
        name = _COMMENT.sub("", line).strip()
        if not name:
            continue
        wrong = _line_problem(name)
        if wrong is None:
            models.append(NamedModel(name, f"{file}, line {number}"))
        else:
            problems.append(f"{file}, line {number}: {wrong}")
    if not models and len(problems) == before:
        problems.append(f"{file} lists no model")
    return models


def _line_problem(name: str) -> str | None:
    """What is wrong with a line of a list, or None."""
    shown = name if len(name) <= 60 else f"{name[:60]} …"
    if not name.isprintable():
        return f"found {shown!r}, expected one name in printable letters"
    if name.startswith("@"):
        return f"found '{shown}', but a list cannot name another list"
    # Only the name of a folder or a file may hold these.
    if re.search(r"[\s,;]", name) and not (_SOURCE.match(name) and is_local(name)):
        return f"found '{shown}', expected one name a line and nothing else"
    return None
