"""What may not be on both sides: images to learn from and images to judge by share no picture, unit or noise.

Nor may what is judged here have told the words of what is learned from: contexts are named on the discover half alone.
Confirmed findings were chosen by the confirm half, so images of these are judged by the test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.evaluation.floor import find_floor
from counterfoil.mending.given import told_names
from counterfoil.report.words import counted

_MOST_PROBLEMS = 20
_MOST_NAMES = 8
_LEAST_LEARNED = "Leave these out, or name other splits (--test, --on) or another dataset."


@dataclass(frozen=True)
class Known:
    """What is known of some images. keys, pixels: one each; None where an image cannot be decoded.

    units: one each, of the dataset `of`, which alone can compare them. seeds: of the noise that images began with.
    edited: keys of the rows of the dataset `edited_of` that they are edits of.
    """

    name: str
    keys: Sequence[str]
    pixels: Sequence[str | None]
    units: Sequence[str] | None = None
    of: str | None = None
    seeds: frozenset[int] = frozenset()
    edited: frozenset[str] = frozenset()
    edited_of: str | None = None


def refuse_shared(learned: Iterable[Known], judged: Sequence[Known], test: Sequence[Known] = ()) -> None:
    """UserError, with everything that both sides share.

    test: what is judged on beside `judged`, a half of which chooses λ and teaches heads of balanced groups: these two
    share nothing either.
    """
    problems = []
    for ours in learned:
        for theirs in (*judged, *test):
            problems += _shared(ours, theirs)
    for ours in judged:
        for theirs in test:
            problems += _shared(ours, theirs)
    if problems:
        raise UserError(
            problems[:_MOST_PROBLEMS], f"What is learned from, or chooses λ, judges nothing. {_LEAST_LEARNED}"
        )


def _shared(ours: Known, theirs: Known) -> list[str]:
    found = []
    seen = {digest: key for key, digest in zip(theirs.keys, theirs.pixels, strict=True) if digest is not None}
    same = [(key, seen[digest]) for key, digest in zip(ours.keys, ours.pixels, strict=True) if digest in seen]
    if same:
        found.append(
            f"{counted(len(same), 'image')} of {ours.name} and {theirs.name} are the same, such as {same[0][1]}"
        )
    if ours.units is not None and theirs.units is not None and ours.of == theirs.of:
        units = sorted(set(ours.units) & set(theirs.units))
        if units:
            found.append(f"{ours.name} and {theirs.name} share {counted(len(units), 'unit')}, such as {units[0]}")
    for edits, rows in ((ours, theirs), (theirs, ours)):
        edited = sorted(edits.edited.intersection(rows.keys)) if edits.edited_of == rows.of else []
        if edited:
            images = counted(len(edited), "image")
            found.append(f"{edits.name} are edits of {images} of {rows.name}, such as {edited[0]}")
    both = sorted(ours.edited & theirs.edited) if ours.edited_of == theirs.edited_of else []
    if both:
        found.append(f"{ours.name} and {theirs.name} share {counted(len(both), 'edited row')}, such as {both[0]}")
    noise = ours.seeds & theirs.seeds
    if noise:
        found.append(
            f"{counted(len(noise), 'image')} of {ours.name} began with the noise of images of {theirs.name}: they have"
            " one samples.seed"
        )
    return found


class Told(Protocol):
    """What was mined: images, or weights of training rows; and of what each of its records says that it was."""

    @property
    def name(self) -> str: ...
    @property
    def mined(self) -> Sequence[Mapping[str, Any]]: ...


def refuse_told_by_judges(
    learned: Iterable[Told], audited: Mapping[str, str], discover_sha256: str, test: Mapping[str, str]
) -> tuple[str, ...]:
    """UserError for what was mined on rows that are judged here; notes of what cannot be compared with them.

    audited, test: content → name of the labelled images. discover_sha256: of the keys of this run's discover half.
    """
    problems: dict[str, None] = {}
    notes: dict[str, None] = {}
    for one in learned:
        name = told_names([one.name])[one.name]
        for told in one.mined:
            on = [
                (content, each.get("name"))
                for each in _listed(told.get("on"))
                if isinstance(content := each.get("content"), str)
            ]
            if not on:
                notes[
                    f"{name} does not tell which rows it was mined on: that none of them judges here is not known."
                ] = None
            for content, called in on:
                if content not in test and content not in audited:
                    notes[
                        f"{name} was mined on {called if _is_text(called) else 'rows without a name'}, and nothing that"
                        " is judged here has that content: they share no row if these are other images, and not the"
                        " same ones under another list of classes or another revision."
                    ] = None
                if content in test:
                    problems[f"{one.name} was mined on {test[content]}, which is the test here"] = None
                if content in audited and not test and confirm_chose(one, audited):
                    problems[
                        f"{one.name} has what the confirm half of {audited[content]} confirmed, and there is no test:"
                        " rows that chose it would judge it"
                    ] = None
                half = told.get("discover_sha256")
                if content in audited and not _is_text(half):
                    problems[
                        f"{one.name} was mined on {audited[content]} and does not tell on which half: rows that named"
                        " its contexts may judge them; mine and build it again"
                    ] = None
                elif content in audited and half != discover_sha256:
                    problems[
                        f"{one.name} was mined on other rows of {audited[content]} than the discover half here: rows"
                        " that named its contexts would judge them"
                    ] = None
    if problems:
        raise UserError(
            list(problems)[:_MOST_PROBLEMS],
            "Mend on the recipe that it was mined by, with the same mine.seed and mine.on, or name another --test.",
        )
    return tuple(notes)


def refuse_near_chance(
    model: str,
    dataset: str,
    right: NDArray[np.bool_],
    labels: NDArray[np.int64],
    chances: NDArray[np.float64],
    classes: Sequence[str],
    fewest: int,
) -> tuple[str, ...]:
    """UserError where a model is near chance on a dataset's base, as `evaluate` says it; a note of such classes.

    right, labels: (n,) of base images; chances: (classes,), how often a guess is right. Classes of fewer images than
    `fewest` are left out; of none nothing is said.
    """
    images = np.bincount(labels, minlength=len(classes))
    kept = np.flatnonzero(images >= fewest)
    if not len(kept):
        return ()
    share = np.bincount(labels, right, len(classes))[kept] / images[kept]
    floor = find_floor(share[:, None], images[kept], chances[kept][:, None])
    near = [classes[label] for label in kept[floor.classes].tolist()]
    if floor.models[0] or floor.classes.all():
        shown = ", ".join(near[:_MOST_NAMES]) + (f" and {len(near) - _MOST_NAMES:,} more" * (len(near) > _MOST_NAMES))
        which = f" (classes near chance: {shown})" if near else ""
        raise UserError(
            f"{model} is near chance on the base of {dataset}: {100 * share.mean():.1f} % of"
            f" {counted(int(images[kept].sum()), 'image')} right, and a guess"
            f" {100 * chances[kept].mean():.1f} %{which}",
            "These images do not show the model its own classes, so that it can learn nothing of its failures from"
            " them; `counterfoil evaluate` says the same. Draw them by a generator that knows these classes, or from"
            " your own photographs.",
        )
    if not near:
        return ()
    return (
        f"{model} is near chance on the base of {dataset} for {len(near):,} of {len(kept):,} classes"
        f" ({', '.join(near[:_MOST_NAMES])}): of these its images are likely of something else.",
    )


def confirm_chose(one: Told, audited: Mapping[str, str]) -> bool:
    """Whether the confirm half of rows that are audited here chose any of what is learned from.

    A recipe of findings has those that were confirmed. Contexts say whether they were and are drawn all the same; what
    was tested on drawn images alone was chosen by these.
    """
    return any(
        "finding" in told
        and "confirmed" not in told
        and told.get("tested_on") not in ("rendered", "pairs")
        and any(isinstance(each.get("content"), str) and each["content"] in audited for each in _listed(told.get("on")))
        for told in one.mined
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []
