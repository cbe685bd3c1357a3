"""All hypotheses of a run as one family: what each e-value is worth changes whenever one more is tested.

A test ends when its pairs look bad, and what is confirmed was chosen for that: at a true difference of 10 points and at
most 128 pairs, its own pairs tell 1 to 19 points too much, most where it is seldom confirmed
(`scripts/bugs_proof/estimates.py`). So a confirmed finding has rates of its fresh pairs alone, and none without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from counterfoil.mining.bugs.drawing import TRIED
from counterfoil.mining.findings import (
    SHORTENED_TO,
    CountedPairs,
    Difference,
    Finding,
    Findings,
    PairedTest,
    Rate,
    RoundDrawn,
)
from counterfoil.paired_stats import PairCount, smallest_paired_difference, tango_interval
from counterfoil.stats import e_q_values, simultaneous_level, wilson_interval


def judged_together(findings: Sequence[Finding], fdr: float, margin: float) -> tuple[Finding, ...]:
    """Findings tested in pairs, with q-values, confirmations and intervals over all of them, in the document's order.

    Confirmed are those that e-BH rejects, that were not given up as futile, and that fail by the margin or more above
    the base (`confirmed_among`): the test's word stands, whatever fresh pairs say. Where shorter words stand for
    longer ones and are not confirmed themselves, the longer ones stand for themselves (`Findings.standing`). Intervals
    of the differences of those that stand hold for all of them at once (Bonferroni).

    e-BH holds for hypotheses that were fixed beforehand. Who adds more by hand until one is confirmed spends the level
    each time anew, though each costs all of them some: of true nulls tried one by one, looked at at 16 to 128 pairs,
    5 % of five and 7 % of twenty had a confirmed one among them, where 10 % are allowed.
    """
    q = e_q_values([log_e_of(one) for one in findings])
    of_name = {one.name: one for one in findings}
    confirmed = {
        one.name
        for one, value in zip(findings, q, strict=True)
        if value <= fdr and _pairs(one).state != "futile" and count_of(one).difference >= margin
    }
    standing = {name for name in confirmed if of_name[name].about.get(SHORTENED_TO) not in confirmed}
    level = simultaneous_level(len(standing))
    judged = [
        _judged(one, value, one.name in confirmed, level if one.name in standing else None)
        for one, value in zip(findings, q, strict=True)
    ]
    return tuple(
        sorted(
            judged,
            key=lambda one: (not one.confirmed, SHORTENED_TO in one.about, -(one.difference.value or 0.0), one.name),
        )
    )


def with_more(findings: Findings, more: Sequence[Finding], rounds: Sequence[RoundDrawn]) -> Findings:
    """The document with some more findings, which were tested in some more rounds.

    One whose name is taken gets another: a search may come to the words that a person had tried before.
    """
    taken = {one.name for one in findings.findings}
    apart: list[Finding] = []
    for one in more:
        name, place = one.name, 2
        while name in taken:
            name, place = f"{one.name}_{place}", place + 1
        taken.add(name)
        apart.append(replace(one, name=name))
    judged = judged_together([*findings.findings, *apart], findings.fdr, findings.margin)
    seen = findings.smallest_difference
    if seen is not None:
        least = smallest_paired_difference(seen.set_rows, seen.rest_rate, len(judged), findings.fdr)
        seen = replace(seen, difference=least)
    return replace(
        findings,
        findings=judged,
        tested=len(judged),
        rounds=with_rounds(findings, rounds),
        smallest_difference=seen,
    )


def with_rounds(findings: Findings, rounds: Sequence[RoundDrawn]) -> tuple[RoundDrawn, ...]:
    """The rounds of a document and some more, each folder once."""
    return tuple({one.name: one for one in (*findings.rounds, *rounds)}.values())


def tried_of(findings: Findings) -> Findings:
    """The document of what a person tried by hand, and of nothing else."""
    tried = tuple(one for one in findings.findings if one.origin == "tried")
    rounds = tuple(one for one in findings.rounds if one.name.startswith(f"{TRIED}/"))
    return replace(
        findings, findings=tried, tested=len(tried), rounds=rounds, classes=(), not_tested=(), smallest_difference=None
    )


def log_e_of(one: Finding) -> float:
    """Natural logarithm of a finding's e-value, as it stood last."""
    looks = _pairs(one).looks
    return looks[-1].log_e if looks else 0.0


def count_of(one: Finding) -> PairCount:
    """The pairs of a finding's test."""
    return _counted(_pairs(one))


def rates_of(count: PairCount, level: float | None = None) -> tuple[Rate, Rate, Difference]:
    """The rates of the description and of its base, and their difference; level: of a second interval of that."""
    if not count.pairs:
        return Rate(0, 0, 0, None, None), Rate(0, 0, 0, None, None), Difference(None, None)
    described, base = (
        Rate(count.pairs, count.pairs, failures, failures / count.pairs, wilson_interval(failures, count.pairs))
        for failures in (count.both + count.failing, count.both + count.rescued)
    )
    reported = None if level is None else tango_interval(count, level)
    return described, base, Difference(count.difference, tango_interval(count), reported)


def _judged(one: Finding, q: float, confirmed: bool, level: float | None) -> Finding:
    """level: of the interval that holds beside those of all others that stand; None for what does not stand."""
    pairs = _pairs(one)
    state = "confirmed" if confirmed else "futile" if pairs.state == "futile" else "out_of_budget"
    told = PairCount(0, 0, 0, 0) if confirmed else count_of(one)
    if pairs.fresh is not None:
        told = _counted(pairs.fresh)
    described, base, difference = rates_of(told, level)
    return replace(
        one,
        q=q,
        confirmed=confirmed,
        pairs=replace(pairs, state=state),
        set=described,
        rest=base,
        difference=difference,
    )


def _counted(pairs: CountedPairs) -> PairCount:
    return PairCount(pairs.pairs, pairs.both, pairs.failing, pairs.rescued)


def _pairs(one: Finding) -> PairedTest:
    if one.pairs is None:
        raise ValueError(f"{one.name} was not tested in pairs")
    return one.pairs
