"""What a call refuses, and what a command says when it succeeds or refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from counterfoil.cli.main import app
from counterfoil.errors import UserError


def problems_of(call: Callable[..., object], *arguments: Any, **options: Any) -> tuple[str, ...]:
    """Return the problems of the `UserError` that the call raises."""
    with pytest.raises(UserError) as refused:
        call(*arguments, **options)
    return refused.value.problems


def succeed(*words: str) -> Result:
    """Run a command in this process, and return what it printed."""
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done
