"""Failure rates of findings, of pairs that entered no test: one batch each, its size fixed before any of it is drawn.

A test ends when its pairs look bad enough, and a finding is one because they did: what they show is too much. A batch
of new noise is looked at once and told whatever it says, so that its rates are unbiased and its intervals plain ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from counterfoil.mining.bugs.descriptions import Description, pieces_of
from counterfoil.mining.bugs.document import round_drawn, wrong_answers
from counterfoil.mining.bugs.drawing import DescribedCell, Draw, RoundAsked
from counterfoil.mining.bugs.family import count_of, judged_together, with_rounds
from counterfoil.mining.bugs.rounds import base_prompt, spoken_base
from counterfoil.mining.findings import Finding, Findings, FreshPairs, Purpose, RoundDrawn
from counterfoil.paired_stats import pairs_of_half_width
from counterfoil.progress import report
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import BugsSettings

# Of a cell that the screen accepts less often than this, no more is drawn than if it did as often.
_LEAST_ACCEPTED = 0.05


def estimate_rates(
    findings: Findings,
    draw: Draw,
    number: int,
    recipe: Recipe,
    settings: BugsSettings,
    answer_names: Sequence[str],
    purpose: Purpose = "estimate",
) -> Findings:
    """The document with rates of fresh pairs for each finding that stands, drawn for those that have none.

    Each has a round of its own, of the first number from `number` on at which `draw` finds that very round, or none:
    so it is the same round however many others are asked for beside it. Of longer words that shorter ones stand for
    nothing is drawn.
    """
    wanted = sorted(
        (one for one in findings.standing if one.pairs is not None and one.pairs.fresh is None),
        key=lambda one: one.name,
    )
    estimated: dict[str, Finding] = {}
    rounds: list[RoundDrawn] = []
    for one in wanted:
        cell = described_cell(one, recipe, settings)
        if cell is None:
            continue
        asked = RoundAsked(number, purpose, pairs_to_draw(one, settings), {one.name: cell}, (cell.label,))
        drawn = draw(asked)
        pairs = drawn.pairs(one.name)
        count = pairs.count
        assert one.pairs is not None
        fresh = FreshPairs(count.pairs, count.both, count.failing, count.rescued, asked.candidates, drawn.asked.name)
        estimated[one.name] = replace(
            one, pairs=replace(one.pairs, fresh=fresh), answers=wrong_answers([pairs], answer_names)
        )
        rounds.append(round_drawn(drawn))
        report("rates of findings", len(estimated), len(wanted))
    judged = judged_together([estimated.get(one.name, one) for one in findings.findings], findings.fdr, findings.margin)
    return replace(findings, findings=judged, rounds=with_rounds(findings, rounds))


def pairs_to_draw(one: Finding, settings: BugsSettings) -> int:
    """How many pairs are drawn for a finding: as many as should let its interval reach `settings.half_width` once the
    screen has accepted what it did in the test, `settings.estimate_pairs` at most."""
    count = count_of(one)
    drawn = None if one.pairs is None else one.pairs.drawn
    accepted = count.pairs / drawn if drawn else 1.0
    needed = pairs_of_half_width(count, settings.half_width)
    return min(ceil(needed / max(accepted, _LEAST_ACCEPTED)), settings.estimate_pairs)


def described_cell(one: Finding, recipe: Recipe, settings: BugsSettings) -> DescribedCell | None:
    """What draws a finding: its class and the words that its caption adds to the base.

    None where the recipe lacks the class, and where the words that are read from the caption make another prompt.
    """
    cls = next((cls for cls in recipe.classes if cls.id == one.classes[0]), None)
    if cls is None:
        return None
    base = base_prompt(recipe, settings)
    description = Description(pieces_of(one.caption, spoken_base(base, cls), cls.name) or ())
    return DescribedCell(cls.label, description) if description.prompt(base) == one.prompt else None
