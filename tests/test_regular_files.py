"""Strangers' files are read if they are regular and no larger than expected; the reader waits for
no other file."""

from __future__ import annotations

import os
import socket
import tracemalloc
from pathlib import Path

import pytest
from markupsafe import Markup

from counterfoil.errors import UserError
from counterfoil.regular_files import (
    UnfitFile,
    named_path,
    open_regular,
    read_regular,
    visible_text,
)
from counterfoil.report import templates


def test_a_regular_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular(file, 5) == b"12345"
    with pytest.raises(UnfitFile, match="has 5 bytes, expected at most 4"):
        read_regular(file, 4)


def test_a_small_file_takes_little_memory_whatever_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    tracemalloc.start()
    try:
        assert read_regular(tmp_path / "file", 1 << 33) == b"12345"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_never_ends_is_not_begun(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    for name, expected in (
        ("fifo", "is a pipe"),
        ("folder", "is a folder"),
        ("socket", "is a socket"),
    ):
        with pytest.raises(OSError) as caught:
            read_regular(tmp_path / name, 10)
        assert expected in str(caught.value.strerror)
    with pytest.raises(UnfitFile, match="is a device"):
        read_regular(Path("/dev/zero"), 10)


def test_files_that_say_they_are_empty_and_are_not_are_read_up_to_the_limit_too() -> None:
    assert Path("/proc/self/status").stat().st_size == 0
    assert read_regular(Path("/proc/self/status"), 1_000_000).startswith(b"Name:")
    with pytest.raises(UnfitFile, match="more bytes than it says, expected at most 10"):
        read_regular(Path("/proc/self/status"), 10)


def test_links_are_followed_on_demand_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular(tmp_path / "link", 10) == b"x"
    with pytest.raises(UnfitFile, match="is a link"), open_regular(tmp_path / "link", follow=False):
        pass


def test_names_with_nul_and_missing_files_are_errors_of_files(tmp_path: Path) -> None:
    with pytest.raises(UnfitFile, match="a name that no file can have"):
        read_regular(Path("a\0b"), 10)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 10)


def test_paths_of_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert named_path("~/data") == Path("/home/me/data")
    assert named_path("a/" * 100 + "é" * 127) == Path("a/" * 100 + "é" * 127)
    for name in ("é" * 128, "a/" * 2100, "a\0", "~nosuchuser", "a\ud83d"):
        with pytest.raises(UserError):
            named_path(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mug", "mug"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("1\u202f000 \u2009× é 猫 \u200d", "1\u202f000 \u2009× é 猫 \u200d"),
        ("\x1b[2Jmug", "\\u001b[2Jmug"),
        ("gpj\u202eexe", "gpj\\u202eexe"),
        ("\u2067a\u2069\u200f\u061c", "\\u2067a\\u2069\\u200f\\u061c"),
        ("a\u2028b\x85c\udcff", "a\\u2028b\\u0085c\\udcff"),
    ],
)
def test_characters_that_act_are_made_visible(text: str, shown: str) -> None:
    assert visible_text(text) == shown


@pytest.mark.parametrize("markdown", [True, False])
def test_every_template_shows_them(
    markdown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.j2").write_text("{{ name }}|{{ safe }}")
    monkeypatch.setattr(templates, "templates_folder", lambda template: tmp_path)
    environment = templates.template_environment("t.j2", markdown=markdown)
    page = environment.get_template("t.j2").render(name="a\u202e\x1b", safe=Markup("<b>\u2066</b>"))
    assert page == "a\\u202e\\u001b|<b>\\u2066</b>"
