"""What a call refuses, and what a command says when it succeeds or refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from counterfoil.cli.main import app
from counterfoil.errors import CounterfoilError, ProblemLine, UserError


def states(error: CounterfoilError, code: str, path: object = None, *words: str) -> bool:
    """Return whether a problem of an error has this code, is about this key or file, and says these
    words: what was found, a near name."""
    for problem in error.problems:
        is_here = path is None or problem.path == str(path)
        if problem.code == code and is_here and all(word in problem for word in words):
            return True
    return False


@contextmanager
def refuses(
    code: str, path: object = None, *words: str, kind: type[CounterfoilError] = UserError
) -> Iterator[pytest.ExceptionInfo[CounterfoilError]]:
    """Check that the block is refused, for a problem of this code about this key or file."""
    with pytest.raises(kind) as caught:
        yield caught
    assert states(caught.value, code, path, *words), caught.value.problems


def problems_of(
    call: Callable[..., object], *arguments: Any, **options: Any
) -> tuple[ProblemLine, ...]:
    """Return the problems of the `UserError` that the call raises."""
    with pytest.raises(UserError) as refused:
        call(*arguments, **options)
    return refused.value.problems


def succeed(*words: str) -> Result:
    """Run a command in this process, and return what it printed."""
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done
