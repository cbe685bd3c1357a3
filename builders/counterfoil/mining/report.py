"""The page of mining: one HTML file that says what fails, how sure that is, and what was tried; no outside resource."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from counterfoil import __version__
from counterfoil.keep.failure_names import ANSWERED
from counterfoil.mining.answered import LabelToLookAt
from counterfoil.mining.class_audits import ClassAudit
from counterfoil.mining.figures import curve_figure, rates_figure
from counterfoil.mining.findings import CaptionCheck, Finding, Findings, Rate
from counterfoil.mining.shown_pairs import PairsShown, keys_of_pairs, last_log_e, pairs_shown, typical
from counterfoil.mining.thumbnails import PictureShown, picture_uri
from counterfoil.report.templates import template_environment

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATE = "mining-report.html.j2"

# What is shown in full has at most 4 × 8 pictures of 3 kB or so: three megabytes when everything is confirmed. Of pairs
# there are up to 36 pictures, so that half as many findings are shown.
MOST_IN_FULL = 24
MOST_PAIRS_IN_FULL = 12
MOST_A_STRIP = 8
MOST_LISTED = 200
MOST_CONTEXTS = 8
MOST_CLASSES = 12
MOST_LABELS = 16
_LONGEST_TEXT = 240

_RULES = {
    "top1": "the answer is not the label",
    "top3": "the label is not among the top three answers",
    "parent": "none of the top three answers lies under the label’s parent",
}
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_WHERE = {"discover": "discover half", "confirm": "confirm half", "rendered": "rendered for the test"}


@dataclass(frozen=True, slots=True)
class FindingShown:
    """A finding with what is drawn of it."""

    finding: Finding
    both: Markup
    rates: tuple[tuple[str, Markup, Rate], ...]
    curve: Markup | None
    accuracy: float | None
    wrong: tuple[PictureShown, ...]
    right: tuple[PictureShown, ...]
    nearest: tuple[PictureShown, ...]
    easiest: tuple[PictureShown, ...]
    doubtful: bool
    pairs: PairsShown | None


def pictures_wanted(findings: Findings) -> tuple[str, ...]:
    """Keys of the labelled images that the page shows, each once: at most 32 for each finding that is shown in full,
    or 44 of one that was tested in pairs."""
    wanted: dict[str, None] = {}
    for one in _in_full(findings):
        for keys in (*_strips(one), keys_of_pairs(one)):
            wanted |= dict.fromkeys(keys)
    return tuple(wanted | dict.fromkeys(one.key for one in _labels_shown(findings)))


def report_html(findings: Findings, pictures: Mapping[str, bytes], *, has_recipe: bool = True) -> str:
    """The page as text; equal findings and pictures give equal bytes. has_recipe: whether one lies beside it.

    pictures: encoded thumbnails by key (`pictures_wanted`); a key without one is shown by its name. ValueError for a
    thumbnail that is too large, or neither PNG, WebP nor JPEG.
    """
    filters = {
        "named": named,
        "opening": lambda text: text[:1].upper() + text[1:],
        "share": share,
        "points": points,
        "probability": probability,
        "number": lambda count: f"{count:,}",
        "counted": lambda count, one, many: f"{count:,} {one if count == 1 else many}",
        "evidence": evidence,
        "last_log_e": last_log_e,
        "times": times,
    }
    environment = template_environment(TEMPLATE, filters)
    confirmed, in_full = by_weight(findings.standing), _in_full(findings)
    failed = sorted(
        (one for one in findings.findings if not one.confirmed),
        key=lambda one: (one.p, -(one.difference.value or 0.0), one.name),
    )
    directed = [audit for audit in findings.classes if audit.direction is not None]
    undirected = _by_reason(findings.classes)
    return environment.get_template(TEMPLATE).render(
        findings=findings,
        by_name={one.name: one for one in findings.findings},
        confirmed=confirmed,
        shown=[_shown(findings, one, pictures) for one in in_full],
        rest=confirmed[len(in_full) :],
        longer=[one for one in findings.confirmed if one not in findings.standing],
        failed=failed,
        directed=sorted(directed, key=lambda audit: (-audit.direction.strength if audit.direction else 0.0, audit.id)),
        undirected=undirected,
        contexted=[audit for audit in findings.classes if audit.contexts],
        most_contexts=MOST_CONTEXTS,
        most_listed=MOST_LISTED,
        rule=_rule(findings),
        images=sum(images.rows for images in findings.on),
        rendered=any(one.rendered is not None for one in findings.findings),
        drawn=is_drawn(findings),
        baseline=_baseline(findings.classes),
        base_rows=sum(audit.rows for audit in findings.classes),
        base_errors=sum(audit.errors for audit in findings.classes),
        has_recipe=has_recipe,
        to_look_at=[] if findings.answered is None else [_to_look_at(one, pictures) for one in _labels_shown(findings)],
        most_classes=MOST_CLASSES,
        version=__version__,
    )


def _labels_shown(findings: Findings) -> Sequence[LabelToLookAt]:
    return () if findings.answered is None else findings.answered.labels[:MOST_LABELS]


def _to_look_at(one: LabelToLookAt, pictures: Mapping[str, bytes]) -> PictureShown:
    told = f"{one.label}, answered {one.answered}"
    return PictureShown(
        picture_uri(pictures.get(one.key)), True, told, f"{one.path or one.key}: {told}, {share(one.confidence)} sure"
    )


def is_drawn(findings: Findings) -> bool:
    """Whether hypotheses were tested on pairs that were drawn for them, and no images were dealt into halves."""
    return findings.halves is None or bool(findings.findings and all(one.pairs for one in findings.findings))


def _in_full(findings: Findings) -> list[Finding]:
    """The surest findings, as many as the page shows with their pictures."""
    return by_weight(findings.standing)[: MOST_PAIRS_IN_FULL if is_drawn(findings) else MOST_IN_FULL]


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in the order in which people read them: the surest first, of equals the largest difference."""
    return sorted(findings, key=lambda one: (one.q, -(one.difference.value or 0.0), one.name))


def named(text: str) -> str:
    """A stranger's text as it can stand in a page: of bounded length, without control characters."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[: _LONGEST_TEXT - 1].rstrip()}…"
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(one) in ("Cc", "Cs") else one for one in text)


def share(value: float | None) -> str:
    """A fraction as whole percent; near 0 and 1, where a rounded number would say none or all, with a decimal."""
    if value is None:
        return "–"
    near = 0 < value < 0.01 or 0.99 < value < 1
    text = f"{100 * value:.1f}" if near else str(int(100 * value + 0.5))
    if near and text in ("0.0", "100.0"):
        text = "<0.1" if value < 0.5 else ">99.9"
    return f"{text}\N{NO-BREAK SPACE}%"


def points(value: float | None) -> str:
    """A difference of fractions as whole percentage points with a sign for a loss; a dash for None."""
    if value is None:
        return "–"
    rounded = int(abs(100 * value) + 0.5)
    return f"−{rounded}" if value < 0 and rounded else str(rounded)


def probability(value: float) -> str:
    """A p- or q-value with its sign of comparison: `= .002`, `< .001`."""
    if value < 0.001:
        return "<\N{NO-BREAK SPACE}.001"
    text = f"{value:.3f}" if value < 0.0995 else f"{value:.2f}"
    return f"=\N{NO-BREAK SPACE}{text.removeprefix('0') if value < 0.995 else '1'}"


def evidence(log_e: float | None) -> str:
    """An e-value with its sign of comparison, by its natural logarithm, with two digits that count: `= 4,100`."""
    if log_e is None:
        return "–"
    if log_e > 99 * math.log(10):
        return ">\N{NO-BREAK SPACE}10⁹⁹"
    value = math.exp(log_e)
    if value < 0.01:
        return "<\N{NO-BREAK SPACE}.01"
    if value < 9.95:
        text = f"{value:.2f}".removeprefix("0") if value < 0.995 else f"{value:.1f}"
    elif value < 995_000:
        text = f"{round(value, 1 - math.floor(math.log10(value))):,.0f}"
    else:
        digits, _, power = f"{value:.1e}".partition("e")
        text = f"{digits} × 10{str(int(power)).translate(_RAISED)}"
    return f"=\N{NO-BREAK SPACE}{text}"


def times(ratio: float) -> str:
    """A ratio of rates with two digits that count."""
    if ratio >= 1e6:
        return "over a million"
    return f"{ratio:.1f}" if ratio < 9.95 else f"{round(ratio, 1 - math.floor(math.log10(ratio))):,.0f}"


def _rule(findings: Findings) -> str:
    """What counts as wrong, in words; a class is told by its name where the document has it."""
    if not findings.failure.startswith(ANSWERED):
        return _RULES.get(findings.failure, findings.failure)
    wanted = findings.failure.removeprefix(ANSWERED).strip()
    return f"the answer is {next((audit.name for audit in findings.classes if audit.id == wanted), wanted)}"


def _accuracy(findings: Findings, one: Finding) -> float | None:
    """The target's accuracy on all images of a finding's classes; None where they have none."""
    audits = [audit for audit in findings.classes if audit.id in one.classes]
    rows = sum(audit.rows for audit in audits)
    return 1 - sum(audit.errors for audit in audits) / rows if rows else None


def _baseline(classes: Sequence[ClassAudit]) -> list[ClassAudit]:
    """Classes with how often they fail without any words, those that fail most first."""
    return sorted(classes, key=lambda one: (-(one.rate or 0.0), one.id))


def _shown(findings: Findings, one: Finding, pictures: Mapping[str, bytes]) -> FindingShown:
    accuracy = _accuracy(findings, one)
    wrong, right, nearest, easiest = _strips(one)
    pieces = {piece.key: piece for piece in (*one.easiest, *one.evidence)}
    near = {image.key: image for image in one.caption_check.nearest} if one.caption_check else {}

    def of_set(key: str) -> PictureShown:
        piece = pieces[key]
        below = piece.label or ""
        if piece.failed and piece.answered is not None:
            below = f"answered {named(piece.answered)}"
        return PictureShown(
            picture_uri(pictures.get(key)), piece.failed, named(below), f"{piece.path or key} · {_WHERE[piece.half]}"
        )

    def of_caption(key: str) -> PictureShown:
        image = near[key]
        below = "matches" if image.matches else f"rather: {_apart(image.caption, one.caption)}"
        return PictureShown(picture_uri(pictures.get(key)), image.failed, named(below), image.path or key)

    own = "as described" if one.pairs else "in this set"
    beside = "without it" if one.pairs else "the base" if one.tested_on == "rendered" else "the rest"
    return FindingShown(
        finding=one,
        both=rates_figure([(one.set, "failing"), (one.rest, "ordinary")]),
        rates=(
            (own, rates_figure([(one.set, "failing")]), one.set),
            (beside, rates_figure([(one.rest, "ordinary")]), one.rest),
        ),
        curve=curve_figure(one.nearest_curve, accuracy) if one.nearest_curve else None,
        accuracy=accuracy,
        wrong=tuple(map(of_set, wrong)),
        right=tuple(map(of_set, right)),
        nearest=tuple(map(of_caption, nearest)),
        easiest=tuple(map(of_set, easiest)),
        doubtful=_doubtful(one.caption_check),
        pairs=pairs_shown(findings, one, pictures),
    )


def _apart(caption: str, own: str) -> str:
    """A caption from where it parts from the finding's own: the words below a picture are few."""
    words, others = caption.split(), own.split()
    same = next((at for at, pair in enumerate(zip(words, others, strict=False)) if pair[0] != pair[1]), len(others))
    return f"… {' '.join(words[same:])}" if 1 < same < len(words) else caption


def _doubtful(check: CaptionCheck | None) -> bool:
    """Whether fewer than half of the nearest images are what the caption says."""
    return check is not None and check.share < 0.5


def _strips(one: Finding) -> tuple[list[str], list[str], list[str], list[str]]:
    """Keys of images of the set that are wrong, of those that are right, of those nearest to the caption, and of the
    easiest."""
    wrong: Iterable[str] = dict.fromkeys(piece.key for piece in one.evidence if piece.failed)
    right: Iterable[str] = dict.fromkeys(piece.key for piece in one.evidence if not piece.failed)
    if one.pairs is not None:
        wrong, right = typical(one)
    nearest = dict.fromkeys(image.key for image in one.caption_check.nearest) if one.caption_check else {}
    easiest = dict.fromkeys(piece.key for piece in one.easiest)
    first, second, third, fourth = (list(islice(keys, MOST_A_STRIP)) for keys in (wrong, right, nearest, easiest))
    return first, second, third, fourth


def _by_reason(classes: Sequence[ClassAudit]) -> list[tuple[str, list[ClassAudit]]]:
    """Classes without a direction under the reason that each has, in the order of the classes."""
    reasons: dict[str, list[ClassAudit]] = {}
    for audit in classes:
        if audit.direction is None and audit.reason is not None:
            reasons.setdefault(audit.reason, []).append(audit)
    return list(reasons.items())
