"""The page and the terminal of findings that were tested in pairs."""

from __future__ import annotations

import html as markup
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import hypothesis
import pytest
from findings_examples import drawn_example, drawn_nothing_confirmed, drawn_pictures, example
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from test_report import section_of

from counterfoil.cli import mine
from counterfoil.mining.findings import (
    AnswerCount,
    Findings,
    Purpose,
    RoundDrawn,
    SequentialLook,
    SmallestDifference,
    StoppedEstimate,
    WrongAnswers,
)
from counterfoil.mining.findings_layer import mined_from
from counterfoil.mining.methods.bugs.document import adjusted_together
from counterfoil.mining.mine_recipe import MineResult
from counterfoil.mining.report import (
    MOST_EXAMPLES,
    MOST_LISTED,
    MOST_PAIRS,
    MOST_PAIRS_IN_FULL,
    MOST_TYPICAL,
    base_key,
    counts_from,
    looks_figure,
    mining_html,
    page_thumbnail,
    pictures_wanted,
)
from counterfoil.recipe.schema_mine import mined_facts
from counterfoil.report.findings import MinedShiftResult
from support.pages import Page

# Words for runs that dealt images into halves.
OF_HALVES = (
    "confirm half",
    "halves",
    "discover",
    "rest of its class",
    "the rest",
    "The set",
    "In the set",
    "unit",
)


@pytest.fixture(scope="module")
def pictures() -> dict[str, bytes]:
    return drawn_pictures(drawn_example())


@pytest.fixture(scope="module")
def page(pictures: dict[str, bytes]) -> str:
    return mining_html(drawn_example(), pictures)


@pytest.fixture(scope="module")
def text(page: str) -> str:
    return Page(page).text


def between(text: str, first: str, last: str) -> str:
    return text[text.index(first) : text.index(last)]


def test_it_opens_with_its_message_and_what_was_drawn(text: str) -> None:
    opening = text[: text.index("Sandal in the snow")]
    assert "3 of 8 named failures confirmed" in opening
    assert (
        "The strongest: sandal in the snow, wrong 39 points more often than the same images without"
        " it" in opening
    )
    assert "7,428 images drawn in 8 rounds; 8 hypotheses tested in pairs, 3 confirmed" in opening
    # by q
    assert (
        text.index("Sandal in") < text.index("Coat in the water") < text.index("Pullover at night")
    )


@pytest.mark.parametrize(
    "findings", [drawn_example(), drawn_nothing_confirmed()], ids=["some", "none"]
)
def test_nothing_is_said_of_halves_that_were_never_dealt(findings: Findings) -> None:
    text = Page(mining_html(findings, {})).text
    assert not [words for words in OF_HALVES if re.search(rf"\b{words}\b", text)]
    explanation = text[text.index("How to read this") :]
    for words in (
        "from the same noise, without the words",
        "fixed before any of the images that tested it were drawn",
        "an e-value, which may be checked after each batch",
        "stops as futile once its difference is under 5 points with 95 % confidence",
        "adjusts E for all 8 hypotheses of this run (e-BH",
        "False means no worse than the base",
        "Each finding’s rates and wrong answers come from fresh pairs",
    ):
        assert words in explanation


def test_a_finding_tells_its_rates_its_pairs_and_its_looks(page: str) -> None:
    shown = Page(section_of(page, "Sandal in the snow")).text
    assert "On fresh pairs, drawn once after the test: the screen kept 300 of 320" in shown
    assert "48 % wrong (144 of 300; 42 % to 54 %)" in shown
    assert "9 % wrong (27 of 300; 6 % to 13 %)" in shown
    assert (
        "39 points more, 33 to 45 (32 to 46 so that the intervals of all 3 findings hold at once);"
        " 5.3 times" in shown
    )
    assert "q < .001, against “no worse than without the words”." in shown
    counted = (
        r"wrong only as described\s*35\s*both wrong\s*4\s*wrong only on the base\s*2\s*both"
        r" right\s*23\s"
    )
    assert re.search(rf"The test: 64 pairs with the same noise\s*{counted}", shown)
    (strip,) = re.findall(r'<div class="parts">(.*?)</div>', section_of(page, "Sandal in the snow"))
    assert re.findall(r'class="(\w+)" style="flex:(\d+)"', strip) == [
        ("failing", "35"), ("both", "4"), ("rescued", "2"), ("fine", "23"),
    ]  # fmt: skip
    assert "16 pairs: E = 190" in shown
    assert "64 pairs: E = 1.5 × 10⁷" in shown
    assert "At the dashed line, E = 27, the hypothesis is confirmed" in shown  # 8 / (.1 × 3)
    assert "it took 34 images to see 20 failures: an estimate of 58 % wrong (39 % to 74 %)" in shown
    assert "Found: it describes a group of failures on the base." in shown
    shortened = Page(section_of(page, "Pullover at night")).text
    assert (
        "Shortened from “striped pullover against a wall at night”" in shortened
        and "estimate" not in shortened
    )
    assert (
        "10 points more, 5 to 15 (4 to 16 so" in shortened
        and "; perhaps under 5 points." in shortened
    )
    assert "Tried by hand." in Page(section_of(page, "Coat in the water")).text


def test_a_rule_of_one_answer_names_the_class() -> None:
    shown = Page(mining_html(replace(drawn_example(), failure="answered:08"), {})).text
    assert "Wrong means: the answer is bag." in shown
    assert (
        "Wrong means: the answer is 77."
        in Page(mining_html(replace(drawn_example(), failure="answered:77"), {})).text
    )


def test_failures_that_did_not_come_are_told_as_what_they_are() -> None:
    findings = drawn_example()
    first = findings.findings[0]
    assert first.pairs is not None
    estimate = StoppedEstimate(20, 500, False, 0.014, (0.006, 0.029))
    capped = replace(first, pairs=replace(first.pairs, estimate=estimate))
    shown = Page(mining_html(replace(findings, findings=(capped,), tested=1), {})).text
    assert "500 images gave fewer than 20 failures: 1 % wrong (0.6 % to 3 %)" in shown


def test_a_pair_is_shown_where_only_the_description_fails(
    page: str, pictures: dict[str, bytes]
) -> None:
    finding = drawn_example().findings[0]
    section = section_of(page, "Sandal in the snow")
    shown = re.findall(r'<div class="pair">(.*?)</div>', section, re.DOTALL)
    assert len(shown) == MOST_PAIRS
    failed = {piece.key: piece.failed for piece in finding.evidence}
    for pair in shown:
        base, described = re.findall(r'<figure[^>]*title="([^"]*)"', pair)
        assert base == base_key(described, finding.classes) != described
        assert failed[described]
        assert not failed[base]
        assert {base, described} <= set(pictures)
        assert pair.index("<img") < pair.index('class="wrong"')
    lonely = replace(
        finding, evidence=tuple(piece for piece in finding.evidence if "/base_" not in piece.key)
    )
    alone = mining_html(replace(drawn_example(), findings=(lonely,), tested=1), {})
    assert 'class="pair"' not in alone
    assert "Images as described, answered wrong" in Page(alone).text


def test_typical_images_are_of_the_description_and_not_shown_twice(page: str) -> None:
    finding = drawn_example().findings[0]
    section = section_of(page, "Sandal in the snow")
    strips = re.findall(r'<div class="pictures">(.*?)</div>', section, re.DOTALL)
    wrong, right = (re.findall(r'title="(\S+) · ', strip) for strip in strips[:2])
    paired = re.findall(
        r'title="([^"]*)"', "".join(re.findall(r'<div class="pair">.*?</div>', section, re.DOTALL))
    )
    assert len(wrong) == len(right) == MOST_TYPICAL
    assert not set(wrong + right) & set(paired)
    failed = {piece.key: piece.failed for piece in finding.evidence}
    assert all(failed[key] for key in wrong)
    assert not any(failed[key] for key in right)
    assert not [key for key in wrong + right if "/base_" in key]


def test_wrong_answers_stand_before_and_after_on_one_scale(page: str) -> None:
    section = section_of(page, "Sandal in the snow")
    shown = between(Page(section).text, "What it answered instead", "Other images")
    base, described = shown.split("As described 48 % wrong")
    assert re.search(r"Without the words 9 % wrong\s*sneaker\s*6 %\s*ankle boot\s*3 %", base)
    assert re.search(r"sneaker\s*26 %\s*ankle boot\s*16 %\s*bag\s*6 %", described)
    widths = [
        float(width) for width in re.findall(r'<i class="bar \w+" style="width:([\d.]+)%"', section)
    ]
    assert max(widths) == widths[2] == 100
    assert widths[0] == pytest.approx(100 * 18 / 78, abs=0.01)
    samples = re.findall(r'<div class="samples">(.*?)</div>', section, re.DOTALL)
    assert [sample.count("<img") for sample in samples] == [3, 3, 3, 3, 3]


def test_answers_and_their_samples_are_few(pictures: dict[str, bytes]) -> None:
    findings = drawn_example()
    keys = tuple(f"rounds/02/sandal_snow_05_{n:06d}" for n in range(100, 140))
    many = tuple(AnswerCount(f"class {n}", 40 - n, (40 - n) / 900, keys) for n in range(30))
    finding = replace(findings.findings[0], answers=WrongAnswers((), many))
    changed = replace(findings, findings=(finding,), tested=1)
    wanted = pictures_wanted(changed)
    assert set(keys[:MOST_EXAMPLES]) <= set(wanted)
    assert not set(keys[MOST_EXAMPLES:]) & set(wanted)
    page = mining_html(changed, dict.fromkeys(keys[:1], next(iter(pictures.values()))))
    assert page.count('<div class="answer">') == 15
    assert "No wrong answer." in Page(page).text
    samples = re.findall(r'<div class="samples">(.*?)</div>', page, re.DOTALL)
    # The other samples have no picture, and no room for a key.
    assert [sample.count("<figure") for sample in samples] == [1, 1, 1]


def test_what_did_not_survive_is_told_with_its_numbers(text: str) -> None:
    tried = between(text, "Tested, not confirmed", "The base of each class")
    assert (
        "5 hypotheses not confirmed: 3 stopped as futile (difference under 5 points, with 95 %"
        " confidence)" in tried
    )
    assert (
        "2 still open when the budget ended. This does not prove that the failures are absent."
        in tried
    )
    rates = r"10\s*25 of 256\s*7 to 14\s*11\s*28 of 256\s*8 to 15"
    assert re.search(
        rf"red sandal\s*{rates}\s*−1\s*−4 to 2\s*256\s*6 : 9\s*.12\s*1\s*futile", tried
    )
    assert re.search(r"person and a coat.*41 : 24\s*1.8\s*1\s*out of budget", tried)


def test_classes_tell_their_base_and_why_they_were_left_out(text: str) -> None:
    base = between(text, "The base of each class", "Classes that were left out")
    assert re.search(r"class\s*drawn\s*accepted\s*wrong\s*share wrong", base)
    assert re.search(r"sandal\s*400\s*391\s*33\s*8 %\s*6 % to 12 %", base)
    # by rate
    assert base.index("shirt") < base.index("pullover") < base.index("sandal") < base.index("bag")
    left = between(text, "Classes that were left out", "What was drawn")
    assert (
        "a class token may help: shirt (214 wrong of 372)." in left
        and "accepted none of its images: bag" in left
    )
    assert "no direction" not in text
    findings = drawn_example()
    untold = tuple(replace(audit, drawn=None) for audit in findings.classes)
    assert "drawn accepted" not in Page(mining_html(replace(findings, classes=untold), {})).text


def test_every_round_is_listed_with_what_it_was_for(text: str) -> None:
    drawn = text[text.index("What was drawn") :]
    for row in (
        "rounds/01 the base of each class 2,000 1,547", "rounds/04 shorter descriptions 512 433",
        "rounds/05 rates of a finding 640 602", "tries/01 descriptions tried by hand 128 121",
        "tries/02 rates of a finding 512 402", "8 rounds 7,428 6,503",
    ):  # fmt: skip
        assert re.search(row.replace(" ", r"\s*"), drawn)


def test_nothing_confirmed_and_nothing_to_describe_are_told_apart() -> None:
    none = Page(mining_html(drawn_nothing_confirmed(), {})).text
    assert (
        "No failure confirmed at this sample size" in none
        and "8 hypotheses tested in pairs, none confirmed." in none
    )
    assert "how large a missed difference may be" in none
    assert "counterfoil build" not in none
    untested = replace(drawn_example(), findings=(), tested=0)
    assert (
        "No hypothesis reached the test; the classes below say why."
        in Page(mining_html(untested, {})).text
    )
    flawless = tuple(
        replace(audit, errors=0, rate=0.0, interval=(0.0, 0.0094), reason="no failure to describe")
        for audit in untested.classes
        if audit.rows
    )
    text = Page(mining_html(replace(untested, classes=flawless), {})).text
    assert "Nothing could be tested" in text
    assert "None of 1,547 base images fails" in text
    assert "0.9 %" in between(text, "The base of each class", "Classes that were left out")


def test_a_page_of_very_many_findings_stays_small() -> None:
    findings = drawn_example()
    first, *_, last = findings.findings
    long = "very " * 2000 + "long"
    many = tuple(
        replace(
            finding,
            name=f"{finding.name}_{n}",
            words=f"{n} {long}",
            caption=long,
            evidence=tuple(
                replace(piece, key=f"rounds/{n}/{piece.key[10:]}") for piece in finding.evidence
            ),
        )
        for finding in (first, last)
        for n in range(2 * MOST_LISTED)
    )
    rounds = findings.rounds * 100
    changed = replace(
        findings, findings=many, tested=len(many), classes=findings.classes * 200, rounds=rounds
    )
    wanted = pictures_wanted(changed)
    # Four pairs, five typical ones of either kind, and three samples of three answers on either
    # side.
    assert len(wanted) == len(set(wanted)) <= MOST_PAIRS_IN_FULL * 36
    page = mining_html(changed, dict.fromkeys(wanted, page_thumbnail(Image.new("RGB", (300, 200)))))
    assert (
        page.count("<section") == MOST_PAIRS_IN_FULL and len(page) < 3_000_000 and long not in page
    )
    text = Page(page).text
    assert (
        "The 12 strongest findings are above (by the lower end of the difference’s interval); this"
        " table" in text
    )
    assert "this table has 388 others." in text
    assert f"{MOST_LISTED} of {2 * MOST_LISTED} are listed; findings.csv has all." in text
    assert page.count("<tr>") < 6 * MOST_LISTED
    assert "800 rounds" in text


def test_no_rate_of_a_test_stands_for_a_finding_without_fresh_pairs() -> None:
    findings = drawn_example()
    tested = [
        replace(finding, pairs=finding.pairs and replace(finding.pairs, fresh=None))
        for finding in findings.findings
    ]
    judged = adjusted_together(tested, findings.fdr, findings.margin)
    text = Page(mining_html(replace(findings, findings=judged), {})).text
    card = text[: text.index("The evidence")]
    assert (
        "The strongest: sandal in the snow. Its rate was not measured on fresh pairs." in card
        and "E = 1.5 × 10⁷" in card
    )
    assert (
        "Its rates were not measured on fresh pairs." in card
        and "61 %" not in card
        and "wrong only as described" in text
    )


def test_the_page_says_which_words_are_the_background_and_what_it_does_as_a_whole() -> None:
    findings = drawn_example()
    finding = findings.findings[0]

    def page(facts: dict[str, Any]) -> str:
        changed = replace(finding, about=dict(finding.about) | {"background": facts})
        text = mining_html(replace(findings, findings=(changed, *findings.findings[1:])), {})
        return re.sub(r"\s+", " ", markup.unescape(re.sub(r"</?bdi>", "", text)))

    count = {"pairs": 40, "base_rate": 0.1}
    background = {"words": ["in the snow", "on a <b>road</b>"], "all": False}
    assert "Words about the background: “in the snow”, “on a <b>road</b>”." in page(background)
    counts = {
        "whole": count | {"rate": 0.6},
        "alone": count | {"rate": 0.5},
        "rest": count | {"rate": 0.2},
    }
    whole = page(background | counts | {"explains": "background"})
    assert (
        "(not estimates): the background as a whole is 50 % wrong (40 pairs, 10 % without words)"
        in whole
    )
    assert "everything but the background 20 % (40 pairs), both together 60 % (40 pairs)." in whole
    assert "The background alone explains the failure." in whole
    assert "the rate is that of the background" in page(background | {"all": True})


def test_every_purpose_of_a_round_has_words() -> None:
    findings = drawn_example()
    purposes: tuple[Any, ...] = get_args(Purpose)
    rounds = tuple(
        RoundDrawn(f"rounds/{index:02d}", purpose, index, 4, 3)
        for index, purpose in enumerate(purposes, 1)
    )
    page = mining_html(replace(findings, rounds=rounds), {})
    assert all(f"<code>rounds/{index:02d}</code>" in page for index in range(1, len(purposes) + 1))


@given(
    st.text(max_size=12), st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.lists(st.text(max_size=6), max_size=3),
    st.integers(0, 10**9),
)  # fmt: skip
@hypothesis.example("rounds/01", "in_05", ["5", "05"], 3)
def test_a_base_image_shares_round_class_and_index_with_its_partner(
    folder: str, shift: str, classes: list[str], index: int
) -> None:
    for class_id in classes:
        key = f"{folder}/{shift}_{class_id}_{index:06d}"
        base = base_key(key, [class_id])
        if folder and "/" not in class_id:
            assert base == f"{folder}/base_{class_id}_{index:06d}"
            assert base is not None
            assert base_key(base, [class_id]) == base


def test_keys_that_are_none_of_a_round_have_no_base() -> None:
    for key in (
        "",
        "/",
        "audit/3",
        "snow_05_000001",
        "rounds/01/snow_05_x",
        "rounds/01/snow_06_000001",
    ):
        assert base_key(key, ["05"]) is None


def brute_force(e_values: list[float], alpha: float) -> int:
    """Return how many hypotheses e-BH rejects, by its definition."""
    m = len(e_values)
    ordered = sorted(e_values, reverse=True)
    return max((k for k in range(1, m + 1) if ordered[k - 1] >= m / (alpha * k)), default=0)


@given(st.lists(st.floats(-5, 12), min_size=1, max_size=12, unique=True))
def test_the_line_of_a_hypothesis_is_where_e_bh_confirms(log_es: list[float]) -> None:
    findings = drawn_example()
    template = findings.findings[0]
    assert template.pairs is not None
    count = brute_force([math.exp(log_e) for log_e in log_es], findings.fdr)
    ordered = sorted(log_es, reverse=True)
    tests = [replace(template.pairs, looks=(SequentialLook(9, log_e),)) for log_e in ordered]
    hypotheses = tuple(
        replace(template, name=f"h{at}", confirmed=at < count, q=0.0, pairs=test)
        for at, test in enumerate(tests)
    )
    document = replace(findings, findings=hypotheses, tested=len(hypotheses))
    for finding, log_e in zip(hypotheses, ordered, strict=True):
        line = counts_from(document, finding)
        assert line is not None
        assert log_e >= line - 1e-9 if finding.confirmed else log_e < line + 1e-9


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(st.tuples(st.integers(0, 10**9), finite), min_size=1, max_size=8),
    st.none() | st.floats(0, 40),
)
def test_looks_are_drawn_whatever_they_are(
    looks: list[tuple[int, float]], line: float | None
) -> None:
    test = drawn_example().findings[0].pairs
    assert test is not None
    tested = replace(test, looks=tuple(SequentialLook(*look) for look in sorted(looks)))
    figure = str(looks_figure(replace(drawn_example().findings[0], pairs=tested), line))
    assert figure.count("<circle") == len(looks)
    assert ('"counts"' in figure) == (line is not None)
    heights = [float(height) for height in re.findall(r' (?:cy|y1)="([^"]+)"', figure)]
    offsets = [float(offset) for offset in re.findall(r' cx="([^"]+)%"', figure)]
    assert all(0 <= height <= 120 for height in heights) and all(
        0 <= offset <= 100 for offset in offsets
    )
    assert len(re.findall('class="(?:grid|one)"', figure)) < 20


def printed(findings: Findings, capsys: pytest.CaptureFixture[str]) -> str:
    mine._print(MineResult(Path("mined"), findings, {}))
    return capsys.readouterr().out


def test_the_command_prints_pairs_with_their_e_values_and_images_drawn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = printed(drawn_example(), capsys)
    rows = [line.split() for line in shown.splitlines()]
    assert [
        "finding",
        "wrong",
        "(%)",
        "without",
        "it",
        "(%)",
        "more",
        "(points)",
        "pairs",
        "E",
        "q",
    ] in rows
    # Rates, difference and interval are of fresh pairs; pairs, E and q are of the test.
    sandal = "sandal in the snow 48 (42 to 54) 9 (6 to 13) 39 (32 to 46) 64 1.5 × 10⁷ 5.4e-07"
    pullover = (
        "pullover at night (perhaps under 5 points) 25 (21 to 29) 15 (12 to 19) 10 (4 to 16) 128"
        " 350 0.0075"
    )
    assert sandal.split() in rows
    assert pullover.split() in rows
    assert (
        "3 of 8 hypotheses confirmed in pairs, on 7,428 rendered images; on average 10% of those"
        " confirmed may be false" in shown
    )
    assert "no more often with the description than without it. The rates come from fresh" in shown
    assert "the rest" not in shown


def test_the_command_tells_rows_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(example(), capsys)
    assert ["finding", "wrong", "(%)", "the", "rest", "(%)", "more", "(points)", "p", "q"] in [
        line.split() for line in shown.splitlines()
    ]
    assert "3 of 5 hypotheses confirmed on 12,000 images; on average" in shown


def test_the_command_says_what_no_finding_means(capsys: pytest.CaptureFixture[str]) -> None:
    none = drawn_nothing_confirmed()
    shown = printed(none, capsys)
    assert (
        "no failure confirmed at this sample size. The intervals in the report show how large a"
        " missed" in shown
    )
    assert "0 of 8 hypotheses confirmed in pairs, on 7,428 rendered images." in shown
    known = replace(none, smallest_difference=SmallestDifference(0.2, 0.8, 64, 64, 0.09))
    assert "power to detect a description that fails 20 points more often than its base" in printed(
        known, capsys
    )


def test_a_shift_tells_the_pairs_that_it_came_from() -> None:
    findings = drawn_example()
    finding = findings.findings[1]
    record = mined_from(findings, finding)
    assert (
        record["tested_on"] == "pairs"
        and record["origin"] == "shortened"
        and "rendered" not in record
    )
    assert record["pairs"] | {"log_e": 0} == {
        "pairs": 128,
        "both": 9,
        "failing": 31,
        "rescued": 8,
        "log_e": 0,
    }
    assert record["fresh"] == {"pairs": 400, "both": 28, "failing": 72, "rescued": 32}
    assert (record["set"]["failures"], record["rest"]["failures"], record["difference"]) == (
        100,
        60,
        0.1,
    )
    assert record["seed"] == 3
    assert "discover_sha256" not in record
    facts = mined_facts(record)
    assert (facts.tested_on, facts.words, facts.method) == ("pairs", "pullover at night", "bugs")
    assert (facts.set_rate, facts.rest_rate, facts.q) == (
        finding.set.rate,
        finding.rest.rate,
        finding.q,
    )
    assert "tested_on" not in mined_from(example(), example().findings[0])


def test_an_evaluation_names_it_by_its_words() -> None:
    facts = mined_facts(mined_from(drawn_example(), drawn_example().findings[0]))
    shift = MinedShiftResult(
        shift="sandal_snow", words=facts.words, role=facts.role, target=facts.target,
        class_ids=("05",), class_names=("sandal",),
        judges=(), quota=None, candidates=100, screened=90, accepted=90, models=(),
    )  # fmt: skip
    assert shift.name == "sandal in the snow (hard)"
