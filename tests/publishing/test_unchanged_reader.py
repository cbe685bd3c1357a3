"""A verified file read again: whatever is read, sought and read once more, only what was verified comes out whole."""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import RunFailure
from counterfoil.publishing.files import UnchangedReader, hash_file, whole_content
from support.files import flip

CONTENT = random.Random(2).randbytes(40_000)


@given(
    piece=st.integers(1, 50_000),
    part=st.integers(1, 50_000),
    again=st.lists(st.integers(0, 6), max_size=6),
    changed=st.none() | st.tuples(st.integers(0, 60), st.integers(0, len(CONTENT) - 1)),
)
def test_what_comes_out_whole_is_what_was_hashed(
    piece: int, part: int, again: list[int], changed: tuple[int, int] | None
) -> None:
    """Read in parts, some of them again from their beginning, while a byte changes after some number of reads."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "a.bin"
        place.write_bytes(CONTENT)
        file = hash_file(Path(folder), "a.bin")
        reads = 0
        out = b""
        try:
            with UnchangedReader(file) as reader:
                for number, start in enumerate(range(0, len(CONTENT), part)):
                    for last in (*[False] * again.count(number), True):
                        assert reader.seek(0, os.SEEK_END) == len(CONTENT)
                        reader.seek(start)
                        end, sent = min(start + part, len(CONTENT)), b""
                        # A try that breaks off has read a piece of its part, or the whole of it.
                        while len(sent) < end - start and (last or not sent):
                            if changed is not None and reads == changed[0]:
                                _change(place, changed[1])
                            reads += 1
                            sent += reader.read(min(piece, end - start - len(sent)))
                        out += sent if last else b""
        except RunFailure as failure:
            assert changed is not None
            assert "a.bin changed" in failure.problems[0]
            assert len(out) < len(CONTENT)
        else:
            assert hashlib.sha256(out).hexdigest() == file.sha256


def _change(place: Path, at: int) -> None:
    with place.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes([CONTENT[at] ^ 255]))


@pytest.mark.parametrize("content", [b"", b"a", CONTENT])
def test_a_file_read_at_once(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    file = hash_file(tmp_path, "a.bin")
    assert whole_content(file) == content
    with UnchangedReader(file) as reader:
        assert reader.read() == content
        assert reader.read() == reader.read(5) == b""
    (tmp_path / "a.bin").write_bytes(content + b"more")
    with pytest.raises(RunFailure, match="changed"):
        whole_content(file)


def test_a_file_that_is_emptied_or_filled_while_it_is_open(tmp_path: Path) -> None:
    for before, after in ((b"", b"more"), (CONTENT, b""), (CONTENT, CONTENT + b"more")):
        (tmp_path / "a.bin").write_bytes(before)
        with UnchangedReader(hash_file(tmp_path, "a.bin")) as reader:
            (tmp_path / "a.bin").write_bytes(after)
            with pytest.raises(RunFailure, match="changed"):
                reader.read()


def test_a_beginning_that_was_not_read_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    with UnchangedReader(hash_file(tmp_path, "a.bin")) as reader:
        reader.seek(1000)
        with pytest.raises(RunFailure, match="out of order"):
            reader.read()


def linked(place: Path) -> None:
    place.rename(place.with_suffix(".moved"))
    place.symlink_to(place.with_suffix(".moved"))


def piped(place: Path) -> None:
    place.unlink()
    os.mkfifo(place)


def under_a_link(place: Path) -> None:
    place.parent.rename(place.parent.with_name("moved"))
    place.parent.symlink_to(place.parent.with_name("moved"))


@pytest.mark.parametrize("change", [linked, piped, under_a_link, flip, Path.unlink])
def test_no_link_is_followed_and_no_pipe_waited_for(tmp_path: Path, change: Callable[[Path], None]) -> None:
    place = tmp_path / "data" / "a.bin"
    place.parent.mkdir()
    place.write_bytes(CONTENT)
    file = hash_file(tmp_path, "data/a.bin")
    change(place)
    with pytest.raises(RunFailure, match=r"data/a\.bin changed on this machine"):
        whole_content(file)
    if change is not flip:
        with pytest.raises(RunFailure, match=r"data/a\.bin"):
            hash_file(tmp_path, "data/a.bin")


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.bin").write_bytes(CONTENT)
    (tmp_path / "named").symlink_to(tmp_path / "real")
    assert whole_content(hash_file(tmp_path / "named", "a.bin")) == CONTENT
