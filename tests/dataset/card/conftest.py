"""Fixtures of the card's tests: finished datasets of both formats, made once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from card_cases import Built, Offline, build, plan_of

import warm


def built_in(folder: Path, format: str) -> Built:
    plan = plan_of(f"output.format={format}")
    return Built(folder / "cranes", plan, build(folder / "cranes", plan))


@pytest.fixture(scope="session")
def cranes(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Return a dataset of Parquet files. Read only."""
    return built_in(tmp_path_factory.mktemp("parquet"), "parquet")


@pytest.fixture(scope="session")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Return the same dataset in tar files. Read only."""
    return built_in(tmp_path_factory.mktemp("webdataset"), "webdataset")


@pytest.fixture(scope="session", params=["cranes", "tars"])
def built(request: pytest.FixtureRequest) -> Built:
    """Return the dataset in each format. Read only."""
    return request.getfixturevalue(request.param)


# Each piece of code has names of its own and leaves an `answer`.
_RUNNER = """
import json, sys
def answer_of(code):
    names = {}
    exec(code, names)
    return names["answer"]
print(json.dumps([answer_of(code) for code in json.load(sys.stdin)]))
"""


@pytest.fixture(scope="session")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Offline:
    """Return a function that runs pieces of Python in one offline process and returns the answer of
    each.

    One process for several pieces, since it takes seconds to import what they test.
    """

    def run(codes: Sequence[str], folder: Path) -> list[Any]:
        home = str(tmp_path_factory.mktemp("hub"))
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": home, "OMP_NUM_THREADS": "1"}
        done = warm.run(
            [sys.executable, "-c", _RUNNER], environment, cwd=folder, input=json.dumps(codes)
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
