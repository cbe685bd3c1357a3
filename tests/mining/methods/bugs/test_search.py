"""The search for bugs in a synthetic world, and rates of fresh pairs."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from small_search import COAT_CLASS, SANDAL_CLASS, World, colour, place, run_of

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.documents import document_text, parse_document
from counterfoil.errors import UserError
from counterfoil.mining.findings import (
    SHORTENED_TO,
    Findings,
    FreshPairs,
    MethodUsed,
    MinedRecipe,
    Target,
    findings_csv_text,
)
from counterfoil.mining.findings_layer import mined_from
from counterfoil.mining.methods.bugs.descriptions import Description, Piece
from counterfoil.mining.methods.bugs.document import (
    adjusted_together,
    described_cell,
    estimate_rates,
    finding_of,
    pairs_of,
    pairs_to_draw,
    with_more,
)
from counterfoil.mining.methods.bugs.search import BugSearch, search_bugs
from counterfoil.mining.methods.bugs.trials import (
    Budget,
    BugHypothesis,
    DrawnRound,
    RoundAsked,
    base_prompt,
    carry_to_test,
)
from counterfoil.paired_stats import PairCount, pairs_of_half_width, tango_interval
from counterfoil.progress import report_progress

CLASSES = (SANDAL_CLASS, COAT_CLASS)
SNOW = Description((place("in the snow"),))


def search_in(
    world: World, labels: Sequence[int] = (0, 1), fdr: float = 0.1, **settings: object
) -> BugSearch:
    classes = [CLASSES[label] for label in labels]
    return search_bugs(classes, world.draw, world.look, world.describe, run_of(fdr, **settings))


def snow(label: int, where: str, which: str) -> float:
    return 0.7 if label == 0 and where == "in the snow" else 0.05


def described(search: BugSearch, names: Sequence[str]) -> set[tuple[int, Description]]:
    hypotheses = [trial.hypothesis for trial in search.tested if trial.hypothesis.name in names]
    return {(hypothesis.label, hypothesis.description) for hypothesis in hypotheses}


def test_a_planted_failure_is_confirmed_in_its_shortest_words() -> None:
    search = search_in(World(snow))
    standing = described(search, sorted(search.confirmed - search.shortened_to.keys()))
    assert (0, SNOW) in standing
    assert all(
        "in the snow" in {piece.words for piece in description.pieces}
        for _, description in standing
    )
    assert {label for label, _ in standing} == {0}


def test_a_failure_beside_words_that_hide_it_is_found_by_its_own() -> None:
    def hidden(label: int, where: str, which: str) -> float:
        return 0.0 if which == "red" else 0.8 if where == "in the snow" else 0.1

    both = Description((colour("red"), place("in the snow")))
    search = search_in(World(hidden, say=lambda seen: both), (0,))
    standing = described(search, sorted(search.confirmed - search.shortened_to.keys()))
    assert standing == {(0, SNOW)}
    (whole,) = [trial for trial in search.tested if trial.hypothesis.description == both]
    assert whole.state == "futile" and whole.hypothesis.name not in search.shortened_to
    assert not described(
        search_in(World(hidden, say=lambda seen: both), (0,), shorten=False),
        sorted(search.confirmed),
    )


@pytest.mark.release(of="statistics")
def test_nothing_is_confirmed_in_most_worlds_without_a_failure_of_their_own() -> None:
    # Each image fails one time in five, whatever it shows. The run's share of false findings is at
    # most 0.1.
    worlds = [World(lambda *_: 0.2, seed=seed) for seed in range(16)]
    confirmed = [bool(search_in(world, (0,), baseline=32, pairs=64).confirmed) for world in worlds]
    assert np.mean(confirmed) <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / 16)


def test_every_round_has_noise_of_its_own_and_words_come_before_their_images() -> None:
    world = World(snow)
    search = search_in(world)
    numbers = [drawn.number for drawn in world.rounds]
    assert (
        numbers
        == list(range(1, len(numbers) + 1))
        == [drawn.asked.number for drawn in search.rounds]
    )
    described_from = {
        key.partition("/base")[0] for trial in search.tested for key in trial.hypothesis.evidence
    }
    assert described_from == {"rounds/01"}
    tested_on = {pairs.drawn.asked.name for trial in search.tested for pairs in trial.pairs}
    assert "rounds/01" not in tested_on


def test_the_same_world_gives_the_same_search() -> None:
    first = search_in(World(snow))
    second = search_in(World(snow))
    assert [trial.looks for trial in first.tested] == [trial.looks for trial in second.tested]
    assert first.confirmed == second.confirmed and first.shortened_to == second.shortened_to


def test_pairs_are_of_one_noise_and_both_accepted() -> None:
    search = search_in(World(snow, accepted=0.7))
    for trial in search.tested:
        for pairs in trial.pairs:
            drawn = pairs.drawn
            assert np.array_equal(drawn.indices[pairs.described], drawn.indices[pairs.base])
            assert (drawn.shifts[pairs.base] == 0).all() and (
                drawn.labels[pairs.base] == trial.hypothesis.label
            ).all()
            assert len(pairs.described) <= drawn.asked.candidates
    assert any(trial.count.pairs for trial in search.tested)


def test_no_more_is_drawn_than_the_budget_has() -> None:
    world = World(snow)
    search_in(world, images=400)
    assert sum(drawn.images for drawn in world.rounds) <= 400


def test_a_class_that_fails_more_than_half_the_time_is_left_out_with_a_hint_at_tokens() -> None:
    search = search_in(World(lambda label, *_: 0.9 if label == 1 else 0.1))
    sandal, coat = search.baseline
    assert "tokens" in (coat.reason or "") and sandal.reason is None
    assert all(trial.hypothesis.label == 0 for trial in search.tested)


def test_a_class_that_the_screen_never_accepts_is_left_out() -> None:
    search = search_in(World(snow, accepted=0.0))
    assert all("accepts 0 of 64" in (audit.reason or "") for audit in search.baseline)
    assert not search.tested and len(search.rounds) == 1


def test_a_base_without_a_failure_ends_the_search_with_the_bound_that_it_implies() -> None:
    search = search_in(World(lambda *_: 0.0))
    assert [audit.interval for audit in search.baseline] == [
        (0.0, pytest.approx(1 - 0.025 ** (1 / 64)))
    ] * 2
    assert all("no failure in 64" in (audit.reason or "") for audit in search.baseline)
    assert not search.tested


def test_a_captioner_that_says_nothing_leaves_a_reason_and_no_hypothesis() -> None:
    search = search_in(World(snow, say=lambda seen: None))
    assert not search.tested and search.undescribed
    assert all(reason == "says nothing of these images" for _, reason in search.undescribed)


def test_a_captioner_that_always_says_the_same_makes_one_hypothesis_a_class() -> None:
    always = Description((colour("red"),))
    search = search_in(World(snow, say=lambda seen: always), shorten=False)
    assert [trial.hypothesis.description for trial in search.tested] == [always] * len(
        search.tested
    )
    assert len({trial.hypothesis.label for trial in search.tested}) == len(search.tested)


def test_a_budget_that_could_confirm_nothing_is_refused_in_numbers() -> None:
    with pytest.raises(UserError, match=r"8 pairs cannot confirm") as refused:
        search_in(World(snow), fdr=0.001, pairs=8, batch=8)
    assert "pairs" in str(refused.value)


def test_an_estimate_is_of_images_that_entered_no_test() -> None:
    search = search_in(World(snow), until=10, images=20_000)
    assert search.estimates.keys() <= search.confirmed
    for name, estimate in search.estimates.items():
        drawn = next(
            drawn
            for drawn in search.rounds
            if drawn.asked.purpose == "until" and name in drawn.asked.cells
        )
        assert estimate.reached and drawn.asked.name not in {
            pairs.drawn.asked.name for trial in search.tested for pairs in trial.pairs
        }
        assert estimate.interval[0] <= 0.7 <= estimate.interval[1]


RUN = run_of()
SANDAL = next(cls.label for cls in RUN.recipe.classes if cls.name == "sandal")
ANSWERS = [cls.name for cls in RUN.recipe.classes]
BASE_RATE = 0.1


@dataclass
class Drawn:
    """Rounds of numbers. more: how much more often than the base a description fails, by name.

    Images of a pair fail independently. accepted: the share of images that the screen accepts.
    """

    more: Mapping[str, float]
    rng: np.random.Generator
    accepted: float = 1.0
    rounds: list[RoundAsked] = field(default_factory=list)

    def draw(self, request: RoundAsked) -> DrawnRound:
        report_progress(request.name, 0, 1)
        request = replace(request, number=len(self.rounds) + 1)
        self.rounds.append(request)
        base = self.rng.random(request.candidates) < BASE_RATE
        cells = [
            self.rng.random(request.candidates) < BASE_RATE + self.more[name]
            for name in request.cells
        ]
        failed = np.concatenate([base, *cells])
        shifts = np.repeat(np.arange(1 + len(cells)), request.candidates)
        kept = self.rng.random(len(failed)) < self.accepted
        indices = np.tile(np.arange(request.candidates), 1 + len(cells))[kept]
        shifts = shifts[kept]
        failed = failed[kept]
        keys = tuple(
            f"{request.name}/{shift}_{index:06d}"
            for shift, index in zip(shifts, indices, strict=True)
        )
        labels = np.full(len(failed), SANDAL)
        names = ("base", *request.cells)
        images = LabelledImages(
            request.name,
            "",
            keys,
            labels,
            shifts,
            names,
            lambda wanted: iter(()),
        )
        answers = np.where(failed, SANDAL + 1, labels)
        return DrawnRound(
            request,
            request.number,
            names,
            shifts,
            labels,
            indices,
            failed,
            answers,
            keys,
            images,
        )


def hypotheses_of(names: Sequence[str]) -> list[BugHypothesis]:
    return [
        BugHypothesis(name, SANDAL, Description((Piece(f"near {name}", "after"),)))
        for name in names
    ]


def searched(world: Drawn) -> Findings:
    """Return the findings of a search that tests each description once, before any estimate."""
    budget = Budget(10**6, 1)
    tested, _ = carry_to_test(
        hypotheses_of([*world.more]), world.draw, budget, RUN, family=len(world.more)
    )
    findings = [finding_of(trial, RUN, ANSWERS) for trial in tested]
    return Findings(
        recipe=MinedRecipe(RUN.recipe.name, RUN.recipe.recipe_hash),
        method=MethodUsed("bugs", {}),
        target=Target("lab:resnet10t", None),
        on=(),
        failure="top1",
        halves=None,
        margin=RUN.mine.margin,
        fdr=RUN.mine.fdr,
        tested=len(findings),
        smallest_difference=None,
        classes=(),
        findings=adjusted_together(findings, RUN.mine.fdr, RUN.mine.margin),
        seed=0,
    )


def estimated(world: Drawn, findings: Findings, number: int = 9) -> Findings:
    return estimate_rates(findings, world.draw, number, RUN, ANSWERS)


def names_of(number: int) -> list[str]:
    return [f"{letter}wall" for letter in "abcdefghijklmnop"[:number]]


@pytest.fixture(scope="module")
def one_run() -> tuple[Drawn, Findings, Findings]:
    """Return a world with large, small and no differences, and its findings before and after
    estimates."""
    shares = dict(zip(names_of(6), (0.5, 0.3, 0.3, 0.0, 0.0, 0.0), strict=True))
    world = Drawn(shares, np.random.default_rng(3))
    before = searched(world)
    return world, before, estimated(world, before)


@pytest.mark.whole
def test_what_is_told_of_findings_is_true_on_average_and_covered() -> None:
    """Run all of mining's own steps; `tests/scripts/test_bugs_estimates.py` simulates many more
    runs by arrays."""
    off = []
    by_test = []
    covered = []
    together = []
    for seed in range(150):
        world = Drawn(dict.fromkeys(names_of(8), 0.1), np.random.default_rng([1, seed]))
        standing = estimated(world, searched(world)).standing
        for finding in standing:
            low, high = finding.difference.interval or (np.nan, np.nan)
            off.append((finding.difference.value or np.nan) - 0.1)
            by_test.append(pairs_of(finding).difference - 0.1)
            covered.append(low <= 0.1 <= high)
        reported = [
            finding.difference.reported_interval or (np.nan, np.nan) for finding in standing
        ]
        together += [all(low <= 0.1 <= high for low, high in reported)] if standing else []
    error = np.std(off, ddof=1) / np.sqrt(len(off))
    assert len(off) >= 100 and abs(np.mean(off)) < 3.5 * error < 0.02 < 0.05 < np.mean(by_test)
    assert np.mean(covered) >= 0.93 - 3.5 * np.sqrt(0.93 * 0.07 / len(off))
    assert np.mean(together) >= 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / len(together))


def test_the_verdict_and_the_evidence_are_the_tests_and_the_rates_are_not(
    one_run: tuple[Drawn, Findings, Findings],
) -> None:
    _, before, after = one_run
    test_pairs = {
        finding.name: finding.pairs and replace(finding.pairs, fresh=None)
        for finding in after.findings
    }
    assert test_pairs == {finding.name: finding.pairs for finding in before.findings}
    assert {
        finding.name: (finding.confirmed, finding.p, finding.q, finding.evidence)
        for finding in after.findings
    } == {
        finding.name: (finding.confirmed, finding.p, finding.q, finding.evidence)
        for finding in before.findings
    }
    assert len(after.standing) == 3 and all(finding.set.rate is None for finding in before.standing)
    level = 1 - 0.05 / 3
    for finding in after.standing:
        assert (
            finding.pairs is not None
            and finding.pairs.fresh is not None
            and finding.answers is not None
        )
        fresh = finding.pairs.fresh
        count = PairCount(fresh.pairs, fresh.both, fresh.failing, fresh.rescued)
        assert (finding.set.rate, finding.rest.rate, finding.set.rows) == (
            count.rate,
            count.base_rate,
            count.pairs,
        )
        assert finding.difference.value == count.difference
        assert finding.difference.interval == tango_interval(count)
        assert finding.difference.reported_interval == tango_interval(count, level)
        assert sum(answer.images for answer in finding.answers.after) == count.both + count.failing
        record = mined_from(after, finding)
        assert (record["set"]["rate"], record["difference"]) == (count.rate, count.difference)
        assert (
            record["fresh"]["pairs"] == count.pairs
            and record["pairs"]["pairs"] == finding.pairs.pairs
        )
        row = next(
            row
            for row in csv.DictReader(io.StringIO(findings_csv_text(after)))
            if row["name"] == finding.name
        )
        fresh_columns = [row[f"fresh_{name}"] for name in ("pairs", "both", "failing", "rescued")]
        assert fresh_columns == [
            str(value) for value in (count.pairs, count.both, count.failing, count.rescued)
        ]
    assert parse_document(Findings, document_text(after), "findings.json") == after
    # Hypotheses that are not confirmed keep the rates of their test.
    for finding in after.findings:
        if not finding.confirmed:
            assert finding.difference.value == pairs_of(finding).difference
            assert finding.difference.reported_interval is None


def test_each_has_a_round_of_its_own_once(one_run: tuple[Drawn, Findings, Findings]) -> None:
    world, _, after = one_run
    rounds = [drawn for drawn in world.rounds if drawn.purpose == "estimate"]
    names = sorted(finding.name for finding in after.standing)
    assert [[*drawn.cells] for drawn in rounds] == [[name] for name in names]
    assert [(drawn.name, drawn.purpose) for drawn in after.rounds] == [
        (drawn.name, "estimate") for drawn in rounds
    ]
    # A finding with rates is not estimated again.
    assert (
        estimated(world, after) == after
        and sum(drawn.purpose == "estimate" for drawn in world.rounds) == 3
    )


def test_the_number_of_pairs_is_fixed_by_the_test_for_the_half_width(
    one_run: tuple[Drawn, Findings, Findings],
) -> None:
    _, before, after = one_run
    for finding in after.standing:
        low, high = finding.difference.interval or (np.nan, np.nan)
        assert finding.pairs is not None and finding.pairs.fresh is not None
        assert finding.pairs.fresh.drawn == pairs_to_draw(finding, RUN.settings) <= 512
        assert (high - low) / 2 < 0.06
    finding = before.standing[0]
    assert pairs_to_draw(finding, RUN.settings.model_copy(update={"estimate_pairs": 40})) == 40
    wide = RUN.settings.model_copy(update={"half_width": 0.1, "estimate_pairs": 10**6})
    assert pairs_to_draw(finding, wide) == pairs_of_half_width(pairs_of(finding), 0.1)
    # Half of the pairs were rejected: twice as many are drawn.
    assert finding.pairs is not None
    rejected = replace(finding, pairs=replace(finding.pairs, drawn=2 * finding.pairs.pairs))
    assert pairs_to_draw(rejected, wide) == 2 * pairs_to_draw(finding, wide)


@pytest.mark.parametrize(("failing", "rescued"), [(16, 0), (40, 8), (30, 30)])
def test_so_many_pairs_give_that_half_width(failing: int, rescued: int) -> None:
    count = PairCount(128, 0, failing, rescued)
    pairs = pairs_of_half_width(count, 0.05)
    scaled = PairCount(pairs, 0, round(failing * pairs / 128), round(rescued * pairs / 128))
    low, high = tango_interval(scaled)
    assert (high - low) / 2 == pytest.approx(0.05, abs=0.003)
    # Pairs that are all alike still leave uncertainty, and fewer leave more.
    assert (
        pairs_of_half_width(PairCount(16, 0, 16, 0), 0.05)
        > pairs_of_half_width(PairCount(256, 0, 256, 0), 0.05)
        > 0
    )


def test_words_that_shorter_ones_stand_for_have_no_rates(
    one_run: tuple[Drawn, Findings, Findings],
) -> None:
    world, before, _ = one_run
    long, short, other = before.standing
    changed = [
        replace(long, about={SHORTENED_TO: short.name}),
        *(finding for finding in before.findings if finding is not long),
    ]
    findings = replace(before, findings=adjusted_together(changed, before.fdr, before.margin))
    drawn = Drawn(world.more, np.random.default_rng(4))
    after = estimated(drawn, findings)
    assert {name for request in drawn.rounds for name in request.cells} == {short.name, other.name}
    now = next(finding for finding in after.findings if finding.name == long.name)
    assert (
        now.confirmed
        and (now.set.rate, now.difference.value, now.difference.reported_interval) == (None,) * 3
    )
    level = 1 - 0.05 / 2
    fresh = next(finding for finding in after.standing if finding.name == short.name).pairs
    assert fresh is not None and fresh.fresh is not None
    count = PairCount(fresh.fresh.pairs, fresh.fresh.both, fresh.fresh.failing, fresh.fresh.rescued)
    assert any(
        finding.difference.reported_interval == tango_interval(count, level)
        for finding in after.standing
    )


def test_a_screen_that_accepts_no_pair_leaves_no_rates(
    one_run: tuple[Drawn, Findings, Findings],
) -> None:
    world, before, _ = one_run
    after = estimated(Drawn(world.more, np.random.default_rng(0), accepted=0.0), before)
    assert after.confirmed
    assert all(
        finding.set.rate is None and finding.difference.value is None for finding in after.standing
    )
    assert not any(finding.perhaps_under(0.05) for finding in after.standing)


def test_a_hypothesis_more_changes_the_family_and_no_rate(
    one_run: tuple[Drawn, Findings, Findings],
) -> None:
    _, _, after = one_run
    tried = replace(after.standing[0], name="tried", origin="tried")
    more = with_more(after, [tried], ())
    sets = [finding.set for finding in more.standing if finding.name != "tried"]
    assert sets == [finding.set for finding in after.standing]
    for finding in after.standing:
        now = next(
            new for new in more.standing if new.name == finding.name
        ).difference.reported_interval
        before = finding.difference.reported_interval
        assert now is not None and before is not None and now[0] < before[0] < before[1] < now[1]


def test_the_test_stands_where_fresh_pairs_show_little_and_that_is_said(
    one_run: tuple[Drawn, Findings, Findings],
) -> None:
    """Check that fresh pairs do not change the verdict, which says only that a description is worse
    than its base."""
    _, _, after = one_run
    first = after.standing[0]
    assert first.pairs is not None and not any(
        finding.perhaps_under(after.margin) for finding in after.findings
    )
    for fresh in ((400, 20, 40, 12), (400, 20, 10, 30)):
        small = replace(
            first, pairs=replace(first.pairs, fresh=FreshPairs(*fresh, 400, "rounds/09"))
        )
        listed = [small if finding is first else finding for finding in after.findings]
        judged = adjusted_together(listed, after.fdr, after.margin)
        result = next(finding for finding in judged if finding.name == first.name)
        assert result.confirmed and result.q == first.q and result.perhaps_under(after.margin)
        assert result.difference.value == pytest.approx((fresh[2] - fresh[3]) / 400)
        assert [finding.name for finding in judged if finding.perhaps_under(after.margin)] == [
            first.name
        ]


def test_what_draws_a_finding_is_read_from_its_caption(
    one_run: tuple[Drawn, Findings, Findings],
) -> None:
    finding = one_run[1].standing[0]
    cell = described_cell(finding, RUN)
    assert cell is not None and cell.description.prompt(base_prompt(RUN)) == finding.prompt
    assert described_cell(replace(finding, classes=("nowhere",)), RUN) is None
    assert described_cell(replace(finding, prompt="a photo of something else"), RUN) is None
