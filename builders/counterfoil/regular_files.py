"""Check the paths that people write, and read files from elsewhere within bounds.

Reading a device or a pipe may never end, and a file may be larger than it claims. The functions
here therefore read all files of recipes, datasets and models from elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from counterfoil.errors import UserError

# The limits of common file systems; a longer name would raise an error in an unexpected place.
LONGEST_PATH = 4096
LONGEST_NAME = 255

_NOT_REGULAR = (
    (stat.S_ISDIR, "is a folder"),
    (stat.S_ISLNK, "is a link"),
    (stat.S_ISFIFO, "is a pipe"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


class UnfitFile(OSError):
    """A file is not regular or is too large to read. `strerror` is written after the path ("is a
    pipe …")."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EINVAL, reason)


def irregularity(mode: int) -> str | None:
    """Return what a file is if its mode is not that of a regular file ("is a pipe"), else None."""
    if stat.S_ISREG(mode):
        return None
    for is_so, words in _NOT_REGULAR:
        if is_so(mode):
            return words
    return "is not a regular file"


@contextlib.contextmanager
def open_regular(path: str | Path, *, follow: bool = True) -> Iterator[BufferedReader]:
    """Open a regular file without waiting, or raise UnfitFile or OSError. follow: whether the path
    may be a link."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags)
    except ValueError:  # NUL in the name
        raise UnfitFile("has a name that no file can have") from None
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise UnfitFile("is a link, expected a regular file") from None
        if error.errno == errno.ENXIO:
            raise UnfitFile("is a socket or a pipe, expected a regular file") from None
        raise
    irregular = irregularity(os.fstat(descriptor).st_mode)
    if irregular is not None:
        os.close(descriptor)
        raise UnfitFile(f"{irregular}, expected a regular file")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def read_regular(path: str | Path, most_bytes: int, *, follow: bool = True) -> bytes:
    """Read a regular file. Raises what `open_regular` raises, and UnfitFile for more than
    `most_bytes` bytes."""
    with open_regular(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        # A read takes as much memory as it may return.
        content = file.read(size + 1) if size <= most_bytes else None
        if content is not None and len(content) > size:  # some files (in /proc) claim to be empty
            content += file.read(most_bytes - size)
    if content is None or len(content) > most_bytes:
        shown = f"{size:,} bytes" if size > most_bytes else "more bytes than it says"
        raise UnfitFile(f"has {shown}, expected at most {most_bytes:,}")
    return content


def is_utf8(name: str) -> bool:
    """Return whether a name is UTF-8 text. Python represents other bytes in file names as
    surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


# Characters that act on what shows them: controls, but not tab and line break; line separators;
# halves of characters; and those that change the direction of text, with which "gpj.exe" can look
# like "exe.jpg".
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible_text(text: str) -> str:
    """Escape characters that act on what shows a text, as JSON escapes them; other texts stay as
    they are.

    Every text from elsewhere passes through this before it is printed or written. A JSON text keeps
    its values.
    """
    return _ACTING.sub(lambda letter: f"\\u{ord(letter[0]):04x}", text)


def on_a_line(text: str) -> str:
    """Return a text that is `visible`, with line breaks and tabs escaped too."""
    return visible_text(text).replace("\n", "\\n").replace("\t", "\\t")


def named_path(text: str | Path) -> Path:
    """Return the path that a person wrote, with `~` expanded. UserError if no file on this machine
    can have it."""
    written = str(text)
    shown = written if len(written) <= 80 else f"{written[:77]}…"
    if "\0" in written:
        raise UserError(f"{shown!r} is not a path: it holds a NUL character")
    try:
        path = Path(written).expanduser()
    except RuntimeError as error:
        user, _, _ = written.partition("/")
        hint = "Write the whole path."
        raise UserError(f"{shown}: there is no user {user}", hint) from error
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise UserError(f"{shown!r} is not a path: it holds half a character") from error
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    if len(encoded) > LONGEST_PATH or longest > LONGEST_NAME:
        raise UserError(
            f"{shown}: too long for a path",
            f"Paths have at most {LONGEST_PATH} bytes, and each name in them at most"
            f" {LONGEST_NAME}.",
        )
    return path
