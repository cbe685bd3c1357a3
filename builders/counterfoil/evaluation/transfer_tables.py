"""The table of transfer as files: transfer.csv, and its part of results.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from counterfoil.csv_text import csv_text
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tables import percent
from counterfoil.evaluation.transfer import JUDGE, RULES, TOP1
from counterfoil.report.nested import Transfer, TransferRate, TransferScore
from counterfoil.stats import Estimate

_DIGITS = 6


def transfer_csv(evaluation: Evaluation) -> str:
    """One line a judge, shift and model; an empty shift is all of them. Rates are in percent.

    `beside.NAME.RULE` are those of images beside the dataset. `by_construction` is 1 where the judge meets its own.
    """
    names = list(
        dict.fromkeys(
            name for one in evaluation.transfer for score in one.scores for rate in score.rates for name in rate.beside
        )
    )
    return csv_text(_row(one, score, names) for one in evaluation.transfer for score in one.scores)


def transfer_document(evaluation: Evaluation) -> list[dict[str, Any]]:
    """The same as JSON values: rates are fractions, intervals at the document's `confidence`."""
    return [
        {
            "judge": one.judge,
            "architecture": one.architecture,
            "family": one.family,
            "scored": one.scored,
            "captions": one.captions,
            "images": one.images,
            "shifts": [
                {
                    "name": shift.shift,
                    "judges": list(shift.judges),
                    "at_least": shift.at_least,
                    "candidates": shift.candidates,
                    "accepted": shift.accepted,
                    "images": shift.images,
                    **({} if shift.failure == TOP1 else {"failure": shift.failure}),
                }
                for shift in one.shifts
            ],
            "scores": [_score(score) for score in one.scores],
        }
        for one in evaluation.transfer
    ]


def _row(transfer: Transfer, score: TransferScore, beside: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "judge": transfer.judge,
        "shift": score.shift or "",
        "model": score.model,
        "family": score.family,
        "relation": score.relation,
        "by_construction": int(score.relation == JUDGE),
        "n_captions": score.captions,
        "n_images": score.images,
        "n_base_images": score.base_images,
    }
    for rule in RULES:
        rate = score.rate(rule)
        estimate = rate.rate if rate else None
        low, high = (estimate.low, estimate.high) if estimate else (None, None)
        row |= {
            f"failures.{rule}": "" if rate is None else rate.failures,
            f"rate.{rule}": percent(estimate.value if estimate else None),
            f"rate_low.{rule}": percent(low),
            f"rate_high.{rule}": percent(high),
            f"base_rate.{rule}": percent(rate.base_rate if rate else None),
            **{f"beside.{name}.{rule}": percent(rate.beside.get(name) if rate else None) for name in beside},
        }
    return row


def _score(score: TransferScore) -> dict[str, Any]:
    return {
        "model": score.model,
        "family": score.family,
        "relation": score.relation,
        "shift": score.shift,
        "captions": score.captions,
        "images": score.images,
        "base_images": score.base_images,
        "rates": {rate.rule: _rate(rate) for rate in score.rates},
    }


def _rate(rate: TransferRate) -> dict[str, Any]:
    return {
        "failures": rate.failures,
        "rate": _estimate(rate.rate),
        "base_rate": _number(rate.base_rate),
        "beside": {name: _number(value) for name, value in rate.beside.items()},
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": _number(estimate.value), "low": _number(estimate.low), "high": _number(estimate.high)}


def _number(value: float | None) -> float | None:
    return None if value is None else round(float(value), _DIGITS)
