"""findings.csv: the findings document as one flat table."""

from __future__ import annotations

from typing import Any

from counterfoil.csv_text import csv_text
from counterfoil.documents import plain
from counterfoil.mining.findings import Finding, Findings, Rate

_RATE = ("rows", "units", "failures", "rate", "rate_low", "rate_high")
CSV_COLUMNS = (
    "name", "confirmed", "classes", "class_names", "role", "words", "caption", "prompt", "tested_on",
    *(f"set_{column}" for column in _RATE), *(f"rest_{column}" for column in _RATE),
    "difference", "difference_low", "difference_high", "reported_low", "reported_high", "p", "q",
    *(f"discover_set_{column}" for column in _RATE), *(f"discover_rest_{column}" for column in _RATE),
    "discover_difference", "caption_share", "target", "method",
    "origin", "pairs", "pairs_both", "pairs_failing", "pairs_rescued", "log_e", "state",
    "fresh_pairs", "fresh_both", "fresh_failing", "fresh_rescued", "outside", "words_untrusted",
    "labels", "labels_rows", "labels_mislabelled", "labels_share", "labels_right_share",
)  # fmt: skip


def _flat(findings: Findings, one: Finding) -> dict[str, Any]:
    low, high = one.difference.interval or (None, None)
    reported_low, reported_high = one.difference.reported_interval or (None, None)
    named, pairs, labels = one.discover, one.pairs, one.labels
    fresh = None if pairs is None else pairs.fresh
    row = {
        "name": one.name,
        "confirmed": str(one.confirmed).lower(),
        "classes": " ".join(one.classes),
        "class_names": ", ".join(one.class_names),
        "role": one.role,
        "words": one.words,
        "caption": one.caption,
        "prompt": one.prompt,
        "tested_on": one.tested_on,
        **_flat_rate("set", one.set),
        **_flat_rate("rest", one.rest),
        "difference": one.difference.value,
        "difference_low": low,
        "difference_high": high,
        "reported_low": reported_low,
        "reported_high": reported_high,
        "p": one.p,
        "q": one.q,
        **_flat_rate("discover_set", None if named is None else named.set),
        **_flat_rate("discover_rest", None if named is None else named.rest),
        "discover_difference": None if named is None else named.difference.value,
        "caption_share": None if one.caption_check is None else one.caption_check.share,
        "target": findings.target.name,
        "method": findings.method.name,
        "origin": one.origin,
        "pairs": None if pairs is None else pairs.pairs,
        "pairs_both": None if pairs is None else pairs.both,
        "pairs_failing": None if pairs is None else pairs.failing,
        "pairs_rescued": None if pairs is None else pairs.rescued,
        "log_e": None if pairs is None or not pairs.looks else pairs.looks[-1].log_e,
        "state": None if pairs is None else pairs.state,
        "fresh_pairs": None if fresh is None else fresh.pairs,
        "fresh_both": None if fresh is None else fresh.both,
        "fresh_failing": None if fresh is None else fresh.failing,
        "fresh_rescued": None if fresh is None else fresh.rescued,
        "outside": " ".join(one.outside),
        "words_untrusted": str(one.words_untrusted).lower(),
        "labels": None if labels is None else labels.verdict,
        "labels_rows": None if labels is None else labels.rows,
        "labels_mislabelled": None if labels is None else labels.mislabelled,
        "labels_share": None if labels is None else labels.share,
        "labels_right_share": None if labels is None else labels.right_share,
    }
    return {column: plain(value) for column, value in row.items()}


def _flat_rate(prefix: str, rate: Rate | None) -> dict[str, Any]:
    if rate is None:
        return dict.fromkeys(f"{prefix}_{column}" for column in _RATE)
    low, high = rate.interval or (None, None)
    values = (rate.rows, rate.units, rate.failures, rate.rate, low, high)
    return {f"{prefix}_{column}": value for column, value in zip(_RATE, values, strict=True)}


def findings_csv(findings: Findings) -> str:
    """The text of findings.csv: a row for each hypothesis that was tested, in the document's order; None is empty."""
    return csv_text((_flat(findings, one) for one in findings.findings), CSV_COLUMNS)
