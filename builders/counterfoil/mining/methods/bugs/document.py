"""Turn a search for bugs into the findings document.

A test stops when its rate is high enough, so the rates of tested pairs are biased upwards. The
document therefore takes its rates from new pairs, and their number is fixed before they are drawn.
"""

from __future__ import annotations

from collections import Counter
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
from counterfoil.mining.methods.bugs.descriptions import (
    BackgroundCounts,
    Description,
    background_facts,
    pieces_of,
)
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
from counterfoil.sequential_stats import StoppedRate, e_q_values
from counterfoil.stats import POWER, simultaneous_level, wilson_interval

SHORTENED_FROM = "shortened_from"
_MOST_EVIDENCE = 12
_MOST_ANSWERS = 15
_MOST_EXAMPLES = 3


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
    settings = run.settings
    words = {}
    for trial in search.tested:
        hypothesis = trial.hypothesis
        class_name = recipe.classes[hypothesis.label].name
        words[hypothesis.name] = hypothesis.description.words(class_name)
    findings = []
    for trial in search.tested:
        name = trial.hypothesis.name
        finding = finding_of(
            trial,
            run,
            answer_names,
            estimate=search.estimates.get(name),
            shortened_to=search.shortened_to.get(name),
            shortened_from=words.get(trial.hypothesis.parent or ""),
            background=search.backgrounds.get(name),
        )
        findings.append(finding)
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
        not_tested.append(NotTested(f"{cls.id}_cluster_{index}", (cls.id,), shown, reason))
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
        classes=tuple(classes),
        findings=adjusted_together(findings, mine.fdr, mine.margin),
        not_tested=tuple(not_tested),
        seed=mine.seed,
        rounds=tuple(map(round_drawn, search.rounds)),
    )


def round_drawn(drawn: DrawnRound) -> RoundDrawn:
    wanted = drawn.asked
    return RoundDrawn(wanted.name, wanted.purpose, drawn.seed, wanted.images, len(drawn.images))


def finding_of(
    trial: Trial,
    run: MiningRun,
    answer_names: Sequence[str],
    *,
    estimate: StoppedRate | None = None,
    shortened_to: str | None = None,
    shortened_from: str | None = None,
    background: BackgroundCounts | None = None,
) -> Finding:
    """Return a hypothesis and its pairs as a finding. `adjusted_together` later adjusts it for all
    other findings."""
    hypothesis = trial.hypothesis
    cls = run.recipe.classes[hypothesis.label]
    description = hypothesis.description
    described, beside, difference = rates_of(trial.count)
    facts = {
        STYLED: description.styled or None,
        **background_facts(description, background),
        SHORTENED_FROM: shortened_from,
        SHORTENED_TO: shortened_to,
        "described": list(hypothesis.evidence[:_MOST_EVIDENCE]) or None,
    }
    about = dict(hypothesis.about) | {SHIFT_CAPTION: description.caption}
    about |= {name: value for name, value in facts.items() if value is not None}
    reached = None
    until = run.settings.until
    if estimate is not None and until is not None and estimate.n:
        drawn = estimate.n
        reached = StoppedEstimate(until, drawn, estimate.reached, estimate.rate, estimate.interval)
    largest = max((log_e for _, log_e in trial.looks), default=0.0)
    test = PairedTest(
        **asdict(trial.count),
        state="futile" if trial.state == "futile" else "out_of_budget",
        looks=tuple(SequentialLook(*look) for look in trial.looks),
        estimate=reached,
        drawn=trial.drawn,
    )
    return Finding(
        name=hypothesis.name,
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
    base_failures = sum(trial.count.both + trial.count.rescued for trial in drawn)
    rate = base_failures / sum(trial.count.pairs for trial in drawn)
    difference = smallest_paired_difference(pairs, rate, len(search.tested), mine.fdr)
    return SmallestDifference(difference, POWER, pairs, pairs, rate)


def _evidence(pairs: Sequence[Pairs], names: Sequence[str]) -> list[Evidence]:
    """Return images as evidence. Pairs that fail only with the description come first (score 1),
    and pairs whose two images both fail come next (score 0.5).
    """
    failing: list[tuple[Evidence, Evidence]] = []
    right: list[Evidence] = []
    for drawn_pairs in pairs:
        drawn = drawn_pairs.drawn
        for row, base_row in zip(drawn_pairs.described, drawn_pairs.base, strict=True):
            key = drawn.keys[row]
            answered = names[int(drawn.answers[row])]
            if not drawn.failed[row]:
                right.append(Evidence(key, 0.0, False, "rendered", answered=answered))
                continue
            base_failed = bool(drawn.failed[base_row])
            score = 0.5 if base_failed else 1.0
            described = Evidence(key, score, True, "rendered", answered=answered)
            answered = names[int(drawn.answers[base_row])]
            base_key = drawn.keys[base_row]
            base = Evidence(base_key, 0.0, base_failed, "rendered", answered=answered)
            failing.append((described, base))
    failing.sort(key=lambda pair: -pair[0].score)
    del failing[_MOST_EVIDENCE:]
    evidence = [described for described, _ in failing]
    evidence += right[: _MOST_EVIDENCE // 2]
    # The base images of the failing pairs come last.
    return evidence + [base for _, base in failing]


def wrong_answers(pairs: Sequence[Pairs], names: Sequence[str]) -> WrongAnswers:
    """Return the target's wrong answers on the base and on the described images."""
    before = _wrong(pairs, names, described=False)
    after = _wrong(pairs, names, described=True)
    return WrongAnswers(before, after)


def _wrong(
    pairs: Sequence[Pairs], names: Sequence[str], *, described: bool
) -> tuple[AnswerCount, ...]:
    """Return the wrong answers to the described images or to the base images of all pairs, most
    frequent first."""
    keys: dict[int, list[str]] = {}
    often: Counter[int] = Counter()
    images = 0
    for pair in pairs:
        drawn = pair.drawn
        rows: Ints = pair.described if described else pair.base
        images += len(rows)
        for row in rows[drawn.failed[rows]].tolist():
            answer = int(drawn.answers[row])
            often[answer] += 1
            keys.setdefault(answer, []).append(drawn.keys[row])
    ranked = sorted(often, key=lambda answer: (-often[answer], answer))[:_MOST_ANSWERS]
    counts = []
    for answer in ranked:
        count = often[answer]
        examples = tuple(keys[answer][:_MOST_EXAMPLES])
        counts.append(AnswerCount(names[answer], count, count / images, examples))
    return tuple(counts)


def target_of(run: MiningRun, class_map: ClassMap) -> Target:
    """Return the audited classifier for the document."""
    classifier = load_classifier(run.target, classes=run.recipe.classes)
    name = run.mine.target or classifier.name
    return Target(name, classifier.sha256, {"outputs": class_map.outputs})


def adjusted_together(
    findings: Sequence[Finding], fdr: float, margin: float
) -> tuple[Finding, ...]:
    """Return findings that were tested in pairs, sorted for the document. They get q-values,
    confirmations (as in `confirmed_among`) and simultaneous intervals (Bonferroni), all computed
    over all findings.

    e-BH controls the false discovery rate for hypotheses that are fixed beforehand. If a person
    adds hypotheses until one is confirmed, the rate can exceed its level. This was simulated with
    hypotheses that are all false, tried one by one, each with looks after 16 to 128 pairs: 5 % of
    the series of five hypotheses and 7 % of the series of twenty had a confirmed one. The level
    allows 10 %.
    """
    q = e_q_values([finding.last_log_e or 0.0 for finding in findings])
    of_name = {finding.name: finding for finding in findings}
    confirmed = set()
    for finding, value in zip(findings, q, strict=True):
        test = pairs_of(finding)
        if value <= fdr and test.state != "futile" and test.difference >= margin:
            confirmed.add(finding.name)
    standing = set()
    for name in confirmed:
        if of_name[name].about.get(SHORTENED_TO) not in confirmed:
            standing.add(name)
    level = simultaneous_level(len(standing))
    judged = []
    for finding, value in zip(findings, q, strict=True):
        pairs = pairs_of(finding)
        is_confirmed = finding.name in confirmed
        counted: PairCount = pairs
        state = "futile" if pairs.state == "futile" else "out_of_budget"
        if is_confirmed:
            counted = PairCount(0, 0, 0, 0)
            state = "confirmed"
        of_level = level if finding.name in standing else None
        described, base, difference = rates_of(pairs.fresh or counted, of_level)
        pairs = replace(pairs, state=state)
        finding = replace(finding, q=value, confirmed=is_confirmed, pairs=pairs)
        judged.append(replace(finding, set=described, rest=base, difference=difference))

    def order(finding: Finding) -> tuple[bool, bool, float, str]:
        replaced = SHORTENED_TO in finding.about
        return not finding.confirmed, replaced, -(finding.difference.value or 0.0), finding.name

    return tuple(sorted(judged, key=order))


def with_more(
    findings: Findings, more: Sequence[Finding], rounds: Sequence[RoundDrawn]
) -> Findings:
    """Return the document with more findings and their rounds. A finding whose name is taken gets a
    number."""
    taken = {finding.name for finding in findings.findings}
    added_findings: list[Finding] = []
    for added in more:
        name = unique_name(added.name, taken)
        taken.add(name)
        added_findings.append(replace(added, name=name))
    judged = adjusted_together([*findings.findings, *added_findings], findings.fdr, findings.margin)
    smallest = findings.smallest_difference
    if smallest is not None:
        least = smallest_paired_difference(
            smallest.set_rows, smallest.rest_rate, len(judged), findings.fdr
        )
        smallest = replace(smallest, difference=least)
    findings = replace(findings, findings=judged, tested=len(judged))
    rounds = with_rounds(findings, rounds)
    return replace(findings, rounds=rounds, smallest_difference=smallest)


def with_rounds(findings: Findings, rounds: Sequence[RoundDrawn]) -> tuple[RoundDrawn, ...]:
    by_name = {drawn.name: drawn for drawn in (*findings.rounds, *rounds)}
    return tuple(by_name.values())


def rates_of(count: PairCount, level: float | None = None) -> tuple[Rate, Rate, Difference]:
    """Return the failure rate with the description, the rate on the base, and their difference.
    level: the confidence of the second interval of the difference.
    """
    pairs = count.pairs
    if not pairs:
        unknown = Rate(0, 0, 0, None, None)
        return unknown, unknown, Difference(None, None)

    def rate_of_failures(failures: int) -> Rate:
        interval = wilson_interval(failures, pairs)
        return Rate(pairs, pairs, failures, failures / pairs, interval)

    described = rate_of_failures(count.both + count.failing)
    base = rate_of_failures(count.both + count.rescued)
    reported = None if level is None else tango_interval(count, level)
    return described, base, Difference(count.difference, tango_interval(count), reported)


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
    for wanted_finding in to_estimate:
        cell = described_cell(wanted_finding, run)
        if cell is None:
            continue
        name = wanted_finding.name
        count = pairs_to_draw(wanted_finding, run.settings)
        round_asked = RoundAsked(number, purpose, count, {name: cell}, (cell.label,))
        drawn = draw(round_asked)
        pairs = drawn.pairs(name)
        asked = drawn.asked
        fresh = FreshPairs(**asdict(pairs.count), drawn=asked.candidates, round=asked.name)
        test = replace(pairs_of(wanted_finding), fresh=fresh)
        answers = wrong_answers([pairs], answer_names)
        estimated[name] = replace(wanted_finding, pairs=test, answers=answers)
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
    return min(ceil(needed / max(accepted, _LEAST_ACCEPTED)), settings.estimate_pairs)


def described_cell(finding: Finding, run: MiningRun) -> BugHypothesis | None:
    """Return the cell that renders a finding. Return None if the recipe lacks the class, or if the
    finding's words give another prompt with this recipe.
    """
    by_id = {cls.id: cls for cls in run.recipe.classes}
    cls = by_id.get(finding.classes[0])
    if cls is None:
        return None
    pieces = pieces_of(finding.caption, filled_base(run, cls), cls.name)
    description = Description(pieces or ())
    if description.prompt(base_prompt(run)) != finding.prompt:
        return None
    return BugHypothesis(finding.name, cls.label, description)
