"""Models that answer on an engine's workers, or on the actors of a Ray cluster, answer as they do
in this process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import process
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colour_world import save_colour_model
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.engines import EngineChoice, engine_for
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.prediction.asking import Placement
from counterfoil.prediction.embedding import clip_embedder, embed
from counterfoil.progress import Stage, listening
from counterfoil.recipe import load_recipe
from support.measured import measured
from support.refusals import succeed


@pytest.fixture(scope="module")
def address() -> Iterator[Any]:
    if sys.platform == "win32":
        pytest.skip("needs POSIX signals")
    from ray_clusters import running_cluster

    with running_cluster(1) as cluster:
        yield cluster.address


def answers(folder: Path) -> bytes:
    return (folder / "predictions.parquet").read_bytes()


def forget(dataset: Path) -> None:
    for path in (dataset / ".counterfoil" / "predictions").glob("*.parquet"):
        path.unlink()


def test_two_workers_give_the_answers_of_this_process(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    # A model with another output, which answers in both ways.
    larger = f"local-dir:{save_colour_model(tmp_path / 'larger', size=48, outputs=4, labels=True)}"
    names = [models["sharp"], models["no_red"], larger]
    forget(dataset)
    local = measured(dataset, names, batch_size=3)
    forget(dataset)
    on_workers = measured(dataset, names, batch_size=3, workers=2)
    assert local.task is not None and on_workers.task is not None
    assert on_workers.scores == local.scores
    assert on_workers.task.predictions(None) == local.task.predictions(None)
    assert on_workers.results.rows == local.results.rows
    assert local.number("accuracy_class_outputs", model=larger, group="swap") is not None


def test_a_function_of_this_process_answers_here_beside_models_of_the_workers(
    dataset: Path,
    models: dict[str, str],
) -> None:
    processes: list[int] = []

    def mine(batch: np.ndarray) -> np.ndarray:
        processes.append(os.getpid())
        return batch.mean(axis=(2, 3))

    forget(dataset)
    result = measured(dataset, {"mine": mine, "theirs": models["sharp"]}, workers=2)
    assert {model.name for model in result.models} == {"mine", "theirs"}
    assert set(processes) == {os.getpid()}


def test_a_model_that_is_another_one_elsewhere_is_refused(
    dataset: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    from counterfoil.models.classifiers import load_classifier

    monkeypatch.setattr(  # the driver loads another model than a worker at the same path
        "counterfoil.evaluation.scored_models.load_classifier",
        lambda name, **options: dataclasses.replace(
            load_classifier(name, **options), sha256="0" * 64
        ),
    )
    with pytest.raises(
        RunFailure, match="has other weights on a worker than where the run started"
    ):
        measured(dataset, [models["no_blue"]], workers=2)


def test_a_number_of_workers_that_is_none_is_refused(dataset: Path, models: dict[str, str]) -> None:
    with pytest.raises(UserError, match="workers is 0"):
        evaluate(dataset, [models["sharp"]], device="cpu", workers=0)


def test_features_are_those_of_this_process(tmp_path: Path) -> None:
    recipe = load_recipe("wardrobe-mini")
    images = labelled_split(recipe.source, "validation", recipe.classes[:1], None, units=False)
    embedder = clip_embedder(load_clip("lab:clip"), pin_clip("lab:clip", None))
    local = embed(images, embedder, tmp_path / "here", batch_size=16)
    engine = engine_for(("cpu",), 2)
    on_workers = embed(
        images, embedder, tmp_path / "there", batch_size=16, placement=Placement(engine, "cpu")
    )
    assert len(local) > 8 * 16, "more than one stretch"
    np.testing.assert_array_equal(np.asarray(local), np.asarray(on_workers))
    files = {
        folder: [path.name for path in (tmp_path / folder).iterdir()]
        for folder in ("here", "there")
    }
    assert files["here"] == files["there"], (
        "found again by whoever comes next, wherever it was computed"
    )


def lost_when_one_is_killed(work: Callable[[], object]) -> list[str]:
    """Return what is reported of a worker that is killed before its first rows.

    A worker that is killed later may have answered already, so that nothing is lost.
    """
    killed = threading.Event()
    over = threading.Event()
    heard: list[Stage] = []
    started: Any = process
    before = set(started._children)

    def kill() -> None:
        while not over.wait(0.001):
            # Only started workers: a worker that is killed during its start is restarted, and
            # nothing is lost.
            for worker in set(started._children) - before:
                worker.kill()
                killed.set()
                return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with listening(heard.append):
            work()
    finally:
        over.set()
        killer.join()
    assert killed.is_set()
    return [stage.lost for stage in heard if stage.lost]


def test_workers_that_are_lost_are_reported(dataset: Path, models: dict[str, str]) -> None:
    forget(dataset)
    lost = lost_when_one_is_killed(
        lambda: measured(dataset, [models["sharp"]], batch_size=2, workers=2)
    )
    assert len(lost) == 1
    assert "was ended by SIGKILL; " in lost[0] and "another worker restarts rows " in lost[0]


def test_workers_that_are_lost_while_they_embed_are_reported(tmp_path: Path) -> None:
    recipe = load_recipe("wardrobe-mini")
    images = labelled_split(recipe.source, "validation", recipe.classes[:1], None, units=False)
    embedder = clip_embedder(load_clip("lab:clip"), pin_clip("lab:clip", None))
    engine = engine_for(("cpu",), 2)
    lost = lost_when_one_is_killed(
        lambda: embed(images, embedder, tmp_path, batch_size=16, placement=Placement(engine, "cpu"))
    )
    assert len(lost) == 1


@pytest.mark.whole
def test_a_cluster_gives_the_answers_of_this_process(
    address: str, dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    names = [models["sharp"], models["no_red"]]
    forget(dataset)
    evaluate(dataset, names, device="cpu", batch_size=3, out=tmp_path / "here")
    forget(dataset)
    words = [
        "--out",
        str(tmp_path / "there"),
        "--batch-size",
        "3",
        "--engine",
        "ray",
        "--address",
        address,
    ]
    succeed("evaluate", str(dataset), "--models", *names, *words)
    assert answers(tmp_path / "there") == answers(tmp_path / "here")


@pytest.mark.whole
def test_devices_are_those_of_the_cluster(
    address: str, dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    forget(dataset)
    with pytest.raises(UserError, match=f"the Ray cluster at {address} has no GPU"):
        evaluate(
            dataset,
            [models["sharp"]],
            device="cuda",
            out=tmp_path / "out",
            engine=EngineChoice("ray", address),
        )


def test_this_machine_is_not_asked_for_devices_of_a_cluster(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"address 127\.0\.0\.1:1: no Ray cluster answers there"):
        choice = EngineChoice("ray", "127.0.0.1:1")
        evaluate(dataset, [models["sharp"]], device="cuda", out=tmp_path / "out", engine=choice)
