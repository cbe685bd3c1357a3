"""The process of one case: prepare, wait for the word, then run each step under limits and watched,
and tell.

What is told goes through a pipe as lines of JSON, so that what was told stays where the process is
killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import counterfoil
from fuzzing import limits as limiting
from fuzzing.cases import Bench, Prepared, Step, plain, words_of
from fuzzing.limits import Limits
from fuzzing.watch import Watch

PACKAGE = f"{Path(counterfoil.__file__).parent}{os.sep}"


def live(
    bench: Bench,
    prepare: Callable[[Bench], Prepared],
    limits: Limits,
    roots: Sequence[str],
    output: Path,
    telling: int,
    go: int,
) -> None:
    """Live as the process of a case; never return. `output` is for texts and stacks; `telling`,
    `go` are pipes."""
    try:
        os.setpgid(0, 0)
        limiting.die_with_parent()
        _settle(bench.folder, output)
        prepared = prepare(bench)
        steps = [words_of(step) for step in prepared.steps]
        named = sorted(prepared.named)
        _tell(telling, prepared={"told": list(prepared.told), "steps": steps, "named": named})
        os.read(go, 1)
        raised: list[BaseException] = []
        threading.excepthook = lambda given: raised.append(given.exc_value or given.exc_type())
        watch = Watch([str(bench.folder), *roots], PACKAGE, prepared.named, paused=True)
        watch.begin()
        for number, step in enumerate(prepared.steps):
            _tell(telling, begins=number)
            printed = _printed(output)
            before = limiting.begin(limits)
            ended = _run(step, raised, watch)
            limiting.end()
            _describe(ended, step, output, printed)
            _tell(telling, ended=ended.report, outside=watch.outside, grown=limiting.grown(before))
        _tell(telling, done=True)
    except BaseException:
        _tell(telling, broken=traceback.format_exc()[-2_000:])
    os._exit(0)


def _settle(folder: Path, output: Path) -> None:
    """Set a home of its own, an empty standard input, and printed text into files."""
    home = folder / "home"
    home.mkdir()
    os.environ |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "TMPDIR": str(home)}
    os.environ.pop("COUNTERFOIL_DEBUG", None)
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(output / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    # As Python sets them up for a file: what cannot be encoded is an error in one and escaped in
    # the other.
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), "utf-8", errors, write_through=True)
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    stacks = (output / "stacks").open("w")
    faulthandler.enable(stacks, all_threads=False)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True, chain=False)
    os.set_inheritable(stacks.fileno(), False)
    globals()["_stacks"] = stacks  # must outlive the handler


@dataclass
class _Ended:
    """How a step ended."""

    error: BaseException | None
    code: int
    report: dict[str, Any]


def _run(step: Step, raised: list[BaseException], watch: Watch) -> _Ended:
    """Run a step. raised: gets exceptions that a person would see as an internal error, by a
    command or in a thread."""
    raised.clear()
    started = _now()
    code = 0
    error: BaseException | None = None
    watch.paused = False
    try:
        if step.function is not None:
            step.function()
        else:
            code = _command(step.words, raised)
    except BaseException as caught:
        error = caught
    watch.paused = True  # from here it is we who read and write
    seconds = round(_now() - started, 3)
    return _Ended(error or next(iter(raised), None), code, {"seconds": seconds})


def _now() -> float:
    """Return a clock that stops while other processes have the machine."""
    return time.monotonic() - limiting.kept_waiting()


def _describe(ended: _Ended, step: Step, output: Path, printed: int) -> None:
    """Add the exit code to the message, and the error that a person should not have seen."""
    if step.function is not None and ended.error is not None and _in_words(ended.error):
        ended.error = None
        ended.code = 1
    ended.report["code"] = ended.code
    error = ended.error
    if error is not None:
        ended.report |= {"error": _line(error), "cause": _cause(error), "memory": _is_memory(error)}
        with contextlib.suppress(Exception), (output / "stacks").open("a") as file:
            traceback.print_exception(error, file=file)
    elif ended.code and step.function is None and _printed(output) == printed:
        silent = f"exit code {ended.code} without a word"
        ended.report |= {"error": silent, "cause": silent}


def _command(words: Sequence[str], raised: list[BaseException]) -> int:
    """Run the command line as it is installed, and listen to its handler of unexpected errors."""
    from counterfoil.cli import main

    def heard(error: BaseException, shown: Any = main.show_error) -> int:
        code = shown(error)
        if not _in_words(error):
            raised.append(error)
        return code

    show, main.show_error = main.show_error, heard
    sys.argv = ["counterfoil", *words]
    try:
        main.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        main.show_error = show
    return 0


def _in_words(error: BaseException) -> bool:
    """Return whether the command line has words for an error; see `counterfoil.cli.terminal`."""
    from counterfoil.cli.terminal import MACHINE_HINTS
    from counterfoil.errors import CounterfoilError

    return isinstance(error, CounterfoilError) or (
        isinstance(error, OSError) and error.errno in MACHINE_HINTS
    )


def _is_memory(error: BaseException) -> bool:
    causes = [error, error.__cause__, error.__context__]
    return any(
        isinstance(cause, MemoryError) or "alloc" in str(cause)[:500].lower()
        for cause in causes
        if cause is not None
    )


def _line(error: BaseException) -> str:
    try:
        text = plain(str(error))
    except Exception as broken:
        text = f"(and its text cannot be had: {type(broken).__name__})"
    return f"{type(error).__name__}: {text[:160]}"


def _cause(error: BaseException) -> str:
    """Return the type, and the innermost line of the package: equal for equal causes."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGE)] or list(frames)
    if not ours:
        return type(error).__name__
    our = ours[-1]
    return f"{type(error).__name__} in {our.filename.removeprefix(PACKAGE)}:{our.lineno} {our.name}"


def _printed(output: Path) -> int:
    return sum((output / name).stat().st_size for name in ("stdout", "stderr"))


def _tell(telling: int, **what: Any) -> None:
    content = (json.dumps(what) + "\n").encode()
    while content:
        content = content[os.write(telling, content) :]
