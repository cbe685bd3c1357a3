"""Findings documents as mining would leave them, with pictures of the wardrobe: three confirmed, two not, two classes
without a direction."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from PIL import Image

from counterfoil.lab.vocabulary import BACKGROUNDS, CLASSES
from counterfoil.lab.world import Scene, render
from counterfoil.mining.findings import (
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
    Half,
    MethodUsed,
    MinedRecipe,
    NearestImage,
    NotTested,
    OtherClassifier,
    Rate,
    RenderedTest,
    ScoredCaption,
    SmallestDifference,
    Target,
)
from counterfoil.mining.report import pictures_wanted, thumbnail

SANDAL, PULLOVER, COAT = 5, 2, 4


def rate(failures: int, rows: int, units: int | None = None, width: float = 0.09) -> Rate:
    share = failures / rows
    interval = (max(0.0, share - width), min(1.0, share + width))
    return Rate(rows, rows if units is None else units, failures, share, interval)


def finding(
    name: str, label: int, words: str, caption: str, set: Rate, rest: Rate, q: float,
    role: Literal["hard", "far_from"] = "hard", confirmed: bool = True,
) -> Finding:  # fmt: skip
    assert set.rate is not None and rest.rate is not None
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
        difference=Difference(value, (value - 0.13, value + 0.13), (value - 0.17, value + 0.17) if confirmed else None),
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
                    f"audit/{name}/near{n}", caption if n % 3 else f"{caption} in the rain", bool(n % 3), n > 5
                )
                for n in range(12)
            ),
        ),
        nearest_curve=tuple(
            CurvePoint(k, 0.9 - value + value * at / 6) for at, k in enumerate((10, 20, 40, 80, 160, 320, 600))
        ),
        others=(
            OtherClassifier("lab:convnext_atto", rate(20, 61), rate(14, 139)),
            OtherClassifier("lab:vit_tiny_patch8", rate(31, 61), rate(11, 139)),
        ),
        about={"alpha": 0.2, "rank": 1},
    )


def rendered_test(set: Rate, rest: Rate, p: float) -> RenderedTest:
    assert set.rate is not None and rest.rate is not None
    value = set.rate - rest.rate
    return RenderedTest(set, rest, Difference(value, (value - 0.15, value + 0.15)), p)


def audit(label: int, errors: int, reason: str | None = None) -> ClassAudit:
    if reason is not None:
        return ClassAudit(f"{label:02d}", CLASSES[label], 1200, errors, errors / 1200, reason=reason)
    name = CLASSES[label]
    return ClassAudit(
        f"{label:02d}",
        name,
        1200,
        errors,
        errors / 1200,
        ClassDirection(0.83 - label / 50, (0.74, 0.9), 0.005, 0.01, 600, errors // 2, "kernel"),
        hard=(ScoredCaption(f"a checked {name}", -0.8), ScoredCaption(f"a striped {name} against a wall", -0.6)),
        easy=(ScoredCaption(f"a {name} on the beach", 0.9), ScoredCaption(f"a {name} in the snow", 0.4)),
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
            finding("sandal_far_from", SANDAL, "sandal not on a beach", "a photo of a sandal on a beach",
                    rate(37, 61, 40), rate(12, 139, 101), 0.002, "far_from"),
            replace(
                finding("pullover_hard", PULLOVER, "checked pullover", "a photo of a checked pullover",
                        rate(30, 58, 44), rate(13, 142, 96), 0.0004),
                tested_on="both",
                rendered=rendered_test(rate(24, 44), rate(5, 47), 0.0001),
            ),
            drawn(finding("coat_hard", COAT, "red coat in the snow", "a photo of a red coat in the snow",
                          rate(17, 60), rate(15, 140), 0.083)),
            finding("coat_far_from", COAT, "coat not indoors", "a photo of a coat indoors",
                    rate(9, 61), rate(16, 139), 0.45, "far_from", False),
            finding("pullover_far_from", PULLOVER, "pullover not on the road", "a photo of a pullover on the road",
                    rate(12, 61), rate(20, 139), 1.0, "far_from", False),
        ),
        not_tested=(NotTested("bag_far_from", ("08",), "bag not at night", "nothing renders it"),),
    )  # fmt: skip


def drawn(one: Finding) -> Finding:
    """The same finding, tested on images that were rendered for it."""
    return replace(one, tested_on="rendered", rendered=RenderedTest(one.set, one.rest, one.difference, one.p))


def nothing_confirmed() -> Findings:
    findings = example()
    return replace(findings, findings=tuple(replace(one, confirmed=False, q=0.6) for one in findings.findings))


def example_pictures(findings: Findings) -> dict[str, bytes]:
    """A wardrobe scene for each picture that the page wants."""
    wanted = pictures_wanted(findings)
    labels = {one.name: int(one.classes[0]) for one in findings.findings}
    pictures = {}
    for number, key in enumerate(wanted):
        label = labels.get(key.split("/")[1], 0) if "/" in key else 0
        scene = Scene("audit", number % 50, label, background=BACKGROUNDS[number % len(BACKGROUNDS)], seed=number)
        pictures[key] = thumbnail(Image.fromarray(render(scene)))
    return pictures
