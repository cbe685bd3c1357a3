"""The card's table of transfer, from stored results: models on the images that a judge of the build was wrong about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What a person reads; all of it is in evaluation/transfer.csv.
MOST_JUDGES = 4
MOST_MODELS = 20
_ORDER = ("judge", "same architecture", "same family", "other")
_WORDS = {"judge": "the judge itself", "same architecture": "same architecture, other weights", "other": "other family"}


@dataclass(frozen=True, slots=True)
class TransferRow:
    """A model: its family, what it has to do with the judge, and how often it is wrong there and on the base, as text.

    itself: whether it is the judge, wrong about all by construction.
    """

    name: str
    family: str
    relation: str
    itself: bool
    top1: str
    top3: str
    base_top1: str
    base_top3: str


@dataclass(frozen=True, slots=True)
class JudgeTransfer:
    """A judge, the images and captions that it was wrong about, and rows of the first of `all_models` models."""

    judge: str
    images: int
    captions: int
    rows: tuple[TransferRow, ...]
    all_models: int


def transfer_of(results: Mapping[str, Any] | None) -> tuple[JudgeTransfer, ...]:
    """The tables of these results (see `store.results`); none where there are none, or none of this form."""
    try:
        return tuple(_judge(one) for one in (results or {}).get("transfer", ())[:MOST_JUDGES])
    except (KeyError, TypeError, ValueError, AttributeError):
        return ()  # sealed, but by another hand


def _judge(found: Mapping[str, Any]) -> JudgeTransfer:
    scores = [score for score in found["scores"] if score["shift"] is None]
    scores.sort(key=lambda score: (_ORDER.index(score["relation"]), str(score["family"])))
    return JudgeTransfer(
        judge=str(found["judge"]),
        images=int(found["images"]),
        captions=int(found["captions"]),
        rows=tuple(_row(score) for score in scores[:MOST_MODELS]),
        all_models=len(scores),
    )


def _row(score: Mapping[str, Any]) -> TransferRow:
    relation = str(score["relation"])
    first, third = (score["rates"].get(rule) for rule in ("top1", "top3"))
    return TransferRow(
        name=str(score["model"]),
        family=str(score["family"]),
        relation=_WORDS.get(relation, relation),
        itself=relation == "judge",
        top1=_rate(first),
        top3=_rate(third),
        base_top1=_base(first),
        base_top3=_base(third),
    )


def _rate(rate: Mapping[str, Any] | None) -> str:
    """A fraction in percent with its interval."""
    if rate is None:
        return "–"
    estimate = rate["rate"]
    value = f"{100 * estimate['value']:.1f}"
    if estimate["low"] is None or estimate["high"] is None:
        return value
    return f"{value} ({100 * estimate['low']:.1f} to {100 * estimate['high']:.1f})"


def _base(rate: Mapping[str, Any] | None) -> str:
    return "–" if rate is None or rate["base_rate"] is None else f"{100 * rate['base_rate']:.1f}"
