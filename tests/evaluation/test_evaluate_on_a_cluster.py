"""Models that answer on the actors of a Ray cluster answer as they do in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

if sys.platform == "win32":
    pytest.skip("needs POSIX signals", allow_module_level=True)

from counterfoil.cli.main import app
from counterfoil.engines import EngineChoice
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from ray_clusters import running_cluster


@pytest.fixture(scope="module")
def address() -> Iterator[Any]:
    with running_cluster(1) as cluster:
        yield cluster.address


def answers(folder: Path) -> bytes:
    return (folder / "predictions.parquet").read_bytes()


def forget(dataset: Path) -> None:
    for path in (dataset / ".counterfoil" / "predictions").glob("*.parquet"):
        path.unlink()


@pytest.mark.whole
def test_a_cluster_gives_the_answers_of_this_process(
    address: str, dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    names = [models["sharp"], models["no_red"]]
    forget(dataset)
    evaluate(dataset, names, device="cpu", batch_size=3, out=tmp_path / "here")
    forget(dataset)
    words = ["--out", str(tmp_path / "there"), "--batch-size", "3", "--engine", "ray", "--address", address]
    result = CliRunner().invoke(app, ["evaluate", str(dataset), "--models", *names, *words])
    assert result.exit_code == 0, result.output
    assert answers(tmp_path / "there") == answers(tmp_path / "here")


@pytest.mark.whole
def test_devices_are_those_of_the_cluster(address: str, dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    forget(dataset)
    with pytest.raises(UserError, match=f"the Ray cluster at {address} has no GPU"):
        evaluate(dataset, [models["sharp"]], device="cuda", out=tmp_path / "out", engine=EngineChoice("ray", address))


def test_this_machine_is_not_asked_for_devices_of_a_cluster(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"address 127\.0\.0\.1:1: no Ray cluster answers there"):
        choice = EngineChoice("ray", "127.0.0.1:1")
        evaluate(dataset, [models["sharp"]], device="cuda", out=tmp_path / "out", engine=choice)
