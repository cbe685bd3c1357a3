"""What of a model's folder is published: a timm configuration, safetensors, the note of its mending, its card.

Anything else beside them is refused, not left out: whoever made the folder may mean it, or may not know of it.
"""

from __future__ import annotations

import re
from pathlib import Path

from counterfoil.errors import UserError
from counterfoil.models.mended import MENDED
from counterfoil.store.layout import CARD, LOCK

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_OWN = frozenset({CONFIG, WEIGHTS, MENDED, CARD})
# They go along and stay whoever wrote them, here and there.
_BESIDE = frozenset({"LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE"})
_MOST_TOLD = 10

# How keys begin that open somebody's account; none of them is ever repeated in a message.
_SECRETS = (
    ("a token of the Hub", re.compile(r"\bhf_[A-Za-z0-9]{20,}")),
    ("a key of a language model's service", re.compile(r"\bsk-[A-Za-z0-9_-]{20,}")),
    ("a token of GitHub", re.compile(r"\b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}")),
    ("a key of a cloud", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}")),
    ("a token of Slack", re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("a password in an address", re.compile(r"\bhttps?://[^\s/:@]+:[^\s/@]+@")),
)


def is_of_a_model(path: str) -> bool:
    """Whether a path of a repository is one that publishing a model owns: it replaces and deletes only these."""
    return path in _OWN


def is_model_folder(directory: Path) -> bool:
    """Whether a folder looks like a model's, and like no dataset."""
    return (directory / CONFIG).is_file() and not (directory / LOCK).exists()


def model_paths(directory: Path) -> list[str]:
    """The files of a model's folder. UserError with all that is no such file, or is missing; none of them is opened."""
    if not directory.is_dir():
        raise UserError(f"{directory} is no folder, expected one of a model", "Name what `counterfoil mend` left.")
    names, problems = [], []
    for entry in sorted(directory.iterdir()):
        if wrong := _wrong(entry):
            problems.append(f"{directory}: {ascii(entry.name)[1:-1]} {wrong}")
        else:
            names.append(entry.name)
    problems += [f"{directory}: there is no {name}" for name in (CONFIG, WEIGHTS) if not (directory / name).exists()]
    if problems:
        more = [f"and {len(problems) - _MOST_TOLD} more"] if len(problems) > _MOST_TOLD else []
        raise UserError(
            [*problems[:_MOST_TOLD], *more],
            f"A model's folder has {CONFIG} and {WEIGHTS}, and may have {CARD}, {MENDED} and a LICENSE; nothing else is"
            " sent. Move the rest out of it.",
        )
    return names


def _wrong(entry: Path) -> str | None:
    """What is wrong with an entry of the folder; None for a file that is published."""
    if entry.is_symlink():
        return "is a link, expected a regular file"
    if entry.name.startswith("."):
        return "is hidden"
    if entry.name not in _OWN | _BESIDE:
        return "is a folder that no timm model has" if entry.is_dir() else "is no file of a timm model with safetensors"
    return None if entry.is_file() else "is no regular file"


def secret_problems(texts: dict[str, str]) -> list[str]:
    """A line for each place of some texts, by file, that holds what nobody else may see; never what stands there."""
    found = []
    for name, text in texts.items():
        for what, pattern in _SECRETS:
            for match in pattern.finditer(text):
                found.append(f"{name}, line {text.count(chr(10), 0, match.start()) + 1}: holds what looks like {what}")
    return list(dict.fromkeys(found))
