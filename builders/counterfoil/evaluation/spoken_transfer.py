"""Transfer as people read it: rows of a table in the order of kinship with the judge, and the sentence above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.transfer import JUDGE, OTHER, RELATIONS, SAME_ARCHITECTURE, SAME_FAMILY, TOP1, TOP3
from counterfoil.report.nested import Transfer, TransferScore

MOST_JUDGES = 6
MOST_SHIFTS = 40
_MOST_NAMES = 5
RELATION_WORDS = {
    JUDGE: "the judge itself",
    SAME_ARCHITECTURE: "same architecture, other weights",
    SAME_FAMILY: "same family",
    OTHER: "other family",
}


@dataclass(frozen=True)
class SpokenTransfer:
    """A judge: a sentence of what was kept, one of what transfers, and its models over all shifts and by shift.

    by_shift: (shift, a score a row or None), in the order of `rows`; `more_shifts` of them are not shown. beside: the
    names of images beside the dataset.
    """

    transfer: Transfer
    kept: str
    found: str
    rows: tuple[TransferScore, ...]
    names: tuple[str, ...]
    by_shift: tuple[tuple[str, tuple[TransferScore | None, ...]], ...]
    more_shifts: int
    beside: tuple[str, ...]
    top3: bool


def spoken_transfer(evaluation: Evaluation) -> tuple[SpokenTransfer, ...]:
    """The judges that are shown, in the recipe's order."""
    short = {model.name: model.short_name for model in evaluation.models}
    return tuple(_spoken(one, short) for one in evaluation.transfer[:MOST_JUDGES])


def by_kinship(scores: Sequence[TransferScore]) -> list[TransferScore]:
    """The judge first, then its architecture, its family, and others by family; equal ones as they were scored."""
    return sorted(scores, key=lambda one: (RELATIONS.index(one.relation), one.family))


def kept_words(transfer: Transfer) -> str:
    """How the images were chosen: by which judges, and how many of them had to be wrong."""
    names = transfer.classes_near_chance
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    told = f" Not counted: {', '.join(names[:_MOST_NAMES])}{more}, near chance on the base." if names else ""
    return _kept_words(transfer) + told


def _kept_words(transfer: Transfer) -> str:
    rules = sorted({(len(shift.judges), shift.at_least) for shift in transfer.shifts})
    failures = sorted({shift.failure for shift in transfer.shifts} - {TOP1})
    by_rule = f", by the failure rule {' or '.join(failures)}" if failures else ""
    images = f"{transfer.images:,} image{'s' if transfer.images != 1 else ''}"
    captions = f"{transfer.captions:,} caption{'s' if transfer.captions != 1 else ''}"
    if rules == [(1, 1)]:
        return f"{images} of {captions} are here because {transfer.judge} was wrong about them{by_rule}."
    needed = " or ".join(f"{least} of {judges}" for judges, least in rules)
    had_to_be = f"where {needed} judges had to be{by_rule}"
    return f"{images} of {captions} are here with {transfer.judge} wrong about them, {had_to_be}."


def found_words(transfer: Transfer) -> str:
    """The range of the other models' top-1 rates, by kinship, without those near chance; nothing without any."""
    parts = []
    for relation in RELATIONS[1:]:
        sound = [score for score in transfer.of(None) if score.model not in transfer.near_chance]
        rates = [score.rate(TOP1) for score in sound if score.relation == relation]
        values = sorted(round(100 * rate.rate.value) for rate in rates if rate is not None)
        if values:
            models = f"{len(values)} model{'s' if len(values) != 1 else ''}"
            spread = f"{values[0]} %" if values[0] == values[-1] else f"{values[0]} to {values[-1]} %"
            parts.append(f"{spread} of them ({models} of {_of(relation)})")
    return f"Others are wrong about {', '.join(parts)}." if parts else ""


def _of(relation: str) -> str:
    return {SAME_ARCHITECTURE: "its architecture", SAME_FAMILY: "its family", OTHER: "other families"}[relation]


def _named(model: str, transfer: Transfer, short: dict[str, str]) -> str:
    return short.get(model, model) + (" (near chance)" if model in transfer.near_chance else "")


def _spoken(transfer: Transfer, short: dict[str, str]) -> SpokenTransfer:
    rows = tuple(by_kinship(transfer.of(None)))
    shifts = [shift.shift for shift in transfer.shifts] if len(transfer.shifts) > 1 else []
    by_shift = []
    for shift in shifts[:MOST_SHIFTS]:
        scores = {score.model: score for score in transfer.of(shift)}
        by_shift.append((shift, tuple(scores.get(row.model) for row in rows)))
    return SpokenTransfer(
        transfer=transfer,
        kept=kept_words(transfer),
        found=found_words(transfer),
        rows=rows,
        names=tuple(_named(row.model, transfer, short) for row in rows),
        by_shift=tuple(by_shift),
        more_shifts=max(0, len(shifts) - MOST_SHIFTS),
        beside=tuple(dict.fromkeys(name for row in rows for rate in row.rates for name in rate.beside)),
        top3=any(row.rate(TOP3) for row in rows),
    )
