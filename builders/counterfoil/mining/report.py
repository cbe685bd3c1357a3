"""The page of mining: one HTML file that says what fails, how sure that is, and what was tried; no outside resource."""

from __future__ import annotations

import base64
import io
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from counterfoil import __version__
from counterfoil.card.templates import templates_folder
from counterfoil.mining.figures import curve_figure, rates_figure
from counterfoil.mining.findings import CaptionCheck, ClassAudit, Finding, Findings, Rate

if TYPE_CHECKING:
    from markupsafe import Markup
    from PIL.Image import Image

TEMPLATE = "mining-report.html.j2"

# What is shown in full has at most 4 × 8 pictures of 3 kB or so: three megabytes when everything is confirmed.
MOST_IN_FULL = 24
MOST_A_STRIP = 8
MOST_LISTED = 200
SIDE = 96
_QUALITY = 75
# Noise of this side takes half of it; a page never takes more than 24 × 32 pictures of it.
MOST_PICTURE_BYTES = 16_384
_LONGEST_TEXT = 240

_RULES = {
    "top1": "the answer is not the label",
    "top3": "the label is not among the top three answers",
    "parent": "none of the top three answers lies under the label’s parent",
}
_WHERE = {"discover": "discover half", "confirm": "confirm half", "rendered": "rendered for the test"}


@dataclass(frozen=True, slots=True)
class PictureShown:
    """A picture of a strip; `uri` is None where there is no image to show."""

    uri: str | None
    wrong: bool
    below: str
    title: str


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


def thumbnail(image: Image) -> bytes:
    """An image as a small WebP, for the page. The image is left as it is."""
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    with io.BytesIO() as file:
        small.save(file, "WEBP", quality=_QUALITY, method=6)
        return file.getvalue()


def pictures_wanted(findings: Findings) -> tuple[str, ...]:
    """Keys of the labelled images that the page shows, each once: at most 32 for each finding that is shown in full."""
    wanted: dict[str, None] = {}
    for one in by_weight(findings.confirmed)[:MOST_IN_FULL]:
        for keys in _strips(one):
            wanted |= dict.fromkeys(keys)
    return tuple(wanted)


def report_html(findings: Findings, pictures: Mapping[str, bytes]) -> str:
    """The page as text; equal findings and pictures give equal bytes.

    pictures: encoded thumbnails by key (`pictures_wanted`); a key without one is shown by its name. ValueError for a
    thumbnail that is too large, or neither PNG, WebP nor JPEG.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(templates_folder(TEMPLATE)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "named": named,
        "opening": lambda text: text[:1].upper() + text[1:],
        "share": share,
        "points": points,
        "probability": probability,
        "number": lambda count: f"{count:,}",
        "counted": lambda count, one, many: f"{count:,} {one if count == 1 else many}",
    }
    confirmed = by_weight(findings.confirmed)
    failed = sorted(
        (one for one in findings.findings if not one.confirmed),
        key=lambda one: (one.p, -(one.difference.value or 0.0), one.name),
    )
    directed = [audit for audit in findings.classes if audit.direction is not None]
    undirected = _by_reason(findings.classes)
    return environment.get_template(TEMPLATE).render(
        findings=findings,
        confirmed=confirmed,
        shown=[_shown(one, pictures, _accuracy(findings, one)) for one in confirmed[:MOST_IN_FULL]],
        rest=confirmed[MOST_IN_FULL:],
        failed=failed,
        directed=sorted(directed, key=lambda audit: (-audit.direction.strength if audit.direction else 0.0, audit.id)),
        undirected=undirected,
        most_listed=MOST_LISTED,
        rule=_RULES.get(findings.failure, findings.failure),
        images=sum(images.rows for images in findings.on),
        rendered=any(one.tested_on != "rows" for one in findings.findings),
        version=__version__,
    )


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


def _accuracy(findings: Findings, one: Finding) -> float | None:
    """The target's accuracy on all images of a finding's classes; None where they have none."""
    audits = [audit for audit in findings.classes if audit.id in one.classes]
    rows = sum(audit.rows for audit in audits)
    return 1 - sum(audit.errors for audit in audits) / rows if rows else None


def _shown(one: Finding, pictures: Mapping[str, bytes], accuracy: float | None) -> FindingShown:
    wrong, right, nearest, easiest = _strips(one)
    evidence = {piece.key: piece for piece in (*one.easiest, *one.evidence)}
    near = {image.key: image for image in one.caption_check.nearest} if one.caption_check else {}

    def of_set(key: str) -> PictureShown:
        piece = evidence[key]
        below = piece.label or ""
        if piece.failed and piece.answered is not None:
            below = f"answered {named(piece.answered)}"
        return PictureShown(_uri(pictures.get(key)), piece.failed, named(below), f"{key} · {_WHERE[piece.half]}")

    def of_caption(key: str) -> PictureShown:
        image = near[key]
        below = "matches" if image.matches else f"rather: {_apart(image.caption, one.caption)}"
        return PictureShown(_uri(pictures.get(key)), image.failed, named(below), key)

    beside = "the base" if one.tested_on == "rendered" else "the rest"
    return FindingShown(
        finding=one,
        both=rates_figure([(one.set, "failing"), (one.rest, "ordinary")]),
        rates=(
            ("in this set", rates_figure([(one.set, "failing")]), one.set),
            (beside, rates_figure([(one.rest, "ordinary")]), one.rest),
        ),
        curve=curve_figure(one.nearest_curve, accuracy) if one.nearest_curve else None,
        accuracy=accuracy,
        wrong=tuple(map(of_set, wrong)),
        right=tuple(map(of_set, right)),
        nearest=tuple(map(of_caption, nearest)),
        easiest=tuple(map(of_set, easiest)),
        doubtful=_doubtful(one.caption_check),
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
    wrong = dict.fromkeys(piece.key for piece in one.evidence if piece.failed)
    right = dict.fromkeys(piece.key for piece in one.evidence if not piece.failed)
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


def _uri(encoded: bytes | None) -> str | None:
    if encoded is None:
        return None
    kind = (
        "png"
        if encoded.startswith(b"\x89PNG\r\n\x1a\n")
        else "jpeg"
        if encoded.startswith(b"\xff\xd8\xff")
        else "webp"
        if encoded[:4] == b"RIFF" and encoded[8:12] == b"WEBP"
        else None
    )
    if kind is None or len(encoded) > MOST_PICTURE_BYTES:
        raise ValueError(
            f"a thumbnail of {len(encoded):,} bytes, which is no {'small ' if kind else ''}PNG, WebP or JPEG"
        )
    return f"data:image/{kind};base64,{base64.b64encode(encoded).decode()}"
