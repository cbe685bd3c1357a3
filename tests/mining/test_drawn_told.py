"""What was tested in pairs is told alike by the command, by the recipe, and by whoever reads the recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from drawn_examples import drawn_example, drawn_nothing_confirmed
from findings_examples import example

from counterfoil.cli import mine
from counterfoil.mining.findings import Findings, SmallestDifference
from counterfoil.mining.findings_layer import mined_from
from counterfoil.mining.mine_recipe import MineResult
from counterfoil.recipe.schema_mine import mined_facts
from counterfoil.report.findings import MinedShiftResult


def printed(findings: Findings, capsys: pytest.CaptureFixture[str]) -> str:
    mine._print(MineResult(Path("mined"), findings, {}))
    return capsys.readouterr().out


def test_the_command_prints_pairs_with_their_e_values_and_images_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(drawn_example(), capsys)
    rows = [line.split() for line in told.splitlines()]
    assert ["finding", "wrong", "(%)", "without", "it", "(%)", "more", "(points)", "pairs", "E", "q"] in rows
    # Rates, difference and interval are of fresh pairs; pairs, E and q are of the test.
    sandal = "sandal in the snow 48 (42 to 54) 9 (6 to 13) 39 (32 to 46) 64 1.5 × 10⁷ 5.4e-07"
    pullover = "pullover at night (perhaps under 5 points) 25 (21 to 29) 15 (12 to 19) 10 (4 to 16) 128 350 0.0075"
    assert sandal.split() in rows and pullover.split() in rows
    assert "3 of 8 hypotheses confirmed in pairs, 7,428 images drawn; of those confirmed, 10% may be false" in told
    assert "no worse than without the words. Rates are of fresh pairs, drawn once for each after its test" in told
    assert "the rest" not in told


def test_the_command_tells_rows_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(example(), capsys)
    assert ["finding", "wrong", "(%)", "the", "rest", "(%)", "more", "(points)", "p", "q"] in [
        line.split() for line in told.splitlines()
    ]
    assert "3 of 5 hypotheses confirmed on 12,000 images; of those confirmed" in told


def test_the_command_says_what_no_finding_means(capsys: pytest.CaptureFixture[str]) -> None:
    none = drawn_nothing_confirmed()
    told = printed(none, capsys)
    assert "no failure found at this size. How large a difference may have stayed unseen" in told
    assert "0 of 8 hypotheses confirmed in pairs, 7,428 images drawn." in told
    known = replace(none, smallest_difference=SmallestDifference(0.2, 0.8, 64, 64, 0.09))
    assert "A description that fails 20 points more often than its base would have been seen" in printed(known, capsys)


def test_a_shift_tells_the_pairs_that_it_came_from() -> None:
    findings = drawn_example()
    one = findings.findings[1]
    record = mined_from(findings, one)
    assert record["tested_on"] == "pairs" and record["origin"] == "shortened" and "rendered" not in record
    assert record["pairs"] | {"log_e": 0} == {"pairs": 128, "both": 9, "failing": 31, "rescued": 8, "log_e": 0}
    assert record["fresh"] == {"pairs": 400, "both": 28, "failing": 72, "rescued": 32}
    assert (record["set"]["failures"], record["rest"]["failures"], record["difference"]) == (100, 60, 0.1)
    assert record["seed"] == 3 and "discover_sha256" not in record
    facts = mined_facts(record)
    assert (facts.tested_on, facts.words, facts.method) == ("pairs", "pullover at night", "bugs")
    assert (facts.set_rate, facts.rest_rate, facts.q) == (one.set.rate, one.rest.rate, one.q)
    assert "tested_on" not in mined_from(example(), example().findings[0])


def test_an_evaluation_names_it_by_its_words() -> None:
    facts = mined_facts(mined_from(drawn_example(), drawn_example().findings[0]))
    shift = MinedShiftResult(
        shift="sandal_snow", words=facts.words, role=facts.role, target=facts.target,
        class_ids=("05",), class_names=("sandal",),
        judges=(), quota=None, candidates=100, screened=90, accepted=90, models=(),
    )  # fmt: skip
    assert shift.name == "sandal in the snow (hard)"
