"""Findings for people: a headline, tables for terminal and page, and the page as one self-contained
HTML file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from counterfoil import __version__
from counterfoil.recipe.keep.misclassified import ANSWERED
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.schema_mine import SLICES, WORDS_UNTRUSTED
from counterfoil.report.pictures import data_uri, encode_webp
from counterfoil.report.templates import template_environment
from counterfoil.report.words import (
    NOTHING,
    capitalised,
    e_value,
    format_count,
    format_interval,
    format_list,
    format_points,
    format_probability,
    format_ratio,
    format_share,
    safe_text,
)
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    from markupsafe import Markup
    from PIL.Image import Image

    from counterfoil.mining.findings import (
        AnswersTold,
        ClassAudit,
        Evidence,
        Finding,
        Findings,
        NearestImage,
    )

TEMPLATE = "mining-report.html.j2"
OF_SETS = "A q-value is for a set of images, not for the words that describe it."
# `scripts/photographs_proof/RESULTS.md`, the half that did not choose: 6 of 104.
LABELS_WORTH = (
    "On CIFAR-10 photographs, about one in 17 images on such a list had a label error"
    " that people confirmed"
)
# The page shows at most this many findings in full. A finding has at most 4 × 8 pictures of about 3
# kB, or 36 pictures of pairs, so the page has about three megabytes at most.
MOST_IN_FULL = 24
MOST_PAIRS_IN_FULL = 12
MOST_A_STRIP = 8
MOST_LISTED = 200
MOST_CONTEXTS = 8
MOST_CLASSES = 12
MOST_LABELS = 16
MOST_PAIRS = 4
MOST_TYPICAL = 5
# Wiles 2022, Figure 2: fifteen mistakes, three images.
MOST_ANSWERS = 15
MOST_EXAMPLES = 3
ANSWERS_WITH_PICTURES = 3
SIDE = 96
_QUALITY = 75
_RULES = {
    "top1": "the answer is not the label",
    "top3": "the label is not among the top three answers",
    "parent": "none of the top three answers lies under the label’s parent",
    "parent_any": "one or more of the top three answers do not lie under the label’s parent",
}
# The range of a figure of e-values, 1e-10 to 1e100, in natural logarithms. Values beyond it are
# drawn at the edge.
_LEAST_LOG_E = -23.0
_MOST_LOG_E = 230.0
_MOST_POWERS = 7
_CURVE_HEIGHT = 120


class FindingCell(NamedTuple):
    """A number in a table, its interval and the counts behind it."""

    text: str
    interval: str = ""
    counts: str = ""


def findings_headline(findings: Findings) -> tuple[str, str]:
    """Return a run's result in a few words, and the sentence behind them."""
    answered = findings.answered
    if findings.confirmed:
        standing = by_weight(findings.standing)
        count = len(findings.confirmed)
        trusted = [finding for finding in standing if not finding.words_untrusted]
        if trusted:
            strongest = trusted[0]
            words = strongest.words
        else:
            strongest = standing[0]
            names = format_list(strongest.class_names, most=3)
            words = f"a group of images of {names} ({WORDS_UNTRUSTED})"
        what = "group" if is_sliced(findings) else "named failure"
        head = f"{count:,} of {format_count(findings.tested, what)} confirmed"
        difference = strongest.difference.value
        if difference is None:
            return head, f"The strongest: {words}. Its rate was not measured on fresh pairs."
        beside = "the same images without it"
        if strongest.against_others:
            beside = "other classes"
        elif strongest.tested_on in ("rows", "both"):
            beside = "the rest of its class"
        wrong = ", wrong" if strongest.answered is None else ","
        gap = f"{format_points(difference, decimals=0)} points more often than {beside}"
        sentence = f"The strongest: {words}{wrong} {gap}"
        low, high = strongest.difference.shown_interval or (None, None)
        interval = format_interval(Estimate(difference, low, high), decimals=0)
        if interval:
            sentence += f" (confidence interval {interval})"
        return head, f"{sentence}."
    if answered is not None and is_sliced(findings):
        sentence = "No group of images failed enough more to be tested."
        if findings.tested:
            sentence = detectable_sentence(findings)
        if answered.classes:
            worst = answered.classes[0]
            rate = f"{format_share(worst.rate)} ({_bounds(worst.interval, format_share)})"
            if worst.others_rate is not None:
                rate += f", all others {format_share(worst.others_rate)}"
            sentence = f"The worst class is {worst.name}: {rate}. {sentence}"
        return f"{answered.failures:,} of {answered.rows:,} images wrong", sentence
    if findings.tested:
        return "No failure confirmed at this sample size", detectable_sentence(findings)
    sentence = "No hypothesis reached the test; the classes below say why."
    rows = sum(audit.rows for audit in findings.classes)
    errors = sum(audit.errors for audit in findings.classes)
    if is_drawn(findings) and rows and not errors:
        sentence = (
            f"None of {format_count(rows, 'base image')} fails, so there was nothing to describe."
            " The table of classes bounds how often they may fail."
        )
    return "Nothing could be tested", sentence


def detectable_sentence(findings: Findings) -> str:
    """Return how large a difference the test could detect."""
    smallest = findings.smallest_difference
    drawn = is_drawn(findings)
    if drawn and (smallest is None or smallest.difference is None):
        return "The intervals in the report show how large a missed difference may be."
    if smallest is None:
        return "The smallest detectable difference was not computed."
    if smallest.difference is None:
        return (
            "These halves are too small to detect any difference: a typical set has"
            f" {format_count(smallest.set_rows, 'image')} on the confirm half."
        )
    what = "description"
    than = "its base"
    if not drawn:
        what = "set"
        than = (
            f"the rest of its class, for a set of {format_count(smallest.set_rows, 'image')} against"
            f" {smallest.rest_rows:,} others that fail at {format_share(smallest.rest_rate)}"
        )
    return (
        f"The test has {format_share(smallest.power)} power to detect a {what} that fails"
        f" {format_points(smallest.difference, decimals=0)} points more often than {than}. It may"
        " miss smaller differences."
    )


def findings_table(
    findings: Findings,
    shown: Iterable[Finding],
) -> tuple[list[str], list[tuple[Finding, list[FindingCell]]]]:
    """Return columns and rows of findings, for terminal and page."""
    drawn = is_drawn(findings)
    shown = list(shown)
    columns = ["wrong (%)", "the rest (%)", "more (points)", "p", "q"]
    if drawn:
        columns = ["wrong (%)", "without it (%)", "more (points)", "pairs", "E", "q"]
    ended = drawn and not all(finding.confirmed for finding in shown)
    if ended:
        columns.append("ended")
    rows = []
    for finding in shown:
        cells = _cells(finding, drawn=drawn, ended=ended)
        rows.append((finding, list(cells)))
    return columns, rows


def classes_table(answered: AnswersTold) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of classes, the worst first, and what they are most taken for."""
    rows = []
    for cls in answered.classes:
        name = f"{cls.name} (more)" if cls.more else cls.name
        rate = f"{format_share(cls.rate)} ({_bounds(cls.interval, format_share)})"
        failures = f"{cls.failures:,} of {cls.rows:,}"
        taken = []
        for other in answered.taken_for:
            if other.id == cls.id:
                taken.append(f"{other.other_name} ({other.count} of {other.rows})")
        others_rate = format_share(cls.others_rate)
        mistaken = ", ".join(taken[:2])
        rows.append([name, rate, others_rate, failures, mistaken])
    return ["class", "wrong", "all others", "images", "mistaken for"], rows


def _cells(
    finding: Finding,
    *,
    drawn: bool,
    ended: bool,
) -> Iterator[FindingCell]:
    def percent(value: float | None) -> str:
        return format_share(value).removesuffix(" %")

    for rate in (finding.set, finding.rest):
        counts = f"{rate.failures:,} of {rate.rows:,}"
        bounds = _bounds(rate.interval, percent)
        yield FindingCell(percent(rate.rate), bounds, counts)
    in_points = partial(format_points, decimals=0)
    bounds = _bounds(finding.difference.shown_interval, in_points)
    yield FindingCell(in_points(finding.difference.value), bounds)
    pairs = finding.pairs
    if not drawn:
        yield FindingCell(f"{finding.p:.2g}")
    elif pairs is None:
        yield FindingCell(NOTHING)
        yield FindingCell(NOTHING)
    else:
        yield FindingCell(f"{pairs.pairs:,}", "", f"{pairs.failing:,} : {pairs.rescued:,}")
        yield FindingCell(_bare(e_value(finding.last_log_e)))
    yield FindingCell(f"{finding.q:.2g}")
    if ended and pairs is not None:
        yield FindingCell(pairs.state.replace("_", " "))
    elif ended:
        yield FindingCell(NOTHING)


def pictures_wanted(findings: Findings) -> tuple[str, ...]:
    """Return keys of the labelled images that the page shows, each once."""
    wanted: list[str] = []
    for finding in _in_full(findings):
        for pieces in (*strips(finding).values(), *pairs_beside(finding)):
            wanted += [piece.key for piece in pieces]
        if finding.answers is None:
            continue
        for answers in (finding.answers.before, finding.answers.after):
            for answer in answers[:ANSWERS_WITH_PICTURES]:
                wanted += answer.examples[:MOST_EXAMPLES]
    if findings.answered is not None:
        wanted += [label.key for label in findings.answered.labels[:MOST_LABELS]]
    return tuple(dict.fromkeys(wanted))


def mining_html(
    findings: Findings,
    pictures: Mapping[str, bytes],
    *,
    has_recipe: bool = True,
) -> str:
    """Return the page; equal findings and pictures give equal bytes. pictures: key →
    `page_thumbnail`."""
    standing = by_weight(findings.standing)
    in_full = _in_full(findings)
    environment = template_environment(
        TEMPLATE,
        {
            "named": safe_text,
            "opening": capitalised,
            "share": _unbroken(format_share),
            "probability": _unbroken(format_probability),
            "e_value": _unbroken(e_value),
            "times": format_ratio,
            "bare": _bare,
            "counted": format_count,
            "points": partial(format_points, decimals=0),
            "number": lambda count: f"{count:,}",
            "apart": _apart,
        },
    )
    reasons: dict[str, list[ClassAudit]] = {}
    for audit in findings.classes:
        if audit.direction is None and audit.reason is not None:
            reasons.setdefault(audit.reason, []).append(audit)
    longer = [finding for finding in findings.confirmed if finding not in findings.standing]

    def order(finding: Finding) -> tuple[float, float, str]:
        difference = finding.difference.value or 0.0
        return finding.p, -difference, finding.name

    failed = [finding for finding in findings.findings if not finding.confirmed]
    failed.sort(key=order)
    by_rate = sorted(findings.classes, key=lambda audit: (-(audit.rate or 0.0), audit.id))
    uris = {key: data_uri(picture) for key, picture in pictures.items()}
    return environment.get_template(TEMPLATE).render(
        findings=findings,
        headline=findings_headline(findings),
        drawn=is_drawn(findings),
        sliced=is_sliced(findings),
        standing=standing,
        shown=in_full,
        rest=standing[len(in_full) :],
        longer=longer,
        failed=failed,
        rule=_rule(findings),
        has_recipe=has_recipe,
        unseen=detectable_sentence(findings),
        accuracy=partial(_accuracy, findings),
        by_rate=by_rate,
        undirected=list(reasons.items()),
        counts_from=partial(counts_from, findings),
        curve_figure=accuracy_figure,
        looks_figure=looks_figure,
        of_sets=OF_SETS,
        labels_worth=LABELS_WORTH,
        pairs_beside=pairs_beside,
        strips=strips,
        table=partial(findings_table, findings),
        uri=uris.get,
        most={
            "answers": MOST_ANSWERS, "classes": MOST_CLASSES, "contexts": MOST_CONTEXTS, "examples": MOST_EXAMPLES,
            "labels": MOST_LABELS, "listed": MOST_LISTED, "with_pictures": ANSWERS_WITH_PICTURES,
        },
        version=__version__,
    )  # fmt: skip


def is_sliced(findings: Findings) -> bool:
    return findings.method.name == SLICES


def is_drawn(findings: Findings) -> bool:
    """Check whether hypotheses were tested on pairs drawn for them."""
    if findings.halves is None:
        return True
    pairs = [finding.pairs for finding in findings.findings]
    return bool(pairs) and None not in pairs


def _in_full(findings: Findings) -> list[Finding]:
    most = MOST_PAIRS_IN_FULL if is_drawn(findings) else MOST_IN_FULL
    return by_weight(findings.standing)[:most]


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in reading order, the strongest first: by the lower end of the difference's
    interval."""

    def order(finding: Finding) -> tuple[float, float, str]:
        low, _ = finding.difference.shown_interval or (-math.inf, None)
        return -low, finding.q, finding.name

    return sorted(findings, key=order)


def strips(finding: Finding) -> dict[str, list[Evidence | NearestImage]]:
    """Return the images of a finding's strips: wrong and right images of its set, the images
    nearest to its caption, and the easiest images.
    """
    pieces = list(finding.evidence)
    most = MOST_A_STRIP
    if finding.pairs is not None:
        seen = {described.key for _, described in pairs_beside(finding)}
        most = MOST_TYPICAL
        pieces = [piece for piece in of_description(finding) if piece.key not in seen]
    wrong = [piece for piece in pieces if piece.failed]
    right = [piece for piece in pieces if not piece.failed]
    nearest = finding.caption_check.nearest if finding.caption_check else ()
    return {
        "wrong": _distinct(wrong, most),
        "right": _distinct(right, most),
        "nearest": _distinct(nearest, MOST_A_STRIP),
        "easiest": _distinct(finding.easiest, MOST_A_STRIP),
    }


def _distinct(
    pieces: Iterable[Evidence | NearestImage],
    most: int,
) -> list[Evidence | NearestImage]:
    by_key = {piece.key: piece for piece in pieces}
    return list(by_key.values())[:most]


def counts_from(findings: Findings, finding: Finding) -> float | None:
    """Return the least log e-value with which e-BH would confirm a hypothesis in addition to those
    that it confirms already (Wang and Ramdas 2022).
    """
    rejected = len(findings.confirmed)
    if not finding.confirmed:
        rejected += 1
    if not findings.fdr or not findings.tested:
        return None
    return math.log(findings.tested / (findings.fdr * rejected))


def base_key(key: str, classes: Sequence[str]) -> str | None:
    """Return the key of the base image with the same noise as a described image. Return None if the
    key is not from a round.
    """
    folder, _, sample = key.rpartition("/")
    stem, _, index = sample.rpartition("_")
    if not folder or not index.isdecimal():
        return None
    for class_id in classes:
        if stem.endswith(f"_{class_id}"):
            return f"{folder}/{BASE}_{class_id}_{index}"
    return None


def of_description(finding: Finding) -> tuple[Evidence, ...]:
    """Return the evidence of a finding's set, without base images."""
    if finding.tested_on != "pairs":
        return finding.evidence
    described = []
    for piece in finding.evidence:
        if base_key(piece.key, finding.classes) != piece.key:
            described.append(piece)
    return tuple(described)


def pairs_beside(finding: Finding) -> list[tuple[Evidence, Evidence]]:
    """Return (base, described) of the first pairs that fail as described and are right on the
    base."""
    if finding.pairs is None:
        return []
    known = {piece.key: piece for piece in finding.evidence}
    pairs = []
    for piece in dict.fromkeys(of_description(finding)):
        key = base_key(piece.key, finding.classes)
        base = known.get(key or "")
        if piece.failed and base is not None and not base.failed:
            pairs.append((base, piece))
    return pairs[:MOST_PAIRS]


def accuracy_figure(finding: Finding, accuracy: float | None) -> Markup:
    """Draw the accuracy on the k nearest images over k, on a logarithmic axis. A dashed line shows
    the accuracy on all images of the classes.
    """
    points = []
    for point in finding.nearest_curve:
        title = f"{point.k:,} images: {100 * point.accuracy:.0f} % right"
        points.append((point.k, point.accuracy, title))
    lines = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        lines.append((tick, "grid"))
    if accuracy is not None:
        lines.append((accuracy, "all"))
    return _line_figure(points, lines)


def looks_figure(finding: Finding, line: float | None) -> Markup:
    """Draw the e-value after each look over the number of pairs, both on logarithmic axes. The
    dashed line at `line` is the e-value from which a hypothesis is confirmed.
    """
    looks = finding.pairs.looks if finding.pairs is not None else ()
    log_10 = math.log(10)
    values = [min(_MOST_LOG_E, max(_LEAST_LOG_E, look.log_e)) for look in looks]
    heights = [0.0, *values]
    if line is not None:
        heights.append(line)
    low = min(heights)
    high = max(heights)
    height = max(high - low, 1.0)
    step = max(1, math.ceil(height / log_10 / _MOST_POWERS))
    lines = []
    lowest_power = math.ceil(low / log_10)
    highest_power = math.floor(high / log_10)
    for power in range(lowest_power, highest_power + 1):
        if power % step == 0:
            look = "grid" if power else "one"
            lines.append(((power * log_10 - low) / height, look))
    if line is not None:
        lines.append(((line - low) / height, "counts"))
    points = []
    for look, value in zip(looks, values, strict=True):
        title = f"{look.pairs:,} pairs: log10 E {look.log_e / log_10:.1f}"
        share = (value - low) / height
        points.append((look.pairs, share, title))
    return _line_figure(points, lines)


def _line_figure(
    points: Sequence[tuple[int, float, str]],
    lines: Sequence[tuple[float, str]],
) -> Markup:
    """Draw points (count, height from 0 to 1, title) over the counts' logarithm, and lines across,
    by CSS class."""
    from markupsafe import Markup

    counts = [max(1, count) for count, _, _ in points]
    places = list(map(math.log, counts))
    first = places[0]
    width = places[-1] - first

    def y(height: float) -> float:
        return round(5 + (_CURVE_HEIGHT - 10) * (1 - height), 1)

    parts = []
    for height, look in lines:
        at = f"{y(height):g}"
        parts.append(f'<line class="{look}" x1="2.50%" y1="{at}" x2="97.50%" y2="{at}"/>')
    circles = []
    centres = []
    for bin_centre, (_, height, title) in zip(places, points, strict=True):
        along = 0.5
        if width > 0:
            along = (bin_centre - first) / width
        x = f"{2.5 + 95 * along:.2f}%"
        centre = f"{y(height):g}"
        centres.append((x, centre))
        circles.append(
            f'<circle class="point" cx="{x}" cy="{centre}" r="3.2"><title>{title}</title></circle>'
        )
    for (x1, y1), (x2, y2) in pairwise(centres):
        parts.append(f'<line class="curve" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
    parts += circles
    svg = (
        f'<svg class="line" width="100%" height="{_CURVE_HEIGHT}"'
        f' aria-hidden="true">{"".join(parts)}</svg>'
    )
    return Markup(svg)


def page_thumbnail(image: Image) -> bytes:
    """Return an image as a small WebP for the page."""
    return encode_webp(image.convert("RGB"), _QUALITY, SIDE, method=6)


def _rule(findings: Findings) -> str:
    """Return the failure rule in words."""
    failure = findings.failure
    if not failure.startswith(ANSWERED):
        return _RULES.get(failure, failure)
    wanted = failure.removeprefix(ANSWERED).strip()
    names = {audit.id: audit.name for audit in findings.classes}
    return f"the answer is {names.get(wanted, wanted)}"


def _accuracy(findings: Findings, finding: Finding) -> float | None:
    """Return the target's accuracy on all images of a finding's classes; None without images."""
    rows = errors = 0
    for audit in findings.classes:
        if audit.id in finding.classes:
            rows += audit.rows
            errors += audit.errors
    return 1 - errors / rows if rows else None


def _apart(caption: str, class_caption: str) -> str:
    """Return the part of a caption from the first word that differs from the class's caption,
    because there is little space below a picture.
    """
    words = caption.split()
    same = 0
    for word, other in zip(words, class_caption.split(), strict=False):
        if word != other:
            break
        same += 1
    if not 1 < same < len(words):
        return caption
    return f"… {' '.join(words[same:])}"


def _bounds(interval: tuple[float, float] | None, in_words: Callable[[float], str]) -> str:
    return "" if interval is None else " to ".join(map(in_words, interval))


def _unbroken(in_words: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a function whose numbers in words are not broken across lines."""
    return lambda value: in_words(value).replace(" ", "\N{NO-BREAK SPACE}")


def _bare(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").removeprefix("= ")
