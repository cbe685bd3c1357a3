"""How a command ends where it is stopped: by a signal, by a reader that leaves, without standard
input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import warm
from counterfoil.cli.terminal import confirmed
from counterfoil.errors import UserError
from support.images import encoded, noise
from support.tables import image_table, parquet_folder
from tiny_builds import command, published

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

# A signal as a library begins to load: the command's own, and one that a command loads when it
# runs.
_INTERRUPTED = """
import importlib.abc, os, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Interrupting())
sys.argv = ["counterfoil", "recipes"]
from counterfoil.cli.entry import main
main()
"""


# A signal where `datasets` hashes what a table is made by, and where work reports its progress for
# the second time.
_AT_WORK = """
import os, sys

def once(number):
    if not done:
        done.append(number)
        os.kill(os.getpid(), number)

done = []
if {hashing!r}:
    from datasets.fingerprint import Hasher
    update = Hasher.update
    def hashed(self, value):
        if value is sys._getframe(1).f_locals.get("transform"):
            once({number})
        return update(self, value)
    Hasher.update = hashed
else:
    from counterfoil import progress
    reported, report = [], progress.Stage.__init__
    def told(self, *given, **named):
        report(self, *given, **named)
        reported.append(self)
        if len(reported) > 1:
            once({number})
    progress.Stage.__init__ = told
sys.argv = ["counterfoil", *{words!r}]
from counterfoil.cli.entry import main
main()
"""


class Sent(NamedTuple):
    """A signal, and how a command ends by it."""

    number: int
    code: int
    says: str


SIGINT = Sent(int(signal.SIGINT), 130, "Interrupted.")
SIGTERM = Sent(int(signal.SIGTERM), 143, "Ended by SIGTERM.")
SIGNALS = [SIGINT, SIGTERM]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process that has loaded nothing."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@POSIX
@pytest.mark.parametrize(
    ("name", "signal"),
    [
        *((name, SIGINT) for name in ("counterfoil.cli.main", "typer", "counterfoil.cli.mine")),
        ("pydantic", SIGTERM),
    ],
)
def test_a_signal_while_libraries_load_is_a_line_and_an_exit_code(name: str, signal: Sent) -> None:
    done = python(_INTERRUPTED.format(name=name, number=signal.number))
    assert done.returncode == signal.code
    assert done.stderr.startswith(f"\n{signal.says}")
    assert done.stderr.count("\n") == 2, done.stderr


def stopped(words: list[str], number: int, *, hashing: bool) -> subprocess.CompletedProcess[str]:
    _, environment = command()
    source = _AT_WORK.format(words=words, number=int(number), hashing=hashing)
    return warm.run([sys.executable, "-c", source], environment)


@POSIX
@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_that_a_library_catches_is_obeyed(signal: Sent, tmp_path: Path) -> None:
    images = image_table([encoded(noise(row)) for row in range(12)], label=["cat", "dog"] * 6)
    folder = parquet_folder(tmp_path / "photos", train=images, test=images)
    words = ["init", str(folder), "--out", str(tmp_path / "r.yaml")]
    done = stopped(words, signal.number, hashing=True)
    assert done.returncode == signal.code, done.stderr
    assert signal.says in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "r.yaml").exists()


# A signal that a library makes an error of: one that ends the command, and one that verification
# would tell as damage.
_TURNED = """
import os, sys

def turned(*given, **named):
    try:
        os.kill(os.getpid(), {number})
    except KeyboardInterrupt:
        raise {error}("initialization failed") from None

import counterfoil.{module}
counterfoil.{module}.{function} = turned
sys.argv = ["counterfoil", *{words!r}]
from counterfoil.cli.entry import main
main()
"""


@POSIX
@pytest.mark.parametrize(
    ("error", "module", "function", "signal"),
    [
        ("RuntimeError", "dataset.verification", "verify", SIGINT),
        ("ValueError", "dataset.verification.verify_dataset", "read_yaml", SIGTERM),
    ],
)
def test_a_signal_that_a_library_makes_an_error_of_is_no_error_and_no_damage(
    error: str, module: str, function: str, signal: Sent, undisturbed: Path
) -> None:
    names = {"error": error, "module": module, "function": function}
    words = ["verify", str(undisturbed)]
    source = _TURNED.format(number=signal.number, words=words, **names)
    done = warm.run([sys.executable, "-c", source], command()[1])
    assert done.returncode == signal.code, done.stderr
    assert signal.says in done.stderr and "Traceback" not in done.stderr
    assert "failed" not in done.stderr and not done.stdout


_IN_AN_EXEC = """
import os, sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "typer":
            exec("os.kill(os.getpid(), {number})")

sys.meta_path.insert(0, Interrupting())
"""


@POSIX
@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_in_text_that_is_executed_has_the_same_exit_code(
    signal: Sent, tmp_path: Path
) -> None:
    """Send it as the text runs: dataclasses and named tuples are made by such texts."""
    (tmp_path / "sitecustomize.py").write_text(_IN_AN_EXEC.format(number=signal.number))
    path = f"{tmp_path}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"
    done = python("from counterfoil.cli.entry import main; main()", PYTHONPATH=path)
    assert done.returncode == signal.code and signal.says in done.stderr, done.stderr


_IN_A_CALLBACK = """
import os, sys, weakref
from counterfoil.signals import heed_signals, obey_signal, show_signal
heed_signals()
gone = set()
seen = weakref.ref(gone, lambda _: os.kill(os.getpid(), {number}))
del gone
try:
    obey_signal()
except KeyboardInterrupt:
    sys.exit(show_signal())
"""


@POSIX
@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_that_python_itself_catches_is_obeyed_without_a_traceback(signal: Sent) -> None:
    """Send it in a callback of a weak reference, where Python prints what is raised and goes on."""
    done = python(_IN_A_CALLBACK.format(number=signal.number))
    assert done.returncode == signal.code and signal.says in done.stderr
    assert "Traceback" not in done.stderr


_AT_ITS_END = """
import atexit, os, sys
atexit.register(os.kill, os.getpid(), {number})
sys.argv = ["counterfoil", "show", "wardrobe-mini"]
from counterfoil.cli.entry import main
main()
"""


@POSIX
@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_after_the_last_line_ends_the_process_without_a_word(signal: Sent) -> None:
    done = python(_AT_ITS_END.format(number=signal.number))
    assert (done.returncode, done.stderr) == (-signal.number, "")
    assert "wardrobe-mini" in done.stdout


@POSIX
def test_sigterm_ends_a_command_with_a_line_and_the_same_command_goes_on(
    undisturbed: Path, tmp_path: Path
) -> None:
    for number, words in enumerate(
        (
            ["verify", str(undisturbed)],
            ["evaluate", str(undisturbed), "--models", "lab:lcnet_035", "--out", "{out}"],
        )
    ):
        outs = [tmp_path / f"{number}-{kind}" for kind in ("stopped", "whole")]
        given, never = ([word.format(out=out) for word in words] for out in outs)
        done = stopped(given, SIGTERM.number, hashing=False)
        assert done.returncode == 143, done.stderr
        assert (
            "Ended by SIGTERM. Run the same command again" in done.stderr
            and "Traceback" not in done.stderr
        )
        line, environment = command(*given)
        assert warm.run(line, environment).returncode == 0
        if outs[0].exists():
            line, environment = command(*never)
            warm.run(line, environment, check=True)
            assert published(outs[0]) == published(outs[1])


@pytest.mark.parametrize(
    "words", [("--help",), ("show", "wardrobe-mini"), ("show", "wardrobe-mini", "--json")]
)
def test_a_reader_that_leaves_ends_the_command_without_a_word(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        line = [sys.executable, "-m", "counterfoil.cli.entry", *words]
        done = subprocess.run(
            line,
            env=ENVIRONMENT,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=600,
            check=False,
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
            confirmed("Go on?", "there is no terminal to ask on", "Pass -y.")
    assert refused.value.hint == "Pass -y."


_LIMITED = """
import resource, sys
resource.setrlimit({limit}, ({most}, {most}))
sys.argv = ["counterfoil", *{words!r}]
from counterfoil.cli.entry import main
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of processes")
@pytest.mark.parametrize(
    ("limit", "most", "words", "says"),
    [
        (
            "resource.RLIMIT_NOFILE",
            16,
            ["recipes"],
            "a limit allows this process 16 open files (ulimit -n)",
        ),
        (
            "resource.RLIMIT_AS",
            1 << 29,
            ["recipes"],
            "a limit allows this process 536,870,912 bytes of address space",
        ),
        # torch's libraries alone need more.
        (
            "resource.RLIMIT_AS",
            3 << 29,
            ["build", "wardrobe-mini", "--out", "out"],
            "limit of 1.6 GB (ulimit -v)",
        ),
    ],
)
def test_a_limit_that_is_too_low_is_named(
    limit: str, most: int, words: list[str], says: str, tmp_path: Path
) -> None:
    line = [sys.executable, "-c", _LIMITED.format(limit=limit, most=most, words=words)]
    done = subprocess.run(
        line,
        env=ENVIRONMENT,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1 and says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
