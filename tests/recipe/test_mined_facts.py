"""What `mined_from` tells is read part by part: any value is taken, and only what has the form is believed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from counterfoil.recipe.schema_mine import LONGEST, MinedFacts, mined_facts, shown_text

KEYS = ("words", "caption", "role", "method", "target", "set", "rest", "p", "q", "classes", "tested_on")
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3 * LONGEST)
keys = st.sampled_from(["name", "sha256", "rate", "x"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(KEYS), values))
def test_any_record_is_read_and_what_is_shown_is_bounded(record: dict[str, Any]) -> None:
    found = mined_facts(record)
    texts = [found.words, found.caption, found.role, found.method, found.target, found.target_sha256, *found.classes]
    for text in texts:
        assert text is None or (0 < len(text) <= LONGEST and text.isprintable() and text == text.strip())
    for number in (found.set_rate, found.rest_rate, found.p, found.q):
        assert number is None or 0 <= number <= 1
    assert found.tested_on in (None, "rows", "rendered", "both", "pairs")


def test_a_record_of_mining_is_read_whole() -> None:
    record = {
        "words": "sandal not on a beach", "caption": "a photo of a sandal on the beach", "role": "far_from",
        "method": "directions", "target": {"name": "lab:resnet10t", "sha256": "ab" * 32},
        "set": {"rate": 0.61}, "rest": {"rate": 0.09}, "p": 0.001, "q": 0.002, "classes": ["05"], "more": [1],
        "tested_on": "pairs",
    }  # fmt: skip
    assert mined_facts(record) == MinedFacts(
        "sandal not on a beach", "a photo of a sandal on the beach", "far_from", "directions", "lab:resnet10t",
        "ab" * 32, 0.61, 0.09, 0.001, 0.002, ("05",), "pairs",
    )  # fmt: skip
    assert mined_facts({"target": "lab:resnet10t"}).target == "lab:resnet10t"
    assert mined_facts(None) == mined_facts({}) == MinedFacts()


def test_text_is_one_line_of_what_can_be_printed() -> None:
    assert shown_text("a\n\tb\x1b[2Jc\u202e\x00") == "a b [2Jc"
    assert shown_text("x" * (LONGEST + 1)) == "x" * (LONGEST - 1) + "…"
    assert [shown_text(value) for value in ("", " \n", 7, None, ["a"])] == [None] * 5
