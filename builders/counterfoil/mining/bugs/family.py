"""All hypotheses of a run as one family: what each e-value is worth changes whenever one more is tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from counterfoil.mining.bugs.pair_tests import PairCount, difference_bounds, e_q_values
from counterfoil.mining.bugs.smallest import smallest_seen
from counterfoil.mining.drawn_findings import PairedTest, RoundDrawn
from counterfoil.mining.findings import SHORTENED_TO, Finding, Findings
from counterfoil.mining.hypothesis_tests import selected_level

_MISSING = 0.05


def judged_together(findings: Sequence[Finding], fdr: float, margin: float) -> tuple[Finding, ...]:
    """Findings tested in pairs, with q-values, confirmations and intervals over all of them, in the document's order.

    Confirmed are those that e-BH rejects, that were not given up as futile, and that fail by the margin or more above
    the base (`confirmed_among`). Where shorter words stand for longer ones and are not confirmed themselves, the longer
    ones stand for themselves (`Findings.standing`).

    e-BH holds for hypotheses that were fixed beforehand. Who adds more by hand until one is confirmed spends the level
    each time anew, though each costs all of them some: of true nulls tried one by one, looked at at 16 to 128 pairs,
    5 % of five and 7 % of twenty had a confirmed one among them, where 10 % are allowed.
    """
    q = e_q_values([log_e_of(one) for one in findings])
    confirmed = {
        one.name
        for one, value in zip(findings, q, strict=True)
        if value <= fdr and _pairs(one).state != "futile" and count_of(one).difference >= margin
    }
    level = max(selected_level(len(confirmed), len(findings), min(fdr, _MISSING)), 1 - _MISSING)
    judged = [_judged(one, value, one.name in confirmed, level) for one, value in zip(findings, q, strict=True)]
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
        least = smallest_seen(seen.set_rows, seen.rest_rate, len(judged), findings.fdr)
        seen = replace(seen, difference=least)
    return replace(
        findings,
        findings=judged,
        tested=len(judged),
        rounds=(*findings.rounds, *rounds),
        smallest_difference=seen,
    )


def tried_of(findings: Findings) -> Findings:
    """The document of what a person tried by hand, and of nothing else."""
    tried = tuple(one for one in findings.findings if one.origin == "tried")
    rounds = tuple(one for one in findings.rounds if one.purpose == "try")
    return replace(
        findings, findings=tried, tested=len(tried), rounds=rounds, classes=(), not_tested=(), smallest_difference=None
    )


def log_e_of(one: Finding) -> float:
    """Natural logarithm of a finding's e-value, as it stood last."""
    looks = _pairs(one).looks
    return looks[-1].log_e if looks else 0.0


def count_of(one: Finding) -> PairCount:
    """A finding's pairs."""
    pairs = _pairs(one)
    return PairCount(pairs.pairs, pairs.both, pairs.failing, pairs.rescued)


def _judged(one: Finding, q: float, confirmed: bool, level: float) -> Finding:
    pairs = _pairs(one)
    state = "confirmed" if confirmed else "futile" if pairs.state == "futile" else "out_of_budget"
    reported = difference_bounds(count_of(one), level) if confirmed else None
    return replace(
        one,
        q=q,
        confirmed=confirmed,
        pairs=replace(pairs, state=state),
        difference=replace(one.difference, reported_interval=reported),
    )


def _pairs(one: Finding) -> PairedTest:
    if one.pairs is None:
        raise ValueError(f"{one.name} was not tested in pairs")
    return one.pairs
