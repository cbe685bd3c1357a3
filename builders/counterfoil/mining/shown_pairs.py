"""What mining's page shows of a finding that was tested in pairs: pairs side by side, looks and wrong answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from counterfoil.mining.drawn_findings import AnswerCount
from counterfoil.mining.figures import bar_figure, looks_figure, pairs_figure
from counterfoil.mining.findings import Evidence, Finding, Findings
from counterfoil.mining.thumbnails import PictureShown, picture_uri
from counterfoil.recipe.prompts import BASE

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_PAIRS = 4
MOST_TYPICAL = 5
# Wiles 2022, Figure 2: fifteen mistakes, three images.
MOST_ANSWERS = 15
MOST_EXAMPLES = 3
_ANSWERS_WITH_PICTURES = 3


@dataclass(frozen=True, slots=True)
class AnswerShown:
    """A wrong answer with its bar, and sample images of the most frequent ones."""

    count: AnswerCount
    bar: Markup
    pictures: tuple[PictureShown, ...]


@dataclass(frozen=True, slots=True)
class PairsShown:
    """A test in pairs as it is drawn. Logarithms are natural.

    counts_from: the log e-value from which such a hypothesis of the run is confirmed; None where none is. times: how
    many times as often the description fails; None where the base never does. together: how many findings the second
    interval of the difference holds for at once. beside: base and described image.
    """

    log_e: float | None
    counts_from: float | None
    times: float | None
    together: int
    right: int
    strip: Markup
    looks: Markup | None
    beside: tuple[tuple[PictureShown, PictureShown], ...]
    before: tuple[AnswerShown, ...]
    after: tuple[AnswerShown, ...]
    shortened_from: str | None


def last_log_e(one: Finding) -> float | None:
    """The log e-value that a test in pairs ended with; None for another test, and for one without a look."""
    return one.pairs.looks[-1].log_e if one.pairs is not None and one.pairs.looks else None


def counts_from(findings: Findings, one: Finding) -> float | None:
    """The log e-value from which e-BH confirms a hypothesis beside those that it did (Wang and Ramdas 2022)."""
    rejected = len(findings.confirmed) + (0 if one.confirmed else 1)
    if not (findings.fdr and findings.tested and rejected):
        return None
    return math.log(findings.tested / (findings.fdr * rejected))


def base_key(key: str, classes: Sequence[str]) -> str | None:
    """The key of the base image that a described image has its noise from; None for what is no key of a round."""
    folder, _, sample = key.rpartition("/")
    stem, _, index = sample.rpartition("_")
    if not (folder and index.isdecimal()):
        return None
    owner = next((one for one in classes if stem.endswith(f"_{one}")), None)
    return None if owner is None else f"{folder}/{BASE}_{owner}_{index}"


def of_description(one: Finding) -> tuple[Evidence, ...]:
    """The evidence of a finding that is of its set: base images may stand beside it, as the other half of a pair."""
    if one.tested_on != "pairs":
        return one.evidence
    return tuple(piece for piece in one.evidence if base_key(piece.key, one.classes) != piece.key)


def pairs_beside(one: Finding) -> list[tuple[Evidence, Evidence]]:
    """(base, described) of the first pairs of which the description fails and the base, also evidence, is right."""
    known = {piece.key: piece for piece in one.evidence}
    pairs = []
    for piece in dict.fromkeys(of_description(one)):
        base = known.get(base_key(piece.key, one.classes) or "")
        if piece.failed and base is not None and not base.failed:
            pairs.append((base, piece))
    return pairs[:MOST_PAIRS]


def typical(one: Finding) -> tuple[list[str], list[str]]:
    """Keys of wrong and of right images of a description, without those that a pair shows already."""
    seen = {described.key for _, described in pairs_beside(one)}
    pieces = [piece for piece in of_description(one) if piece.key not in seen]
    wrong = dict.fromkeys(piece.key for piece in pieces if piece.failed)
    right = dict.fromkeys(piece.key for piece in pieces if not piece.failed)
    return list(islice(wrong, MOST_TYPICAL)), list(islice(right, MOST_TYPICAL))


def keys_of_pairs(one: Finding) -> list[str]:
    """Keys of the pictures that are shown of a test in pairs, beside the typical ones."""
    keys = [piece.key for pair in pairs_beside(one) for piece in pair]
    if one.answers is not None:
        for side in (one.answers.before, one.answers.after):
            keys += [key for answer in side[:_ANSWERS_WITH_PICTURES] for key in answer.examples[:MOST_EXAMPLES]]
    return keys


def pairs_shown(findings: Findings, one: Finding, pictures: Mapping[str, bytes]) -> PairsShown | None:
    """The drawings of a test in pairs; None for a finding that was tested otherwise."""
    test = one.pairs
    if test is None:
        return None
    line, pairs = counts_from(findings, one), pairs_beside(one)
    right = test.pairs - test.both - test.failing - test.rescued
    told = one.about.get("shortened_from")
    sides = (one.answers.before, one.answers.after) if one.answers is not None else ((), ())
    # One scale for both sides, or a rare answer of the base looks like a frequent one.
    most = max((answer.share for side in sides for answer in side[:MOST_ANSWERS]), default=0.0)
    before, after = (
        tuple(
            _answer(answer, most, look, pictures if at < _ANSWERS_WITH_PICTURES else None)
            for at, answer in enumerate(side[:MOST_ANSWERS])
        )
        for side, look in zip(sides, ("ordinary", "failing"), strict=True)
    )
    return PairsShown(
        log_e=last_log_e(one),
        counts_from=line,
        times=one.set.rate / one.rest.rate if one.set.rate and one.rest.rate else None,
        together=len(findings.standing),
        right=right,
        strip=pairs_figure(
            ((test.failing, "failing"), (test.both, "both"), (test.rescued, "rescued"), (right, "fine"))
        ),
        looks=looks_figure(test.looks, line) if test.looks else None,
        beside=tuple((_picture(base, pictures), _picture(described, pictures)) for base, described in pairs),
        before=before,
        after=after,
        shortened_from=told if isinstance(told, str) and told else None,
    )


def _picture(piece: Evidence, pictures: Mapping[str, bytes]) -> PictureShown:
    answered = f"answered {piece.answered}" if piece.failed and piece.answered is not None else piece.label or ""
    return PictureShown(picture_uri(pictures.get(piece.key)), piece.failed, answered, piece.key)


def _answer(answer: AnswerCount, most: float, look: str, pictures: Mapping[str, bytes] | None) -> AnswerShown:
    """Samples without a picture are left out: below a bar a key would say nothing."""
    shown = (
        PictureShown(picture_uri(pictures[key]), True, "", key)
        for key in (answer.examples[:MOST_EXAMPLES] if pictures else ())
        if pictures and key in pictures
    )
    return AnswerShown(answer, bar_figure(answer.share, most, look), tuple(shown))
