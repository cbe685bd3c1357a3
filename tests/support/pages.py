"""A page of HTML as its reader gets it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

HOSTILE_TAGS = {"script", "iframe", "object", "embed", "link", "base", "form"}
_VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}


class Page(HTMLParser):
    """Collects a page's tags, attributes and text, and asserts that its tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self._pieces: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] not in (["script"], ["style"]):
            self._pieces.append(data)

    def of(self, *attributes: str) -> list[str]:
        return [value for name, value in self.attributes if name in attributes]

    @property
    def text(self) -> str:
        """The text to read, with plain spaces and each run of them as one."""
        return re.sub(r"\s+", " ", "".join(self._pieces))

    @property
    def spaced(self) -> str:
        """The text to read, with a space between any two elements."""
        return " ".join(" ".join(self._pieces).split())


def needs_nothing(page: str) -> Page:
    """Return a page, and assert that it runs no script and needs no other file."""
    parsed = Page(page)
    assert not HOSTILE_TAGS & set(parsed.tags)
    assert all(source.startswith("data:image/") for source in parsed.of("src"))
    assert {link.removeprefix("#") for link in parsed.of("href")} <= set(parsed.of("id"))
    assert not re.search(r"https?:|//[a-z]|url\(|@import", re.sub(r'src="data:[^"]*"', "", page))
    return parsed
