"""How a command ends where it is stopped: by Ctrl-C, by a reader that leaves, without standard input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from counterfoil.cli.terminal import agreed
from counterfoil.errors import UserError

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

# Ctrl-C as a library begins to load: the command's own, and one that a command loads when it runs.
_INTERRUPTED = """
import importlib.abc, os, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["counterfoil", "recipes"]
from counterfoil.cli.entry import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize("name", ["counterfoil.cli.main", "typer", "counterfoil.cli.mine", "pydantic"])
def test_ctrl_c_while_libraries_load_is_a_line_and_an_exit_code(name: str) -> None:
    line = [sys.executable, "-c", _INTERRUPTED.format(name=name)]
    done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 130
    assert done.stderr.startswith("\nInterrupted.") and done.stderr.count("\n") == 2, done.stderr


@pytest.mark.parametrize("words", [("recipes",), ("--help",), ("recipes", "--json")])
def test_a_reader_that_leaves_ends_the_command_without_a_word(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        line = [sys.executable, "-m", "counterfoil.cli.entry", *words]
        done = subprocess.run(
            line, env=ENVIRONMENT, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=600, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("closed", [True, False])
def test_without_standard_input_a_question_says_what_to_do(
    closed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open() as empty:
        monkeypatch.setattr(sys, "stdin", None if closed else empty)
        with pytest.raises(UserError, match="no terminal") as refused:
            agreed("Go on?", "there is no terminal to ask on", "Pass -y.")
    assert refused.value.hint == "Pass -y."
