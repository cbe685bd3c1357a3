"""Documents of findings, by rows and by pairs that were drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from PIL import Image
from scipy.special import betaln
from scipy.stats import beta

from counterfoil.lab.vocabulary import BACKGROUNDS, CLASSES, COLOURS
from counterfoil.lab.world import Scene, load_garments, render
from counterfoil.mining.findings import (
    AnswerCount,
    AuditedImages,
    CaptionCheck,
    ClassAudit,
    ClassDirection,
    Compared,
    CurvePoint,
    DealtHalves,
    Difference,
    Evidence,
    Finding,
    Findings,
    FreshPairs,
    Half,
    MethodUsed,
    MinedRecipe,
    NearestImage,
    NotTested,
    OtherClassifier,
    PairedTest,
    Rate,
    RenderedTest,
    RoundDrawn,
    ScoredCaption,
    SequentialLook,
    SmallestDifference,
    StoppedEstimate,
    Target,
    WrongAnswers,
)
from counterfoil.mining.report import page_thumbnail, pictures_wanted

SANDAL = 5
PULLOVER = 2
COAT = 4


def rate(failures: int, rows: int, units: int | None = None, width: float = 0.09) -> Rate:
    share = failures / rows
    interval = (max(0.0, share - width), min(1.0, share + width))
    return Rate(
        rows,
        rows if units is None else units,
        failures,
        share,
        interval,
    )


def finding(
    name: str, label: int, words: str, caption: str, set: Rate, rest: Rate, q: float,
    role: Literal["hard", "far_from"] = "hard", confirmed: bool = True,
) -> Finding:  # fmt: skip
    assert set.rate is not None
    assert rest.rate is not None
    value = set.rate - rest.rate
    keys = [f"audit/{name}/{number:05d}" for number in range(24)]
    return Finding(
        name=name,
        classes=(f"{label:02d}",),
        class_names=(CLASSES[label],),
        role=role,
        words=words,
        caption=caption,
        prompt=f"a photo of a {words}",
        confirmed=confirmed,
        set=set,
        rest=rest,
        difference=Difference(
            value, (value - 0.13, value + 0.13), (value - 0.17, value + 0.17) if confirmed else None
        ),
        p=q / 3,
        q=q,
        discover=Compared(set, rest, Difference(value + 0.03, (value - 0.1, value + 0.16))),
        evidence=tuple(
            Evidence(
                key=key,
                score=1 - number / 24,
                failed=number % 5 < 3,
                half="confirm" if number % 2 else "discover",
                label=CLASSES[label],
                answered="sneaker" if number % 5 < 3 else CLASSES[label],
            )
            for number, key in enumerate(keys)
        ),
        caption_check=CaptionCheck(
            images=20,
            matching=14 if role == "far_from" else 7,
            share=0.7 if role == "far_from" else 0.35,
            class_share=0.12,
            nearest=tuple(
                NearestImage(
                    f"audit/{name}/near{n}",
                    caption if n % 3 else f"{caption} in the rain",
                    bool(n % 3),
                    n > 5,
                )
                for n in range(12)
            ),
        ),
        nearest_curve=tuple(
            CurvePoint(k, 0.9 - value + value * at / 6)
            for at, k in enumerate((10, 20, 40, 80, 160, 320, 600))
        ),
        others=(
            OtherClassifier("lab:convnext_atto", rate(20, 61), rate(14, 139)),
            OtherClassifier("lab:vit_tiny_patch8", rate(31, 61), rate(11, 139)),
        ),
        about={"alpha": 0.2, "rank": 1},
    )


def rendered_test(set: Rate, rest: Rate, p: float) -> RenderedTest:
    assert set.rate is not None
    assert rest.rate is not None
    value = set.rate - rest.rate
    return RenderedTest(set, rest, Difference(value, (value - 0.15, value + 0.15)), p)


def audit(label: int, errors: int, reason: str | None = None) -> ClassAudit:
    if reason is not None:
        return ClassAudit(
            f"{label:02d}", CLASSES[label], 1200, errors, errors / 1200, reason=reason
        )
    name = CLASSES[label]
    return ClassAudit(
        f"{label:02d}",
        name,
        1200,
        errors,
        errors / 1200,
        ClassDirection(0.83 - label / 50, (0.74, 0.9), 0.005, 0.01, 600, errors // 2, "kernel"),
        hard=(
            ScoredCaption(f"a checked {name}", -0.8),
            ScoredCaption(f"a striped {name} against a wall", -0.6),
        ),
        easy=(
            ScoredCaption(f"a {name} on the beach", 0.9),
            ScoredCaption(f"a {name} in the snow", 0.4),
        ),
    )


def example() -> Findings:
    return Findings(
        recipe=MinedRecipe("wardrobe-star", "ab" * 32),
        method=MethodUsed("directions", {"folds": 2, "captions": "wardrobe"}),
        target=Target("lab:resnet10t", "cd" * 32),
        on=(AuditedImages("lab:wardrobe, audit", "ef" * 32, 12_000),),
        failure="top1",
        halves=DealtHalves(0, Half(6031, 700, "01" * 32), Half(5969, 698, "23" * 32)),
        margin=0.05,
        fdr=0.1,
        tested=5,
        smallest_difference=SmallestDifference(0.22, 0.8, 61, 139, 0.09),
        classes=(
            audit(SANDAL, 160),
            audit(PULLOVER, 140),
            audit(COAT, 66),
            audit(1, 4, "2 errors on the discover half, at least 10 are needed"),
            audit(8, 9, "5 errors on the discover half, at least 10 are needed"),
        ),
        findings=(
            finding("sandal_far_from", SANDAL, "sandal not on a beach", "a photo of a sandal on a"
                " beach",
                    rate(37, 61, 40), rate(12, 139, 101), 0.002, "far_from"),
            replace(
                finding("pullover_hard", PULLOVER, "checked pullover", "a photo of a checked"
                    " pullover",
                        rate(30, 58, 44), rate(13, 142, 96), 0.0004),
                tested_on="both",
                rendered=rendered_test(rate(24, 44), rate(5, 47), 0.0001),
            ),
            drawn(finding("coat_hard", COAT, "red coat in the snow", "a photo of a red coat in the"
                " snow",
                          rate(17, 60), rate(15, 140), 0.083)),
            finding("coat_far_from", COAT, "coat not indoors", "a photo of a coat indoors",
                    rate(9, 61), rate(16, 139), 0.45, "far_from", False),
            finding("pullover_far_from", PULLOVER, "pullover not on the road", "a photo of a"
                " pullover on the road",
                    rate(12, 61), rate(20, 139), 1.0, "far_from", False),
        ),
        not_tested=(NotTested("bag_far_from", ("08",), "bag not at night", "nothing renders it"),),
    )  # fmt: skip


def drawn(finding: Finding) -> Finding:
    """Return the finding as one that was tested on images rendered for it."""
    return replace(
        finding,
        tested_on="rendered",
        rendered=RenderedTest(finding.set, finding.rest, finding.difference, finding.p),
    )


def nothing_confirmed() -> Findings:
    findings = example()
    return replace(
        findings,
        findings=tuple(replace(finding, confirmed=False, q=0.6) for finding in findings.findings),
    )


def example_pictures(findings: Findings) -> dict[str, bytes]:
    """Return a wardrobe scene for each picture of the page."""
    wanted = pictures_wanted(findings)
    labels = {finding.name: int(finding.classes[0]) for finding in findings.findings}
    pictures = {}
    for number, key in enumerate(wanted):
        label = labels.get(key.split("/")[1], 0) if "/" in key else 0
        scene = Scene(
            "audit",
            number % 50,
            label,
            background=BACKGROUNDS[number % len(BACKGROUNDS)],
            seed=number,
        )
        pictures[key] = page_thumbnail(Image.fromarray(render(scene)))
    return pictures


DRAWN_PULLOVER = 2
DRAWN_COAT = 4
DRAWN_SANDAL = 5
SHIRT = 6
FDR = 0.1


def log_e(failing: int, discordant: int) -> float:
    """Return the log e-value of the discordant pairs by the mixture of Beta(1/2, 1/2) above one
    half."""
    if not discordant:
        return 0.0
    mixed = betaln(0.5 + failing, 0.5 + discordant - failing) + beta.logsf(
        0.5, 0.5 + failing, 0.5 + discordant - failing
    )
    return float(mixed - betaln(0.5, 0.5) - beta.logsf(0.5, 0.5, 0.5) + discordant * math.log(2))


def drawn_rate(failures: int, rows: int) -> Rate:
    low, high = beta.ppf((0.025, 0.975), (failures + 0.5, failures + 0.5), rows - failures + 0.5)
    return Rate(
        rows,
        rows,
        failures,
        failures / rows,
        (float(low), float(high)),
    )


def _looks(pairs: int, failing: int, rescued: int) -> tuple[SequentialLook, ...]:
    """Return looks after 16, 32, 64 … pairs, with the discordant pairs spread evenly."""
    counts = [16 * 2**n for n in range(20) if 16 * 2**n < pairs] + [pairs]
    return tuple(
        SequentialLook(
            count, log_e(round(failing * count / pairs), round((failing + rescued) * count / pairs))
        )
        for count in counts
    )


def answers(
    shares: Sequence[tuple[str, int]], rows: int, keys: Sequence[str]
) -> tuple[AnswerCount, ...]:
    given = []
    at = 0
    for answer, images in shares:
        given.append(
            AnswerCount(answer, images, images / rows, tuple(keys[at : at + min(3, images)]))
        )
        at += images
    return tuple(given)


def pair_finding(
    name: str,
    label: int,
    words: str,
    pairs: tuple[int, int, int, int],
    state: Literal["confirmed", "futile", "out_of_budget"],
    origin: Literal["found", "shortened", "tried"] = "found",
    round_drawn: str = "rounds/02",
    fresh: FreshPairs | None = None,
) -> Finding:
    """Return the finding of a description. `pairs` counts (pairs, both, failing, rescued).

    Its evidence has ten pairs; the base is right in eight. Fresh pairs, if any, give rates,
    difference and answers.
    """
    every, both, failing, rescued = pairs
    class_id = f"{label:02d}"
    keys = [f"{round_drawn}/{name}_{class_id}_{index:06d}" for index in range(every)]
    bases = [f"{round_drawn}/base_{class_id}_{index:06d}" for index in range(every)]
    looks = _looks(every, failing, rescued)
    if fresh is not None:
        every = fresh.pairs
        both = fresh.both
        failing = fresh.failing
        rescued = fresh.rescued
    answered = [
        [
            f"{fresh.round if fresh else round_drawn}/{stem}_{class_id}_{index:06d}"
            for index in range(every)
        ]
        for stem in ("base", name)
    ]
    wrong = both + failing
    base_wrong = both + rescued
    value = (wrong - base_wrong) / every
    error = math.sqrt(failing + rescued - (failing - rescued) ** 2 / every) / every
    interval, widened = ((value - wide * error, value + wide * error) for wide in (1.96, 2.3))
    confirmed = state == "confirmed"

    def piece(key: str, score: float, failed: bool) -> Evidence:
        answered = "sneaker" if failed else CLASSES[label]
        return Evidence(
            key,
            score,
            failed,
            "rendered",
            CLASSES[label],
            answered,
        )

    described = [piece(key, 1 - at / 20, at % 3 < 2) for at, key in enumerate(keys[:20])]
    base = [piece(key, 1 - at / 20, at in (1, 6)) for at, key in enumerate(bases[:10])]
    return Finding(
        name=name,
        classes=(class_id,),
        class_names=(CLASSES[label],),
        role="hard",
        words=words,
        caption=f"a photo of a {words}",
        prompt=f"a photo of a {words}",
        confirmed=confirmed,
        set=drawn_rate(wrong, every),
        rest=drawn_rate(base_wrong, every),
        difference=Difference(value, interval, widened if confirmed else None),
        p=min(1.0, math.exp(-looks[-1].log_e)),
        q=1.0,
        discover=None,
        evidence=tuple(described + base),
        tested_on="pairs",
        pairs=PairedTest(*pairs, state, looks, drawn=pairs[0], fresh=fresh),
        answers=WrongAnswers(
            answers(
                [("sneaker", base_wrong - base_wrong // 3), ("ankle boot", base_wrong // 3)],
                every,
                answered[0],
            ),
            answers(
                [
                    ("sneaker", wrong - wrong // 3 - wrong // 8),
                    ("ankle boot", wrong // 3),
                    ("bag", wrong // 8),
                ],
                every,
                answered[1],
            ),
        ),
        origin=origin,
        others=(
            OtherClassifier(
                "lab:vit_tiny_patch8", drawn_rate(wrong // 2, every), drawn_rate(base_wrong, every)
            ),
        ),
    )


def drawn_example() -> Findings:
    """Return 3 confirmed findings (found, shortened, tried by hand), 5 others, a class left out and
    one never drawn."""
    estimate = StoppedEstimate(
        20,
        34,
        True,
        19 / 33,
        (0.39, 0.74),
    )
    sandal = pair_finding(
        "sandal_snow", DRAWN_SANDAL, "sandal in the snow", (64, 4, 35, 2), "confirmed",
        fresh=FreshPairs(300, 18, 126, 9, 320, "rounds/05"),
    )  # fmt: skip
    pullover = pair_finding(
        "pullover_night", DRAWN_PULLOVER, "pullover at night", (128, 9, 31, 8), "confirmed", "shortened", "rounds/04",
        fresh=FreshPairs(400, 28, 72, 32, 410, "rounds/06"),
    )  # fmt: skip
    audits = [
        (DRAWN_SANDAL, 400, 391, 33, None),
        (DRAWN_PULLOVER, 400, 388, 41, None),
        (DRAWN_COAT, 400, 396, 22, None),
        (SHIRT, 400, 372, 214, "fails more than half the time on the base: a class token may help"),
        (8, 400, 0, 0, "the screen accepted none of its images"),
    ]
    findings = _with_q((
        replace(sandal, pairs=_estimated(sandal, estimate)),
        replace(pullover, about={"shortened_from": "striped pullover against a wall at night"}),
        pair_finding(
            "coat_tried", DRAWN_COAT, "coat in the water", (64, 2, 21, 1), "confirmed", "tried", "tries/01",
            FreshPairs(200, 6, 50, 4, 256, "tries/02"),
        ),
        pair_finding("sandal_red", DRAWN_SANDAL, "red sandal", (256, 19, 6, 9), "futile"),
        pair_finding("pullover_wall", DRAWN_PULLOVER, "pullover against a wall", (128, 12, 3, 7), "futile"),
        pair_finding("coat_person", DRAWN_COAT, "person and a coat", (512, 22, 41, 24), "out_of_budget"),
        pair_finding("coat_dusk", DRAWN_COAT, "coat at dusk", (128, 5, 2, 4), "futile"),
        pair_finding("sandal_rain", DRAWN_SANDAL, "sandal in the rain", (512, 30, 39, 28), "out_of_budget"),
    ))  # fmt: skip
    return Findings(
        recipe=MinedRecipe("wardrobe-bugs", "ab" * 32),
        method=MethodUsed("bugs", {"captioner": "lab:captioner"}),
        target=Target("lab:resnet10t", "cd" * 32),
        on=(),
        failure="top1",
        halves=None,
        margin=0.05,
        fdr=FDR,
        tested=len(findings),
        smallest_difference=None,
        classes=tuple(
            ClassAudit(
                f"{label:02d}", CLASSES[label], rows, errors, errors / rows if rows else None, reason=reason,
                interval=drawn_rate(errors, rows).interval if rows else None, drawn=images,
            )
            for label, images, rows, errors, reason in audits
        ),
        findings=findings,
        seed=3,
        rounds=(
            RoundDrawn("rounds/01", "baseline", 11, 2000, 1547),
            RoundDrawn("rounds/02", "test", 12, 2304, 2118),
            RoundDrawn("rounds/03", "test", 13, 512, 470),
            RoundDrawn("rounds/04", "shorten", 14, 512, 433),
            RoundDrawn("rounds/05", "estimate", 15, 640, 602),
            RoundDrawn("rounds/06", "estimate", 16, 820, 810),
            RoundDrawn("tries/01", "try", 17, 128, 121),
            RoundDrawn("tries/02", "try_estimate", 18, 512, 402),
        ),
    )  # fmt: skip


def drawn_nothing_confirmed() -> Findings:
    findings = drawn_example()
    plain = [replace(finding.difference, reported_interval=None) for finding in findings.findings]
    lost = (
        replace(finding, confirmed=False, q=0.6, pairs=_ended(finding), difference=difference)
        for finding, difference in zip(findings.findings, plain, strict=True)
    )
    return replace(findings, findings=tuple(lost))


def drawn_pictures(findings: Findings) -> dict[str, bytes]:
    """Return a wardrobe scene for each picture of the page. A pair has one garment and one
    noise."""
    looks: dict[str, dict[str, Any]] = {
        "sandal_snow": {"background": "snow"},
        "pullover_night": {"light": "night"},
        "coat_tried": {"background": "water"},
    }
    labels = load_garments("audit").labels
    pictures = {}
    for key in pictures_wanted(findings):
        shift, _, rest = key.rpartition("/")[2].rpartition("_")[0].rpartition("_")
        index = int(key.rpartition("_")[2])
        garment = int((labels == int(rest)).nonzero()[0][index])
        scene = Scene(
            "audit",
            garment,
            int(rest),
            COLOURS[index % len(COLOURS)],
            background="wood",
            seed=index,
        )
        look = looks.get(shift, {"style": "photo"})
        pictures[key] = page_thumbnail(Image.fromarray(render(replace(scene, **look))))
    return pictures


def _with_q(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Set the q-values of e-BH: the least m / (j × the j-th largest e-value) from a finding's rank
    on."""
    order = sorted(range(len(findings)), key=lambda at: findings[at].p)
    q = [0.0] * len(findings)
    adjusted = 1.0
    for index in reversed(range(len(order))):
        adjusted = min(adjusted, len(findings) * findings[order[index]].p / (index + 1))
        q[order[index]] = adjusted
    return tuple(replace(finding, q=q_value) for finding, q_value in zip(findings, q, strict=True))


def _estimated(finding: Finding, estimate: StoppedEstimate) -> PairedTest:
    assert finding.pairs is not None
    return replace(finding.pairs, estimate=estimate)


def _ended(finding: Finding) -> PairedTest:
    assert finding.pairs is not None
    return replace(
        finding.pairs, state="futile" if finding.pairs.state == "confirmed" else finding.pairs.state
    )
