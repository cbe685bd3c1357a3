"""Errors written for people: what is wrong, where, what was expected, what to do.

The command line prints them without a traceback and exits with `exit_code`:
2 for a user's mistake, 1 for a failure of the run.
"""

from __future__ import annotations

from collections.abc import Sequence


class CounterfoilError(Exception):
    """A problem, or several collected ones, that a person can act on.

    `problems` holds one line of text for each; `hint` says what to do next.
    """

    exit_code = 1

    def __init__(self, problems: str | Sequence[str], hint: str | None = None) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        self.hint = hint
        super().__init__("\n".join(self.problems) + (f"\n{hint}" if hint else ""))

    def __reduce__(self):
        # Errors cross process borders (workers report to the build), so they must pickle whole.
        return (type(self), (self.problems, self.hint))


class UserError(CounterfoilError):
    """The user's input cannot be used as given: recipe, option, path, name."""

    exit_code = 2


class RunFailure(CounterfoilError):
    """The input was right but the run could not go on: disk full, model missing a file, worker died."""

    exit_code = 1
