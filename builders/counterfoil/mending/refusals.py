"""What may not be on both sides: images to learn from and images to judge by share no picture, unit or noise.

Nor may what is judged here have told the words of what is learned from: contexts are named on the discover half alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.errors import UserError
from counterfoil.mending.debug_images import DebugImages

_MOST_PROBLEMS = 20
_LEAST_LEARNED = "Leave these out, or name other splits (--test, --on) or another dataset."


@dataclass(frozen=True)
class Known:
    """What is known of some images. keys, pixels: one each; None where an image cannot be decoded.

    units: one each, of the dataset `of`, which alone can compare them. seeds: of the noise that images began with.
    """

    name: str
    keys: Sequence[str]
    pixels: Sequence[str | None]
    units: Sequence[str] | None = None
    of: str | None = None
    seeds: frozenset[int] = frozenset()


def refuse_shared(learned: Iterable[Known], judged: Sequence[Known]) -> None:
    """UserError, with everything that both sides share."""
    problems = []
    for ours in learned:
        for theirs in judged:
            problems += _shared(ours, theirs)
    if problems:
        raise UserError(problems[:_MOST_PROBLEMS], f"What is learned from judges nothing. {_LEAST_LEARNED}")


def _shared(ours: Known, theirs: Known) -> list[str]:
    found = []
    seen = {digest: key for key, digest in zip(theirs.keys, theirs.pixels, strict=True) if digest is not None}
    same = [(key, seen[digest]) for key, digest in zip(ours.keys, ours.pixels, strict=True) if digest in seen]
    if same:
        found.append(
            f"{_counted(len(same), 'image')} of {ours.name} and {theirs.name} are the same, such as {same[0][1]}"
        )
    if ours.units is not None and theirs.units is not None and ours.of == theirs.of:
        units = sorted(set(ours.units) & set(theirs.units))
        if units:
            found.append(f"{ours.name} and {theirs.name} share {_counted(len(units), 'unit')}, such as {units[0]}")
    noise = ours.seeds & theirs.seeds
    if noise:
        found.append(
            f"{_counted(len(noise), 'image')} of {ours.name} began with the noise of images of {theirs.name}: they have"
            " one samples.seed"
        )
    return found


def refuse_told_by_judges(
    debug: Iterable[DebugImages], audited: Mapping[str, str], discover_sha256: str, test: Mapping[str, str]
) -> None:
    """UserError for images whose contexts were named on rows that are judged here.

    audited, test: content → name of the labelled images. discover_sha256: of the keys of this run's discover half.
    """
    problems: dict[str, None] = {}
    for one in debug:
        for told in one.mined:
            contents = [content for each in _listed(told.get("on")) if isinstance(content := each.get("content"), str)]
            for content in contents:
                if content in test:
                    problems[f"{one.name} was mined on {test[content]}, which is the test here"] = None
                half = told.get("discover_sha256")
                if content in audited and isinstance(half, str) and half != discover_sha256:
                    problems[
                        f"{one.name} was mined on other rows of {audited[content]} than the discover half here: rows"
                        " that named its contexts would judge them"
                    ] = None
    if problems:
        raise UserError(
            list(problems)[:_MOST_PROBLEMS],
            "Mend on the recipe that it was mined by, with the same mine.seed and mine.on, or name another --test.",
        )


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
