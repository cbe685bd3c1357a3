"""A search for bugs as the findings document: every hypothesis with its pairs, and what the base was like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.bugs.background import BackgroundCounts, told_background
from counterfoil.mining.bugs.drawing import DrawnRound, Pairs
from counterfoil.mining.bugs.family import judged_together, rates_of
from counterfoil.mining.bugs.rounds import base_prompt, spoken_base
from counterfoil.mining.bugs.search import BugSearch, ClassBaseline
from counterfoil.mining.bugs.trials import Trial
from counterfoil.mining.findings import (
    SHORTENED_TO,
    AnswerCount,
    AuditedImages,
    ClassAudit,
    Evidence,
    Finding,
    Findings,
    MethodUsed,
    MinedRecipe,
    NotTested,
    PairedTest,
    RoundDrawn,
    SequentialLook,
    SmallestDifference,
    StoppedEstimate,
    Target,
    WrongAnswers,
)
from counterfoil.mining.findings_layer import SHIFT_CAPTION, STYLED
from counterfoil.models.classifiers import load_classifier
from counterfoil.paired_stats import smallest_paired_difference
from counterfoil.prediction.class_map import ClassMap
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.stats import POWER, StoppedRate

SHORTENED_FROM = "shortened_from"
_MOST_EVIDENCE = 12
_MOST_ANSWERS = 15
_MOST_EXAMPLES = 3


def document_of(
    search: BugSearch,
    recipe: Recipe,
    mine: Mine,
    settings: BugsSettings,
    target: Target,
    answer_names: Sequence[str],
    seeds: Sequence[AuditedImages] = (),
) -> Findings:
    """The findings of a search. answer_names: what each of the target's outputs is called."""
    words = {
        one.hypothesis.name: one.hypothesis.description.words(recipe.classes[one.hypothesis.label].name)
        for one in search.tested
    }
    findings = [
        finding_of(
            one,
            recipe,
            settings,
            answer_names,
            estimate=search.estimates.get(one.hypothesis.name),
            shortened_to=search.shortened_to.get(one.hypothesis.name),
            shortened_from=words.get(one.hypothesis.parent or ""),
            background=search.backgrounds.get(one.hypothesis.name),
        )
        for one in search.tested
    ]
    return Findings(
        recipe=MinedRecipe(recipe.name, recipe.recipe_hash),
        method=MethodUsed(mine.method, settings.model_dump(mode="json")),
        target=target,
        on=tuple(seeds),
        failure=mine.failure,
        halves=None,
        margin=mine.margin,
        fdr=mine.fdr,
        tested=len(findings),
        smallest_difference=smallest_of(search, mine),
        classes=tuple(class_audits(search.baseline, recipe)),
        findings=judged_together(findings, mine.fdr, mine.margin),
        not_tested=tuple(
            NotTested(
                f"{recipe.classes[cluster.label].id}_cluster_{place}",
                (recipe.classes[cluster.label].id,),
                f"{recipe.classes[cluster.label].name}: {len(cluster.keys)} failures answered"
                f" {answer_names[cluster.answered]}",
                reason,
            )
            for place, (cluster, reason) in enumerate(search.undescribed)
        ),
        seed=mine.seed,
        rounds=tuple(round_drawn(one) for one in search.rounds),
    )


def round_drawn(drawn: DrawnRound) -> RoundDrawn:
    """A round, as the document tells it."""
    return RoundDrawn(drawn.asked.name, drawn.asked.purpose, drawn.seed, drawn.asked.images, len(drawn.images))


def finding_of(
    one: Trial,
    recipe: Recipe,
    settings: BugsSettings,
    answer_names: Sequence[str],
    *,
    estimate: StoppedRate | None = None,
    shortened_to: str | None = None,
    shortened_from: str | None = None,
    background: BackgroundCounts | None = None,
) -> Finding:
    """A hypothesis with its pairs, as if it were alone: `judged_together` says what it is worth among others.

    shortened_to: the name of the finding whose shorter words stand for it. shortened_from: the words that it is of.
    background: what its background alone does, and all but its background.
    """
    hypothesis, count, pairs = one.hypothesis, one.count, one.pairs
    cls, description = recipe.classes[hypothesis.label], hypothesis.description
    base = base_prompt(recipe, settings)
    spoken = spoken_base(base, cls)
    described, beside, difference = rates_of(count)
    about = dict(hypothesis.about) | {SHIFT_CAPTION: description.caption}
    about |= {STYLED: True} if description.styled else {}
    about |= told_background(description, background)
    about |= {} if shortened_from is None else {SHORTENED_FROM: shortened_from}
    about |= {} if shortened_to is None else {SHORTENED_TO: shortened_to}
    about |= {"described": list(hypothesis.evidence[:_MOST_EVIDENCE])} if hypothesis.evidence else {}
    return Finding(
        name=hypothesis.name,
        classes=(cls.id,),
        class_names=(cls.name,),
        role="hard",
        words=description.words(cls.name),
        caption=description.prompt(spoken, cls.name),
        prompt=description.prompt(base),
        confirmed=False,
        set=described,
        rest=beside,
        difference=difference,
        p=min(1.0, float(np.exp(-max((log_e for _, log_e in one.looks), default=0.0)))),
        q=1.0,
        discover=None,
        evidence=tuple(_evidence(pairs, answer_names)),
        tested_on="pairs",
        pairs=PairedTest(
            pairs=count.pairs,
            both=count.both,
            failing=count.failing,
            rescued=count.rescued,
            state="futile" if one.state == "futile" else "out_of_budget",
            looks=tuple(SequentialLook(*look) for look in one.looks),
            estimate=None if estimate is None or settings.until is None else _estimate(estimate, settings.until),
            drawn=one.drawn,
        ),
        answers=wrong_answers(pairs, answer_names),
        origin=hypothesis.origin,
        about=about,
    )


def class_audits(baseline: Sequence[ClassBaseline], recipe: Recipe) -> list[ClassAudit]:
    """Every class of the recipe, with its base images where it was looked at."""
    by_label = {one.label: one for one in baseline}
    audits = []
    for cls in recipe.classes:
        one = by_label.get(cls.label)
        if one is None:
            audits.append(ClassAudit(cls.id, cls.name, 0, 0, None, reason="not looked at (mine.settings.classes)"))
            continue
        rate = one.failures / one.images if one.images else None
        audits.append(
            ClassAudit(
                cls.id,
                cls.name,
                one.images,
                one.failures,
                rate,
                reason=one.reason,
                interval=one.interval,
                drawn=one.drawn,
            )
        )
    return audits


def smallest_of(search: BugSearch, mine: Mine) -> SmallestDifference | None:
    """What a hypothesis that was tested to the end would have shown; None where nothing was tested.

    Its pairs are those of what was not decided earlier, and its base rate that of all pairs.
    """
    counts = [one.count for one in search.tested if one.count.pairs]
    ended = [one.count for one in search.tested if one.count.pairs and one.state == "open"] or counts
    if not counts:
        return None
    pairs = max(one.pairs for one in ended)
    rate = sum(one.both + one.rescued for one in counts) / sum(one.pairs for one in counts)
    return SmallestDifference(
        smallest_paired_difference(pairs, rate, len(search.tested), mine.fdr), POWER, pairs, pairs, rate
    )


def _estimate(found: StoppedRate, until: int) -> StoppedEstimate | None:
    if not found.n:
        return None
    return StoppedEstimate(until, found.n, found.reached, found.rate, found.interval)


def _evidence(pairs: Sequence[Pairs], names: Sequence[str]) -> list[Evidence]:
    """Pairs first that fail as described and are right on the base; the score is how telling an image is."""
    told: list[tuple[Evidence, Evidence]] = []
    for each in pairs:
        drawn = each.drawn
        for own, base in zip(each.own.tolist(), each.base.tolist(), strict=True):
            failed, base_failed = bool(drawn.failed[own]), bool(drawn.failed[base])
            score = 1.0 if failed and not base_failed else 0.5 if failed else 0.0
            answers = [names[int(drawn.answers[row])] for row in (own, base)]
            told.append(
                (
                    Evidence(drawn.keys[own], score, failed, "rendered", answered=answers[0]),
                    Evidence(drawn.keys[base], 0.0, base_failed, "rendered", answered=answers[1]),
                )
            )
    failing = [pair for pair in sorted(told, key=lambda pair: -pair[0].score) if pair[0].failed][:_MOST_EVIDENCE]
    right = [own for own, _ in told if not own.failed][: _MOST_EVIDENCE // 2]
    # The base image of each pair of which the description fails lies behind them.
    return [*(own for own, _ in failing), *right, *(base for _, base in failing)]


def wrong_answers(pairs: Sequence[Pairs], names: Sequence[str]) -> WrongAnswers:
    """What the target answers to the base and to the description of some pairs, where that is wrong."""
    return WrongAnswers(_wrong(pairs, names, own=False), _wrong(pairs, names, own=True))


def _wrong(pairs: Sequence[Pairs], names: Sequence[str], *, own: bool) -> tuple[AnswerCount, ...]:
    """Wrong answers of one side of all pairs, most frequent first."""
    keys: dict[int, list[str]] = {}
    often: Counter[int] = Counter()
    images = 0
    for each in pairs:
        rows: NDArray[np.int64] = each.own if own else each.base
        images += len(rows)
        for row in rows[each.drawn.failed[rows]].tolist():
            answer = int(each.drawn.answers[row])
            often[answer] += 1
            keys.setdefault(answer, []).append(each.drawn.keys[row])
    ranked = sorted(often, key=lambda answer: (-often[answer], answer))[:_MOST_ANSWERS]
    return tuple(
        AnswerCount(names[answer], often[answer], often[answer] / images, tuple(keys[answer][:_MOST_EXAMPLES]))
        for answer in ranked
    )


def answer_names(recipe: Recipe, class_map: ClassMap) -> list[str]:
    """What each output of the target is called: by the class that it stands for, else by the target itself."""
    mapped = {
        output: cls.name for cls, outputs in zip(recipe.classes, class_map.targets, strict=True) for output in outputs
    }
    own = class_map.label_names
    return [mapped.get(at, own[at] if own else f"output {at}") for at in range(class_map.num_classes)]


def target_of(recipe: Recipe, mine: Mine, class_map: ClassMap) -> Target:
    """The audited classifier, as the document tells it. Raises as `load_classifier`."""
    classifier = load_classifier(mine.target or "", classes=recipe.classes)
    return Target(mine.target or classifier.name, classifier.sha256, {"outputs": class_map.outputs})
