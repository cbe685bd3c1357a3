"""Any text comes out of Markdown as it went in, judged by an independent parser."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from counterfoil.card.markdown import code, code_cell, fenced, inline, prose

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# Letters and marks that mean something to Markdown, so that examples hit them often.
MARKS = st.text(st.sampled_from(list("ab1 \n\\`*_{}[]()<>#+-.!|~&;=:/$\"'^")), max_size=40)
TEXT = MARKS | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"]), max_size=20)


def words(text: str) -> str:
    return " ".join(text.split())


def rendered(markdown: str) -> tuple[set[str], list[str]]:
    """(kinds of blocks, the text of each inline block); fails where something inside is not plain text."""
    tokens = PARSER.parse(markdown)
    texts = []
    for token in tokens:
        if token.type == "inline":
            children = token.children or []
            assert {child.type for child in children} <= {"text", "softbreak", "text_special"}, markdown
            texts.append("".join("\n" if c.type == "softbreak" else c.content for c in children))
    return {token.type for token in tokens if token.type != "inline"}, texts


@given(TEXT)
def test_inline_text_reads_as_itself(text: str) -> None:
    kinds, texts = rendered(f"{inline(text)}\n")
    if words(text):
        assert kinds == {"paragraph_open", "paragraph_close"}
        assert [words(text)] == texts


@given(TEXT)
def test_inline_text_stays_in_its_cell(text: str) -> None:
    kinds, texts = rendered(f"| one | two |\n|--|--|\n| {inline(text)} | end |\n")
    assert "table_open" in kinds
    assert texts == ["one", "two", words(text), "end"]


@given(TEXT)
def test_prose_reads_as_itself(text: str) -> None:
    kinds, texts = rendered(f"{prose(text)}\n")
    assert kinds <= {"paragraph_open", "paragraph_close"}
    assert words(" ".join(texts)) == words(text)
    assert "---" not in prose(text).splitlines(), "it would end the metadata"


@given(TEXT)
def test_code_reads_as_itself(text: str) -> None:
    tokens = PARSER.parse(f"x {code(text)} y")
    found = [child.content for child in tokens[1].children or [] if child.type == "code_inline"]
    assert found == ([words(text)] if words(text) else [])


@given(TEXT)
def test_code_stays_in_its_cell(text: str) -> None:
    tokens = PARSER.parse(f"| one | two |\n|--|--|\n| {code_cell(text)} | end |\n")
    cells = [token for token in tokens if token.type == "inline"]
    assert [cell.content for cell in cells[:2] + cells[3:]] == ["one", "two", "end"]
    found = [child.content for child in cells[2].children or [] if child.type == "code_inline"]
    assert found == ([words(text)] if words(text) else [])


@given(TEXT)
def test_nothing_inside_a_fence_ends_it(text: str) -> None:
    tokens = PARSER.parse(f"{fenced(text, 'yaml')}\n\nafter\n")
    assert [token.type for token in tokens if token.level == 0][:2] == ["fence", "paragraph_open"]
    assert tokens[0].content.rstrip() == text.rstrip()
    assert tokens[0].info == "yaml"
