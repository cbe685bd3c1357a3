"""What all tests share: a Hub on this machine, and hypothesis without a clock, since busy machines
run these."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging.handlers
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Read where the Hub's client is imported; the loopback Hub keeps whole blobs, and there is no other
# in the tests.
os.environ["HF_HUB_DISABLE_XET"] = "1"

# The tests of one process share a cache; it is not kept.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="counterfoil-tests-")

from browser import chromium, open_page  # noqa: F401
from counterfoil.engines.processes import begin_server
from loopback_hub.fixtures import loopback, quick_sleeps, start_loopback  # noqa: F401
from release_tests import group_of
from shared_datasets import beside_base, half_threshold, once_a_run, screened, undisturbed  # noqa: F401
from support.code_facts import code_facts  # noqa: F401
from tiny_builds import HEAVY

# From so many tests on, a run is worth a server.
_MANY = 500

_settled = 0  # modules there were when garbage was last collected

atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# test_whole.sh asks for more examples, which nothing has to be quick for.
settings.register_profile(
    "unhurried",
    max_examples=int(os.environ.get("COUNTERFOIL_EXAMPLES", "15")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")

# What libraries log is no output of ours. Without any handler, Python prints it.
logging.getLogger().addHandler(logging.NullHandler())

# In the background, a shell makes its children ignore Ctrl-C, and so would the commands that the
# tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import this process's share of the test files before all the others.

    In a fresh clone, pytest rewrites the assertions of every file, a minute of work, and keeps what
    it wrote. Processes that go through all files side by side would each do all of that work.
    """
    gc.disable()  # until all is collected, for what is made there stays
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    folders = [Path(argument) for argument in session.config.args]
    if processes == 1 or not all(map(Path.is_dir, folders)):
        return
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    files = sorted(path for folder in folders for path in folder.rglob("test_*.py"))
    for path in files[number::processes]:
        # What is wrong with a file is reported when it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            _ = pytest.Module.from_parent(session, path=path).obj


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that protect a release. Tests that take minutes come first, or one process
    would end late."""
    items.sort(key=lambda item: item.path.name != "test_write_tables.py")
    for item in items:
        if group := group_of(item.path, getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.release(of=group))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Freeze libraries once loaded, so that garbage collection skips their million objects."""
    global _settled
    if len(sys.modules) > _settled + 300:
        gc.collect()
        gc.freeze()
        _settled = len(sys.modules)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin the server of workers before a long run: a test could change the environment that it
    begins in."""
    gc.enable()
    gc.collect()
    gc.freeze()
    if len(session.items) > _MANY and not session.config.option.collectonly:
        begin_server(HEAVY, "cpu")


@pytest.fixture
def log_records() -> Iterator[list[logging.LogRecord]]:
    """Yield what is logged during the test, also by loggers that tell the root logger nothing."""
    handler = logging.handlers.BufferingHandler(capacity=1_000)
    known = [*logging.root.manager.loggerDict.values()]
    loggers = [each for each in known if isinstance(each, logging.Logger) and not each.propagate]
    for logger in (logging.root, *loggers):
        logger.addHandler(handler)
    yield handler.buffer
    for logger in (logging.root, *loggers):
        logger.removeHandler(handler)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system with 128 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting needs privileges")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
