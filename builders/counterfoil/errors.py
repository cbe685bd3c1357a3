"""Errors for people. Each says what is wrong and where, what was expected, and what to do.

The command line prints such an error without a traceback. It exits with `exit_code`: 2 for a user's
mistake, 1 for a failed run. What may make a result wrong is a `CounterfoilWarning`, which the
command line prints as `Warning: …`.
"""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from string import Formatter
from typing import Any

# A sentence of a table of messages, and the word before it.
_SENTENCE = re.compile("  (?:([a-z0-9-]+): )?(.+)")

_LONGEST_COMPARED = 200
_LONGEST_QUOTED = 60  # in messages
_LONGEST_REASON = 200
_LONGEST_VALUE = 1000
# The gaps that the values of a call fill, one after another.
_FACTS = ("found", "expected", "hint")


class ProblemLine(str):
    """A line about what is wrong, with what programs and tests need of it. `MessageTable` makes it.

    code: its stable name, which `docs/reference/errors.md` describes and the line ends with. path:
    the key or the file that is wrong. values: what the line says, by the names of the gaps in its
    sentence, such as `found`, `expected` and `hint`. advice: what to do, for the hint of an error.
    """

    code: str
    path: str
    values: Mapping[str, object]
    advice: str | None

    def __new__(
        cls,
        line: str,
        code: str = "",
        path: str = "",
        values: Mapping[str, object] | None = None,
        advice: str | None = None,
    ) -> ProblemLine:
        problem = super().__new__(cls, line)
        problem.code = code
        problem.path = path
        problem.values = values or {}
        problem.advice = advice
        return problem

    @property
    def text(self) -> str:
        """The line without its key or file and without its code."""
        return self.removeprefix(f"{self.path}: ").removesuffix(f" [{self.code}]")

    @classmethod
    def of(cls, line: str) -> ProblemLine:
        """Return a problem as it is, and a plain line as a problem without a code."""
        return line if isinstance(line, ProblemLine) else cls(line)

    def at(self, path: object, origin: object = None) -> ProblemLine:
        """Return the problem with its key or file before its line, and where the key is written. A text
        may go on after a colon, with a dataset or a line."""
        where = f"{path} ({origin})" if origin else path
        key = str(path)
        if isinstance(path, str):
            key = path.partition(": ")[0]
        return ProblemLine(f"{where}: {self}", self.code, key, self.values, self.advice)

    def only_at(self, path: object) -> ProblemLine:
        """Return the problem with this key or file instead of its own."""
        line = self.removeprefix(f"{self.path}: ")
        return ProblemLine(line, self.code, "", self.values, self.advice).at(path)

    def with_end(self, text: str) -> ProblemLine:
        """Return the problem with a text after its line: before its code, or lines below it."""
        end = f" [{self.code}]" if self.code and not text.startswith("\n") else ""
        line = f"{self.removesuffix(end)}{text}{end}"
        return ProblemLine(line, self.code, self.path, self.values, self.advice)


class _Prose(Formatter):
    """Fills the gaps of a sentence as `str.format` does, lists of names with commas, and errors on one
    line, those of files without their paths.

    `{found!q}` quotes a text and cuts a long one. `{names:some}` and `{names:first}` show the first 5
    and 20 names. `{count:image lies|images lie}` is a number with the words after it, for one and for
    another number.
    """

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "q":
            return quoted(str(value))
        if isinstance(value, PurePath):
            value = str(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        singular, bar, plural = format_spec.partition("|")
        if bar:
            return f"{value:,} {singular if value == 1 else plural}"
        if format_spec == "some":
            return some_of(value)
        if format_spec == "first":
            return some_of(value, MOST_SHOWN)
        if isinstance(value, Exception):
            reason = getattr(value, "strerror", None) or value
            return " ".join(str(reason).split())[:_LONGEST_REASON]
        if not isinstance(value, str) and isinstance(value, Collection):
            return ", ".join(map(str, value))
        return format(value, format_spec)


@dataclass(frozen=True)
class MessageTable:
    """The texts of a package's problems.

    codes: what each code means. sentences: a text with named gaps for each name of a sentence,
    which is a code, or a code and a word after a dot. advice: what to do, by the name of a
    sentence; that of a code is of all its sentences without their own.
    """

    codes: Mapping[str, str]
    sentences: Mapping[str, str]
    advice: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> MessageTable:
        """Read lines `code: meaning`, with the code's sentences under each, indented by two spaces.

        All sentences of a code but one begin with a word and a colon. `>` begins the advice of the
        code or the sentence above it. A deeper indent continues a text.
        """
        codes = {}
        sentences = {}
        advice = {}
        code = name = ""
        texts = codes
        for line in text.strip().splitlines():
            if line.strip().startswith("> "):
                texts = advice
                texts[name] = line.strip().removeprefix("> ")
            elif line.startswith("    "):
                texts[name] += f" {line.strip()}"
            elif line.startswith("  "):
                word, sentence = _SENTENCE.findall(line)[0]
                name = f"{code}.{word}" if word else code
                texts = sentences
                texts[name] = sentence
            elif line:
                code, _, meaning = line.partition(": ")
                name = code
                texts = codes
                texts[name] = meaning
        return cls(codes, sentences, advice)

    def __call__(
        self,
        name: str,
        path: object = None,
        /,
        *values: object,
        **others: object,
    ) -> ProblemLine:
        """Return the problem that a sentence states, after its key or file.

        values: those of `{found}`, `{expected}` and `{hint}`. By default the hint is the expected
        name that is nearest to what is found. others: the values of other gaps.
        """
        sentence = self.sentences[name]
        facts = dict(zip(_FACTS, values, strict=False)) | others
        expected = facts.get("expected")
        if "hint" not in facts and "{hint}" in sentence and isinstance(expected, Collection):
            facts["hint"] = did_you_mean(str(facts["found"]), map(str, expected))
        code = name.partition(".")[0]
        line = _Prose().vformat(sentence, (), facts)
        advice = self.advice.get(name) or self.advice.get(code)
        if advice is not None:
            advice = _Prose().vformat(advice, (), facts)
        stored: dict[str, object] = {}
        for gap, value in facts.items():  # a worker sends them, so they are plain and short
            plain = isinstance(value, int | float)
            stored[gap] = value if plain else str(value)[:_LONGEST_VALUE]
        problem = ProblemLine(f"{line} [{code}]", code, "", stored, advice)
        return problem if path is None else problem.at(path)

    def refusal(self, name: str, /, *values: object, **others: object) -> UserError:
        """Return the error of a user's mistake, with the problem that a sentence states."""
        return UserError(self(name, *values, **others))

    def failure(self, name: str, /, *values: object, **others: object) -> RunFailure:
        """Return the error of a failed run, with the problem that a sentence states."""
        return RunFailure(self(name, *values, **others))


class CounterfoilError(Exception):
    """One or more problems that a person can act on, one line each. `hint` says what to do next: by
    default, the first advice of a problem."""

    exit_code = 1

    def __init__(self, problems: str | Sequence[str], hint: str | None = None) -> None:
        lines = (problems,) if isinstance(problems, str) else problems
        self.problems = tuple(ProblemLine.of(line) for line in lines)
        if hint is None:
            advice = [problem.advice for problem in self.problems if problem.advice]
            hint = advice[0] if advice else None
        self.hint = hint or None
        super().__init__("\n".join(self.problems) + (f"\n{hint}" if hint else ""))

    @property
    def reason(self) -> str:
        """All problems in one text without their codes: why something was skipped."""
        lines = [problem.removesuffix(f" [{problem.code}]") for problem in self.problems]
        return "; ".join(lines)

    def at(self, path: object, hint: str | None = None) -> CounterfoilError:
        """Return the error with a key or a file before its problems, and one more hint."""
        hints = filter(None, (self.hint, hint))
        problems = [problem.at(path) for problem in self.problems]
        return type(self)(problems, " ".join(hints))

    def __reduce__(self):
        # Workers send errors to the build process, so an error must keep its problems and its hint
        # when pickled.
        return (type(self), (self.problems, self.hint or ""))


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


def nearest_name(text: str, valid: Iterable[str]) -> str | None:
    """Return the closest valid name, or None."""
    if len(text) > _LONGEST_COMPARED:
        return None  # comparing the text with thousands of names takes minutes
    names = [name for name in valid if len(name) <= _LONGEST_COMPARED]
    close = difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    if close:
        return close[0]
    folded = {name.casefold(): name for name in names}
    return folded.get(text.casefold())


def did_you_mean(text: str, valid: Iterable[str]) -> str:
    """Return the clause "; did you mean 'x'?" for a message, or an empty text."""
    name = nearest_name(text, valid)
    return f"; did you mean '{name}'?" if name is not None else ""


def quoted(text: str) -> str:
    """Quote a text on one line, and cut a long one."""
    if len(text) > _LONGEST_QUOTED:
        text = f"{text[: _LONGEST_QUOTED - 3]}..."
    return repr(text)


def first_of(lines: Sequence[str], most: int = MOST_SHOWN, count: int | None = None) -> list[str]:
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
    """The problems of a file or of rows, in the sentences of a table. Only the first lines are made,
    because there may be millions."""

    table: MessageTable
    lines: list[ProblemLine] = field(default_factory=list)
    count: int = 0

    def add(self, name: str, /, *values: object, **others: object) -> None:
        """Add the problem that a sentence of the table states."""
        self.count += 1
        if len(self.lines) < MOST_SHOWN:
            self.lines.append(self.table(name, *values, **others))

    def add_all(self, error: CounterfoilError) -> None:
        """Add the problems of an error."""
        self.count += len(error.problems)
        self.lines += error.problems[: MOST_SHOWN - len(self.lines)]

    def refuse(self, hint: str | None = None) -> None:
        """Raise UserError if there are problems. hint: by default, the first advice of one."""
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
        raise type(error)(error.problems, " ".join(hints))
    kind: type[CounterfoilError] = RunFailure
    lines: list[ProblemLine] = []
    for error in errors:
        lines += error.problems
        if error.hint:
            lines[-1] = lines[-1].with_end(f" ({error.hint})")
        if isinstance(error, UserError):
            kind = UserError
    # The lines have the hints already.
    raise kind(lines, hint or "")
