"""Turn a search for bugs into the findings document.

A test stops when its rate is high enough, so the rates of tested pairs are biased upwards. The
document therefore takes its rates from new pairs, and their number is fixed before they are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from math import ceil

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.mining.findings import (
    SHORTENED_TO,
    AnswerCount,
    AuditedImages,
    ClassAudit,
    Difference,
    Evidence,
    Finding,
    Findings,
    FreshPairs,
    MethodUsed,
    MinedRecipe,
    NotTested,
    PairedTest,
    Purpose,
    Rate,
    RoundDrawn,
    SequentialLook,
    SmallestDifference,
    StoppedEstimate,
    Target,
    WrongAnswers,
)
from counterfoil.mining.findings_layer import SHIFT_CAPTION, STYLED
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.descriptions import Description, background_facts, pieces_of
from counterfoil.mining.methods.bugs.search import BugSearch, unique_name
from counterfoil.mining.methods.bugs.trials import (
    BugHypothesis,
    Draw,
    DrawnRound,
    Pairs,
    RoundAsked,
    Trial,
    base_prompt,
    filled_base,
)
from counterfoil.models.classifiers import load_classifier
from counterfoil.paired_stats import (
    PairCount,
    pairs_of_half_width,
    smallest_paired_difference,
    tango_interval,
)
from counterfoil.prediction.class_map import ClassMap
from counterfoil.progress import report_progress
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.sequential_stats import e_q_values
from counterfoil.stats import POWER, simultaneous_level, wilson_interval

SHORTENED_FROM = "shortened_from"
_MOST_EVIDENCE = 12
_MOST_ANSWERS = 15
_MOST_EXAMPLES = 3
_NO_SEARCH = BugSearch((), ())


def document_of(
    search: BugSearch,
    run: MiningRun,
    target: Target,
    answer_names: Sequence[str],
    seeds: Sequence[AuditedImages] = (),
) -> Findings:
    """Return the findings document of a search. answer_names: a name for each output of the
    target."""
    recipe = run.recipe
    mine = run.mine
    findings = [finding_of(trial, run, answer_names, search) for trial in search.tested]
    audits = {baseline.id: baseline for baseline in search.baseline}
    classes = []
    for cls in recipe.classes:
        audit = audits.get(cls.id)
        if audit is None:
            reason = "not searched (mine.settings.classes)"
            audit = ClassAudit(cls.id, cls.name, 0, 0, None, reason=reason)
        classes.append(audit)
    not_tested = []
    for index, (cluster, reason) in enumerate(search.undescribed):
        cls = recipe.classes[cluster.label]
        answer = answer_names[cluster.answered]
        shown = f"{cls.name}: {len(cluster.keys)} failures answered {answer}"
        name = f"{cls.id}_cluster_{index}"
        not_tested.append(NotTested(name, (cls.id,), shown, reason))
    settings = run.settings.model_dump(mode="json")
    return Findings(
        recipe=MinedRecipe(recipe.name, recipe.recipe_hash),
        method=MethodUsed(mine.method, settings),
        target=target,
        on=tuple(seeds),
        failure=mine.failure,
        halves=None,
        margin=mine.margin,
        fdr=mine.fdr,
        tested=len(findings),
        smallest_difference=smallest_of(search, mine),
        classes=tuple(classes),
        findings=adjusted_together(findings, mine.fdr, mine.margin),
        not_tested=tuple(not_tested),
        seed=mine.seed,
        rounds=tuple(map(round_drawn, search.rounds)),
    )


def round_drawn(drawn: DrawnRound) -> RoundDrawn:
    wanted = drawn.asked
    accepted = len(drawn.images)
    return RoundDrawn(wanted.name, wanted.purpose, drawn.seed, wanted.images, accepted)


def finding_of(
    trial: Trial,
    run: MiningRun,
    answer_names: Sequence[str],
    search: BugSearch = _NO_SEARCH,
) -> Finding:
    """Return a hypothesis and its pairs as a finding. `adjusted_together` later adjusts it for all
    other findings."""
    hypothesis = trial.hypothesis
    name = hypothesis.name
    cls = run.recipe.classes[hypothesis.label]
    description = hypothesis.description
    about = dict(hypothesis.about)
    about[SHIFT_CAPTION] = description.caption
    if description.styled:
        about[STYLED] = True
    about |= background_facts(description, search.backgrounds.get(name))
    for other in search.tested:
        if other.hypothesis.name == hypothesis.parent:
            about[SHORTENED_FROM] = other.hypothesis.description.words(cls.name)
    if name in search.shortened_to:
        about[SHORTENED_TO] = search.shortened_to[name]
    if hypothesis.evidence:
        about["described"] = list(hypothesis.evidence[:_MOST_EVIDENCE])
    estimate = search.estimates.get(name)
    reached = None
    if estimate is not None and estimate.n:
        reached = StoppedEstimate(
            until=run.settings.until,
            drawn=estimate.n,
            reached=estimate.reached,
            rate=estimate.rate,
            interval=estimate.interval,
        )
    test = PairedTest(
        **asdict(trial.count),
        state="futile" if trial.state == "futile" else "out_of_budget",
        looks=tuple(SequentialLook(*look) for look in trial.looks),
        estimate=reached,
        drawn=trial.drawn,
    )
    log_e_values = [log_e for _, log_e in trial.looks]
    largest = max(log_e_values, default=0.0)
    described, beside, difference = rates_of(trial.count)
    return Finding(
        name=name,
        classes=(cls.id,),
        class_names=(cls.name,),
        role="hard",
        words=description.words(cls.name),
        caption=description.prompt(filled_base(run, cls), cls.name),
        prompt=description.prompt(base_prompt(run)),
        confirmed=False,
        set=described,
        rest=beside,
        difference=difference,
        p=min(1.0, float(np.exp(-largest))),
        q=1.0,
        discover=None,
        evidence=tuple(_evidence(trial.pairs, answer_names)),
        tested_on="pairs",
        pairs=test,
        answers=wrong_answers(trial.pairs, answer_names),
        origin=hypothesis.origin,
        about=about,
    )


def smallest_of(search: BugSearch, mine: Mine) -> SmallestDifference | None:
    """Return the smallest difference from the base that a hypothesis could show if its test drew
    all its pairs. The base is assumed to fail at its rate over all classes.
    """
    drawn = [trial for trial in search.tested if trial.count.pairs]
    if not drawn:
        return None
    ended = [trial for trial in drawn if trial.state == "open"] or drawn
    pairs = max(trial.count.pairs for trial in ended)
    total = PairCount(0, 0, 0, 0)
    for trial in drawn:
        total += trial.count
    rate = total.base_rate
    difference = smallest_paired_difference(pairs, rate, len(search.tested), mine.fdr)
    return SmallestDifference(difference, POWER, pairs, pairs, rate)


def _evidence(pairs: Sequence[Pairs], names: Sequence[str]) -> list[Evidence]:
    """Return images as evidence. Pairs that fail only with the description come first (score 1),
    and pairs whose two images both fail come next (score 0.5).
    """

    def evidence(drawn: DrawnRound, row: int, score: float) -> Evidence:
        return Evidence(
            drawn.keys[row],
            score,
            failed=bool(drawn.failed[row]),
            half="rendered",
            answered=names[int(drawn.answers[row])],
        )

    failing: list[tuple[Evidence, Evidence]] = []
    right: list[Evidence] = []
    for drawn_pairs in pairs:
        drawn = drawn_pairs.drawn
        for row, base_row in zip(drawn_pairs.described, drawn_pairs.base, strict=True):
            if not drawn.failed[row]:
                right.append(evidence(drawn, row, 0.0))
                continue
            base = evidence(drawn, base_row, 0.0)
            score = 0.5 if base.failed else 1.0
            failing.append((evidence(drawn, row, score), base))
    failing.sort(key=lambda pair: -pair[0].score)
    del failing[_MOST_EVIDENCE:]
    images = [described for described, _ in failing]
    images += right[: _MOST_EVIDENCE // 2]
    # The base images of the failing pairs come last.
    images += [base for _, base in failing]
    return images


def wrong_answers(pairs: Sequence[Pairs], names: Sequence[str]) -> WrongAnswers:
    """Return the target's wrong answers on the base and on the described images."""
    before = [(pair.drawn, pair.base) for pair in pairs]
    after = [(pair.drawn, pair.described) for pair in pairs]
    return WrongAnswers(_wrong(before, names), _wrong(after, names))


def _wrong(
    images: Sequence[tuple[DrawnRound, Ints]],
    names: Sequence[str],
) -> tuple[AnswerCount, ...]:
    """Return the wrong answers to images, rows of rounds, most frequent first."""
    keys: dict[int, list[str]] = {}
    total = 0
    for drawn, rows in images:
        total += len(rows)
        for row in rows[drawn.failed[rows]].tolist():
            answer = int(drawn.answers[row])
            keys.setdefault(answer, []).append(drawn.keys[row])
    counts = []
    for answer in sorted(keys, key=lambda answer: (-len(keys[answer]), answer)):
        of_answer = keys[answer]
        count = len(of_answer)
        examples = tuple(of_answer[:_MOST_EXAMPLES])
        share = count / total
        counts.append(AnswerCount(names[answer], count, share, examples))
    return tuple(counts[:_MOST_ANSWERS])


def target_of(run: MiningRun, class_map: ClassMap) -> Target:
    """Return the audited classifier for the document."""
    classifier = load_classifier(run.target, classes=run.recipe.classes)
    about = {"outputs": class_map.outputs}
    return Target(run.target, classifier.sha256, about)


def adjusted_together(
    findings: Sequence[Finding],
    fdr: float,
    margin: float,
) -> tuple[Finding, ...]:
    """Return findings that were tested in pairs, sorted for the document. They get q-values,
    confirmations (as in `confirmed_names`) and simultaneous intervals (Bonferroni), all computed
    over all findings.

    e-BH controls the false discovery rate for hypotheses that are fixed beforehand. If a person
    adds hypotheses until one is confirmed, the rate can exceed its level. This was simulated with
    hypotheses that are all false, tried one by one, each with looks after 16 to 128 pairs: 5 % of
    the series of five hypotheses and 7 % of the series of twenty had a confirmed one. The level
    allows 10 %.
    """
    q_values = e_q_values([finding.last_log_e or 0.0 for finding in findings])
    confirmed = {}
    for finding, q in zip(findings, q_values, strict=True):
        test = pairs_of(finding)
        if q <= fdr and test.state != "futile" and test.difference >= margin:
            confirmed[finding.name] = finding.about.get(SHORTENED_TO)
    standing = [name for name, shorter in confirmed.items() if shorter not in confirmed]
    level = simultaneous_level(len(standing))
    judged = []
    for finding, q in zip(findings, q_values, strict=True):
        name = finding.name
        pairs = pairs_of(finding)
        counted: PairCount = pairs
        state = "futile" if pairs.state == "futile" else "out_of_budget"
        if name in confirmed:
            counted = PairCount(0, 0, 0, 0)
            state = "confirmed"
        of_level = level if name in standing else None
        described, base, difference = rates_of(pairs.fresh or counted, of_level)
        adjusted = replace(
            finding,
            q=q,
            confirmed=name in confirmed,
            pairs=replace(pairs, state=state),
            set=described,
            rest=base,
            difference=difference,
        )
        judged.append(adjusted)

    def order(finding: Finding) -> tuple[bool, bool, float, str]:
        replaced = SHORTENED_TO in finding.about
        difference = finding.difference.value or 0.0
        return not finding.confirmed, replaced, -difference, finding.name

    return tuple(sorted(judged, key=order))


def with_more(
    findings: Findings,
    more: Sequence[Finding],
    rounds: Sequence[RoundDrawn],
) -> Findings:
    """Return the document with more findings and their rounds. A finding whose name is taken gets a
    number."""
    every = list(findings.findings)
    taken = {finding.name for finding in every}
    for added in more:
        name = unique_name(added.name, taken)
        taken.add(name)
        every.append(replace(added, name=name))
    smallest = findings.smallest_difference
    if smallest is not None:
        least = smallest_paired_difference(
            smallest.set_rows,
            smallest.rest_rate,
            len(every),
            findings.fdr,
        )
        smallest = replace(smallest, difference=least)
    return replace(
        findings,
        findings=adjusted_together(every, findings.fdr, findings.margin),
        tested=len(every),
        rounds=with_rounds(findings, rounds),
        smallest_difference=smallest,
    )


def with_rounds(
    findings: Findings,
    rounds: Sequence[RoundDrawn],
) -> tuple[RoundDrawn, ...]:
    every = (*findings.rounds, *rounds)
    by_name = {drawn.name: drawn for drawn in every}
    return tuple(by_name.values())


def rates_of(count: PairCount, level: float | None = None) -> tuple[Rate, Rate, Difference]:
    """Return the failure rate with the description, the rate on the base, and their difference.
    level: the confidence of the second interval of the difference.
    """
    pairs = count.pairs
    if not pairs:
        unknown = Rate(0, 0, 0, None, None)
        return unknown, unknown, Difference(None, None)
    rates = []
    for failures in (count.both + count.failing, count.both + count.rescued):
        interval = wilson_interval(failures, pairs)
        rate = failures / pairs
        rates.append(Rate(pairs, pairs, failures, rate, interval))
    described, base = rates
    reported = None
    if level is not None:
        reported = tango_interval(count, level)
    difference = Difference(count.difference, tango_interval(count), reported)
    return described, base, difference


def pairs_of(finding: Finding) -> PairedTest:
    assert finding.pairs is not None
    return finding.pairs


# The number of pairs to render is computed with an acceptance rate of at least this.
_LEAST_ACCEPTED = 0.05


def estimate_rates(
    findings: Findings,
    draw: Draw,
    number: int,
    run: MiningRun,
    answer_names: Sequence[str],
    purpose: Purpose = "estimate",
) -> Findings:
    """Return the document with rates on fresh pairs for each finding in `standing`. Each finding
    whose pairs are missing gets a round of its own. `draw` gives the round the first number from
    `number` on that is free or already holds the same round.
    """
    to_estimate = [finding for finding in findings.standing if pairs_of(finding).fresh is None]
    to_estimate.sort(key=lambda finding: finding.name)
    estimated: dict[str, Finding] = {}
    rounds: list[RoundDrawn] = []
    for finding in to_estimate:
        cell = described_cell(finding, run)
        if cell is None:
            continue
        name = finding.name
        count = pairs_to_draw(finding, run.settings)
        cells = {name: cell}
        round_asked = RoundAsked(number, purpose, count, cells, (cell.label,))
        drawn = draw(round_asked)
        pairs = drawn.pairs(name)
        asked = drawn.asked
        fresh = FreshPairs(
            **asdict(pairs.count),
            drawn=asked.candidates,
            round=asked.name,
        )
        test = replace(pairs_of(finding), fresh=fresh)
        answers = wrong_answers([pairs], answer_names)
        estimated[name] = replace(finding, pairs=test, answers=answers)
        rounds.append(round_drawn(drawn))
        report_progress("estimating rates of findings", len(estimated), len(to_estimate))
    everything = [estimated.get(finding.name, finding) for finding in findings.findings]
    judged = adjusted_together(everything, findings.fdr, findings.margin)
    return replace(findings, findings=judged, rounds=with_rounds(findings, rounds))


def pairs_to_draw(finding: Finding, settings: BugsSettings) -> int:
    """Return how many pairs to render so that a rate's interval has the half width
    `settings.half_width`. The number is at most `settings.estimate_pairs`.
    """
    test = pairs_of(finding)
    accepted = test.pairs / test.drawn if test.drawn else 1.0
    needed = pairs_of_half_width(test, settings.half_width)
    rendered = ceil(needed / max(accepted, _LEAST_ACCEPTED))
    return min(rendered, settings.estimate_pairs)


def described_cell(finding: Finding, run: MiningRun) -> BugHypothesis | None:
    """Return the cell that renders a finding. Return None if the recipe lacks the class, or if the
    finding's words give another prompt with this recipe.
    """
    by_id = {cls.id: cls for cls in run.recipe.classes}
    cls = by_id.get(finding.classes[0])
    if cls is None:
        return None
    base = filled_base(run, cls)
    pieces = pieces_of(finding.caption, base, cls.name)
    description = Description(pieces or ())
    if description.prompt(base_prompt(run)) != finding.prompt:
        return None
    return BugHypothesis(finding.name, cls.label, description)
