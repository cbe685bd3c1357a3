"""Errors for people. Each says what is wrong and where, what was expected, and what to do.

The command line prints such an error without a traceback. It exits with `exit_code`: 2 for a user's
mistake, 1 for a failed run. What may make a result wrong is a `CounterfoilWarning`, which the
command line prints as `Warning: …`.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

# A sentence of a table of messages, and the word before it.
_SENTENCE = re.compile("  (?:([a-z0-9-]+): )?(.+)")


class ProblemLine(str):
    """A line about what is wrong, with what programs and tests need of it. `MessageTable` makes it.

    code: its stable name, which `docs/reference/errors.md` describes and the line ends with. path:
    the key or the file that is wrong. values: what the line says, by the names of the gaps in its
    sentence, such as `found`, `expected` and `hint`.
    """

    code: str
    path: str
    values: Mapping[str, object]

    def __new__(
        cls,
        line: str,
        code: str = "",
        path: str = "",
        values: Mapping[str, object] | None = None,
    ) -> ProblemLine:
        problem = super().__new__(cls, line)
        problem.code = code
        problem.path = path
        problem.values = values or {}
        return problem

    @classmethod
    def of(cls, line: str) -> ProblemLine:
        """Return a problem as it is, and a plain line as a problem without a code."""
        return line if isinstance(line, ProblemLine) else cls(line)

    def at(self, path: str, origin: object = None) -> ProblemLine:
        """Return the problem with its key or file before its line, and where the key is written."""
        where = f"{path} ({origin})" if origin else path
        return ProblemLine(f"{where}: {self}", self.code, path, self.values)


@dataclass(frozen=True)
class MessageTable:
    """The texts of a package's problems.

    codes: what each code means. sentences: a text with named gaps for each name of a sentence,
    which is a code, or a code and a word after a dot.
    """

    codes: Mapping[str, str]
    sentences: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> MessageTable:
        """Read lines `code: meaning`, with the code's sentences under each, indented by two spaces.

        All sentences of a code but one begin with a word and a colon. A deeper indent continues a
        sentence.
        """
        codes: dict[str, str] = {}
        sentences: dict[str, str] = {}
        code = name = ""
        for line in text.strip().splitlines():
            if line.startswith("    "):
                sentences[name] += f" {line.strip()}"
            elif line.startswith("  "):
                word, sentence = _SENTENCE.findall(line)[0]
                name = f"{code}.{word}" if word else code
                sentences[name] = sentence
            elif line:
                code, _, meaning = line.partition(": ")
                codes[code] = meaning
        return cls(codes, sentences)

    def __call__(self, name: str, /, **values: object) -> ProblemLine:
        """Return the problem that a sentence states of these values."""
        code, _, _ = name.partition(".")
        sentence = self.sentences[name].format(**values)
        return ProblemLine(f"{sentence} [{code}]", code, values=values)


class CounterfoilError(Exception):
    """One or more problems that a person can act on, one line each. `hint` says what to do next."""

    exit_code = 1

    def __init__(self, problems: str | Sequence[str], hint: str | None = None) -> None:
        lines = (problems,) if isinstance(problems, str) else problems
        self.problems = tuple(ProblemLine.of(line) for line in lines)
        self.hint = hint
        shown = [*self.problems, hint] if hint else self.problems
        super().__init__("\n".join(shown))

    def __reduce__(self):
        # Workers send errors to the build process, so an error must keep its problems and its hint
        # when pickled.
        return (type(self), (self.problems, self.hint))


class UserError(CounterfoilError):
    """The user's input (a recipe, an option, a path, a name) cannot be used as given."""

    exit_code = 2


class RunFailure(CounterfoilError):
    """The input was right, but the run could not go on: the disk is full, a model lacks a file, a
    worker died."""


class CounterfoilWarning(UserWarning):
    """A result stands, but may not mean what it seems to mean."""


def warn(text: str) -> None:
    """Warn at the line of the program that called this package."""
    level = 1
    frame = sys._getframe()
    while frame is not None:
        package, _, _ = str(frame.f_globals.get("__name__")).partition(".")
        if package != "counterfoil":
            break
        level = level + 1
        frame = frame.f_back
    warnings.warn(text, CounterfoilWarning, stacklevel=level)


MOST_SHOWN = 20


def first_of(
    lines: Sequence[str],
    most: int = MOST_SHOWN,
    count: int | None = None,
) -> list[str]:
    """Return at most `most` lines, then a line with the number of those left out. `count` defaults
    to `len(lines)`."""
    count = len(lines) if count is None else count
    first = list(lines[:most])
    if count > most:
        first.append(f"… and {count - most:,} more")
    return first


def some_of(
    names: Iterable[str],
    most: int = 5,
    *,
    count: int | None = None,
    what: str = "",
) -> str:
    """Join at most `most` names, then say how many more of `what` there are. `count` is the number
    of all names."""
    names = list(names)
    count = len(names) if count is None else count
    shown = names[:most]
    text = ", ".join(shown)
    more = count - len(shown)
    if more > 0:
        text += f" and {more:,} more"
        if what:
            text += f" {what}"
    return text


@dataclass
class Problems:
    """The problems of a file or of rows, each a line that begins with `where`. Only the first lines
    are kept, because there may be millions."""

    where: str = ""
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        self.count += 1
        if len(self.lines) < MOST_SHOWN:
            self.lines.append(f"{self.where}{text}")

    def refuse(self, hint: str) -> None:
        """Raise UserError if there are problems."""
        if self.count:
            raise UserError(first_of(self.lines, count=self.count), hint)


@contextmanager
def collected_in(errors: list[CounterfoilError]) -> Iterator[None]:
    """Append an error of the block to `errors`, and go on; `raise_together` raises it with those of
    later blocks."""
    try:
        yield
    except CounterfoilError as error:
        errors.append(error)


def raise_together(errors: Sequence[CounterfoilError], hint: str | None = None) -> None:
    """Raise one error for all: UserError if any of them is a UserError, else RunFailure. Without
    errors, do nothing."""
    if not errors:
        return
    if len(errors) == 1:
        error = errors[0]
        hints = filter(None, (error.hint, hint))
        raise type(error)(error.problems, " ".join(hints) or None)
    kind: type[CounterfoilError] = RunFailure
    lines: list[str] = []
    for error in errors:
        lines += error.problems
        if error.hint:
            lines[-1] += f" ({error.hint})"
        if isinstance(error, UserError):
            kind = UserError
    raise kind(lines, hint)
