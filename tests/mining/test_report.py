"""Mining's page: what it says of findings, that it needs no other file, and that it escapes hostile
text."""

from __future__ import annotations

import csv
import html as markup
import io
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from findings_examples import (
    drawn_example,
    drawn_pictures,
    example,
    example_pictures,
    nothing_confirmed,
)
from PIL import Image

from counterfoil.cli.mine import _print
from counterfoil.documents import document_text, parse_document
from counterfoil.generate.screen.doubts import DoubtedClass, ScreenDoubts
from counterfoil.mining.findings import Findings, Rate, findings_csv_text
from counterfoil.mining.mined_files import MineResult
from counterfoil.mining.report import (
    MOST_A_STRIP,
    MOST_IN_FULL,
    MOST_LISTED,
    SIDE,
    by_weight,
    findings_headline,
    mining_html,
    page_thumbnail,
    pictures_wanted,
)
from support.pages import HOSTILE_TAGS, Page, needs_nothing

HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7 * 7"
    " }}&lt;https://example.org/\x07"
)


def section_of(page: str, words: str) -> str:
    """Return the section of a page that shows one finding's evidence."""
    (section,) = (
        part
        for part in re.findall("<section.*?</section>", page, re.DOTALL)
        if f"<h2><bdi>{words}</bdi>" in part
    )
    return section


@pytest.fixture(scope="module")
def pictures() -> dict[str, bytes]:
    return example_pictures(example())


@pytest.fixture(scope="module")
def page(pictures: dict[str, bytes]) -> str:
    return mining_html(example(), pictures)


def test_the_page_opens_with_its_message_and_a_card_for_each_confirmed_finding(page: str) -> None:
    text = Page(page).text
    opening = text[: text.index("Sandal not on a beach")]
    assert "lab:resnet10t 3 of 5 named failures confirmed" in opening
    assert (
        "The strongest: sandal not on a beach, wrong 52 points more often than the rest of its"
        " class" in opening
    )
    assert "(confidence interval 35 to 69)." in opening
    expected = (
        "12,000 images of lab:wardrobe, audit; 5 hypotheses tested, 3 confirmed; on average"
        " at most 10 % of"
    )
    assert expected in opening
    assert re.findall("<h2><bdi>(.*?)</bdi>", page)[:3] == [
        "Sandal not on a beach", "Checked pullover", "Red coat in the snow",
    ]  # by the lower end of the difference's interval  # fmt: skip
    card = Page(section_of(page, "Sandal not on a beach")).text
    assert (
        "61 % wrong (37 of 61, 40 units; 52 % to 70 %)" in card
        and "9 % wrong (12 of 139, 101 units" in card
    )
    assert (
        "52 points more, 35 to 69 (widened, because the set was selected); p < .001, q = .002."
        in card
    )


def test_a_q_is_said_to_be_of_a_set(page: str) -> None:
    assert (
        Page(page).text.count(
            "A q-value is for a set of images, not for the words that describe it."
        )
        == 1
    )


def test_a_set_that_is_tested_outside_of_others_says_so_by_their_words(
    pictures: dict[str, bytes],
) -> None:
    plain = example()
    outside = {"sandal_far_from": ("pullover_hard", "gone_hard")}
    findings = replace(
        plain,
        findings=tuple(
            replace(finding, outside=outside.get(finding.name, ())) for finding in plain.findings
        ),
    )
    shown = mining_html(findings, pictures)
    output = Page(section_of(shown, "Sandal not on a beach")).text
    assert (
        "Set and rest leave out the images of “checked pullover”, “gone_hard”, which have their own"
        in output
    )
    assert Page(shown).text.count("Set and rest leave out") == 1


def test_words_that_clip_does_not_know_are_marked_wherever_they_stand(
    pictures: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    doubted = DoubtedClass("05", "sandal", True, 100, 12, -0.1, "coat")
    doubts = ScreenDoubts((doubted,), 3, False, 0.7, (0.6, 0.8), 0.1, 300, "words")
    plain = example()
    unchecked = tuple(
        replace(finding, caption_check=None, words_untrusted=False) for finding in plain.findings
    )
    findings = replace(plain, findings=unchecked).doubted(doubts)
    assert [finding.name for finding in findings.findings if finding.words_untrusted] == [
        "sandal_far_from"
    ]
    assert (
        parse_document(Findings, document_text(findings), "findings.json") == findings
        and not example().doubted(None).doubts
    )
    page = mining_html(findings, pictures)
    text = Page(page).text
    assert "CLIP may not know 1 of 3 classes." in text[: text.index("Sandal not on a beach")]
    assert 'href="#doubts"' in page
    assert "words untrusted" in Page(section_of(page, "Sandal not on a beach")).text
    assert text.count("words untrusted") == 1
    rows = {
        row["name"]: row["words_untrusted"]
        for row in csv.DictReader(io.StringIO(findings_csv_text(findings)))
    }
    assert [name for name, untrusted in rows.items() if untrusted == "true"] == ["sandal_far_from"]
    _print(MineResult(Path("mined"), findings, {}))
    shown = capsys.readouterr().out
    assert (
        "sandal not on a beach (words untrusted)" in shown and shown.count("(words untrusted)") == 1
    )
    assert "A q-value is for a set of images, not for the words that describe it." in shown


def test_a_headline_names_the_strongest_finding_whose_words_fit_and_others_are_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Let the words of the strongest finding fit, then not fit, by the page's own check."""
    plain = example()
    first = plain.findings[0]
    check = first.caption_check
    assert check is not None and by_weight(plain.standing)[0] is first and findings_headline(plain)[1].startswith(
        "The strongest: sandal not on a beach, wrong 52 points"
    )  # fmt: skip
    fitting = tuple(
        replace(finding, caption_check=check, words_untrusted=False) if finding.name == "pullover_hard" else
        replace(finding, caption_check=replace(check, share=0.49)) for finding in plain.findings
    )  # fmt: skip
    mixed = parse_document(
        Findings, document_text(replace(plain, findings=fitting)), "findings.json"
    )
    assert [finding.name for finding in mixed.standing if not finding.marks] == ["pullover_hard"]
    assert findings_headline(mixed)[1].startswith(
        "The strongest: checked pullover, wrong 43 points"
    )
    page = mining_html(mixed, {})
    for finding in mixed.standing:
        section = section_of(page, finding.words[:1].upper() + finding.words[1:])
        assert (
            ("Fewer than half" in section)
            == ("words untrusted" in section)
            == finding.words_untrusted
        )
    _print(MineResult(Path("mined"), mixed, {}))
    shown = capsys.readouterr().out
    assert shown.count("(words untrusted)") == 2 == mixed._repr_html_().count("(words untrusted)")
    assert "checked pullover (words" not in shown

    none = replace(
        mixed, findings=tuple(replace(finding, words_untrusted=True) for finding in mixed.findings)
    )
    assert (
        "The strongest: a group of images of sandal (words untrusted), wrong 52 points"
        in findings_headline(none)[1]
    )


def test_what_did_not_survive_is_told_with_its_numbers(page: str) -> None:
    text = Page(page).text
    tried = text[text.index("Tested, not confirmed") : text.index("Directions by class")]
    rates = r"15\s*9 of 61\s*6 to 24\s*12\s*16 of 139\s*3 to 21"
    assert re.search(rf"coat not indoors\s*{rates}\s*3\s*−10 to 16\s*0.15\s*0.45", tried)
    assert "pullover not on the road" in tried and "checked pullover" not in tried
    reasons = text[text.index("Classes without a direction") :]
    assert (
        "2 errors on the discover half, at least 10 are needed: trouser (4 wrong of 1,200)."
        in reasons
    )


def test_a_finding_shows_its_pictures_with_their_keys(
    page: str, pictures: dict[str, bytes]
) -> None:
    shown = example().confirmed[0]
    section = section_of(page, "Sandal not on a beach")
    wrong, right, nearest = re.findall(r'<div class="pictures">(.*?)</div>', section, re.DOTALL)
    failed = [piece.key for piece in shown.evidence if piece.failed][:MOST_A_STRIP]
    assert re.findall(r'<figure class="wrong" title="(\S+) · ', wrong) == failed
    assert "<figure title" not in wrong and '<figure class="wrong"' not in right
    assert right.count("<figure") == MOST_A_STRIP and nearest.count(">matches<") == 5
    assert "finds what this caption adds in 14 (70 %)" in Page(section).text
    assert "Fewer than half" not in section
    assert len(re.findall("<img ", section)) == len(
        [key for key in pictures if "/sandal_far_from/" in key]
    )


def test_the_other_end_of_a_direction_is_shown() -> None:
    plain = example()
    first = plain.confirmed[0]
    far = tuple(replace(piece, key=f"far/{index}") for index, piece in enumerate(first.evidence))
    findings = replace(
        plain,
        findings=tuple(
            replace(finding, easiest=far) if finding is first else finding
            for finding in plain.findings
        ),
    )
    assert set(pictures_wanted(findings)) - set(pictures_wanted(example())) == {
        f"far/{n}" for n in range(MOST_A_STRIP)
    }
    page = mining_html(findings, {})
    assert "The easiest images" in page and "far/0" in page
    assert "The easiest images" not in mining_html(example(), {})


def test_how_halves_were_dealt_and_what_whitened_is_told() -> None:
    def page_of(**halves: Any) -> str:
        known = example().halves
        assert known is not None
        dealt = replace(known, **halves)
        return mining_html(
            replace(example(), halves=dealt, whitened_by="80 rows of the discover half"), {}
        )

    assert "the dataset names no units" in page_of(by="content")
    assert (
        "and so are equal images" in page_of(by="unit")
        and "and so are equal images" not in page_of()
    )
    assert "whitened with <bdi>80 rows of the discover half</bdi>" in page_of()


def test_words_that_the_pictures_do_not_bear_out_are_doubted(page: str) -> None:
    assert "show what the caption adds. The numbers hold for the set" in section_of(
        page, "Checked pullover"
    )


def test_figures_stand_where_the_numbers_are() -> None:
    findings = example()
    page = mining_html(findings, {})
    for finding in findings.confirmed:
        for rate in (finding.set, finding.rest):
            assert rate.rate is not None
            assert page.count(f'cx="{2.5 + 95 * rate.rate:.2f}%"') >= 1
    bare = replace(
        findings.confirmed[0], set=Rate(4, 4, 3, 0.75, None), rest=Rate(0, 0, 0, None, None)
    )
    bare = replace(
        bare, nearest_curve=bare.nearest_curve[:1], others=(), caption_check=None, evidence=()
    )
    page = mining_html(replace(findings, findings=(bare,), tested=1), {})
    assert page.count("<circle") == 2 and page.count('<line class="whisker') == 0
    assert re.search(r"75 % wrong \(3 of 4\)\s*the rest\s*– wrong \(0 of 0\)", Page(page).text)


def test_no_failure_found_comes_with_the_difference_that_would_have_been_seen() -> None:
    findings = nothing_confirmed()
    text = Page(mining_html(findings, {})).text
    opening = text[: text.index("Tested, not confirmed")]
    assert (
        "No failure confirmed at this sample size" in opening
        and "5 hypotheses tested, none confirmed" in opening
    )
    assert (
        "The test has 80 % power to detect a set that fails 22 points more often than the rest"
        in opening
    )
    assert "for a set of 61 images against 139 others that fail at 9 %" in opening
    assert "counterfoil build" not in text and not pictures_wanted(findings)
    assert findings.smallest_difference is not None
    blind = replace(
        findings, smallest_difference=replace(findings.smallest_difference, difference=None)
    )
    assert "too small to detect any difference" in Page(mining_html(blind, {})).text
    untold = replace(findings, smallest_difference=None)
    assert "was not computed" in Page(mining_html(untold, {})).text


def test_a_run_that_could_test_nothing_says_so() -> None:
    untested = replace(example(), findings=(), tested=0)
    text = Page(mining_html(untested, {})).text
    assert "Nothing could be tested" in text and "No failure confirmed" not in text


# Fields that a recipe, a dataset, a model, a captions file or a person fills.
TEXTS = {
    "name", "words", "caption", "prompt", "key", "label", "answered", "answer", "examples", "model", "reason", "id",
    "content", "sha256", "class_names", "about",
}  # fmt: skip


def with_hostile_text(value: Any, filled: bool = False) -> Any:
    if isinstance(value, str):
        return f"{value}{HOSTILE}" if filled else value
    if isinstance(value, tuple):
        return tuple(with_hostile_text(each, filled) for each in value)
    if isinstance(value, dict):
        return {key: with_hostile_text(each, filled) for key, each in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    parts = {}
    for part in fields(value):
        parts[part.name] = with_hostile_text(getattr(value, part.name), part.name in TEXTS)
    return replace(value, **parts)


@pytest.mark.parametrize("findings", [example(), drawn_example()], ids=["rows", "pairs"])
def test_hostile_text_is_shown_as_text(findings: Findings) -> None:
    hostile = replace(with_hostile_text(findings), failure=f"answered: {HOSTILE}")
    picture = page_thumbnail(Image.new("RGB", (8, 8)))
    for given in ({}, dict.fromkeys(pictures_wanted(hostile), picture)):
        page = mining_html(hostile, given)
        parsed = Page(page)
        assert not HOSTILE_TAGS & set(parsed.tags)
        assert not [name for name, _ in parsed.attributes if name.startswith("on")]
        assert all(source.startswith("data:image/") for source in parsed.of("src"))
        assert page.count("<img ") == len(parsed.of("src")) and "\x07" not in page
        escaped = markup.escape(HOSTILE.rstrip("\x07")).replace("&#x27;", "&#39;")
        assert escaped.replace("&quot;", "&#34;") in page
        assert "49&amp;lt;" not in page and "\N{REPLACEMENT CHARACTER}" in page


@pytest.mark.parametrize(
    ("findings", "draw"),
    [(example(), example_pictures), (drawn_example(), drawn_pictures)],
    ids=["rows", "pairs"],
)
def test_equal_findings_give_equal_pages_that_need_nothing_else(
    findings: Findings, draw: Callable[[Findings], dict[str, bytes]]
) -> None:
    pictures = draw(findings)
    page = mining_html(findings, pictures)
    parsed = needs_nothing(page)
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert len(parsed.of("id")) == len(set(parsed.of("id")))
    read = parse_document(Findings, document_text(findings), "findings.json")
    assert mining_html(read, dict(reversed(pictures.items()))) == page


def test_a_page_of_very_many_findings_stays_small() -> None:
    findings = example()
    first, *_, last = findings.findings
    check = first.caption_check
    assert check is not None
    long = "very " * 2000 + "long"
    many = tuple(
        replace(
            finding,
            name=f"{finding.name}_{n}",
            words=f"{n} {long}",
            caption=long,
            evidence=tuple(replace(piece, key=f"{n}/{piece.key}") for piece in finding.evidence),
            caption_check=replace(
                check, nearest=tuple(replace(near, key=f"{n}/{near.key}") for near in check.nearest)
            ),
        )
        for finding in (first, last)
        for n in range(2 * MOST_LISTED)
    )
    findings = replace(findings, findings=many, tested=len(many), classes=findings.classes * 200)
    wanted = pictures_wanted(findings)
    assert len(wanted) == len(set(wanted)) == MOST_IN_FULL * 3 * MOST_A_STRIP
    page = mining_html(
        findings, dict.fromkeys(wanted, page_thumbnail(Image.new("RGB", (300, 200))))
    )
    assert (
        page.count("<section") == MOST_IN_FULL
        and page.count("<tr>") < 3 * MOST_LISTED + 4 * MOST_IN_FULL
    )
    assert len(page) < 3_000_000 and long not in page
    text = Page(page).text
    assert f"{MOST_LISTED} of {2 * MOST_LISTED} are listed; findings.csv has all." in text
    assert (
        f"The {MOST_IN_FULL} strongest findings are above (by the lower end of the difference’s"
        " interval)" in text
    )
    assert "this table has 376 others." in text


def test_thumbnails_are_small() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (400, 300, 3), dtype=np.uint8)
    for image in (
        Image.fromarray(noise),
        Image.fromarray(noise).convert("L"),
        Image.new("RGBA", (5, 900)),
    ):
        encoded = page_thumbnail(image)
        assert len(encoded) <= 16_384  # a page has at most 24 × 24 of them
        assert max(Image.open(io.BytesIO(encoded)).size) == SIDE


def test_what_was_rendered_for_the_test_is_told_beside_its_base(page: str) -> None:
    both = Page(section_of(page, "Checked pullover")).text
    assert "On the confirm half, which did not choose the words" in both
    assert (
        "On images rendered for the test: 55 % wrong (24 of 44; 46 % to 64 %), and their base 11 %"
        " wrong" in both
    )
    alone = Page(section_of(page, "Red coat in the snow")).text
    assert (
        "On images rendered for the test" in alone
        and "the base" in alone
        and "and their base" not in alone
    )
    assert "rendered" not in section_of(page, "Sandal not on a beach")
    text = Page(page).text
    assert "Named but not tested: bag not at night; nothing renders it." in text
    assert "from the same noise" in text
    rows = tuple(
        replace(finding, tested_on="rows", rendered=None) for finding in example().findings
    )
    plain = Page(mining_html(replace(example(), findings=rows, not_tested=()), {})).text
    assert "rendered" not in plain and "Named but not tested" not in plain


def test_a_picture_that_is_not_there_is_named(pictures: dict[str, bytes]) -> None:
    key = pictures_wanted(example())[0]
    page = mining_html(
        example(), {name: picture for name, picture in pictures.items() if name != key}
    )
    assert re.search(rf'<span class="absent"><bdi>{key} · \w+ half</bdi></span>', page)
