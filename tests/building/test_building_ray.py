"""Builds on Ray clusters: the bytes of a build here, whatever is lost, killed or interrupted, and
wherever made."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from counterfoil.progress import listening

if sys.platform == "win32":
    pytest.skip("needs POSIX signals", allow_module_level=True)

from test_building_resume import PATIENCE, shards_done, wait_for

import warm
from counterfoil.building.build_dataset import BuildProgress
from counterfoil.engines import EngineChoice
from counterfoil.errors import UserError
from counterfoil.generate.tokens.learn_tokens import learn_tokens
from counterfoil.models.stack import RENDERING_VERSION
from counterfoil.recipe import load_recipe
from counterfoil.store.reading import read_receipts
from ray_clusters import actors, running_cluster
from tiny_builds import SHARDS, build_arguments, command, published, tiny

IMAGES = 24
OTHER_VERSION = "0.0.9"


@dataclass(frozen=True)
class Clusters:
    """A cluster, and a folder of which no process of a node sees anything."""

    cluster: Any
    unseen: Path

    def choice(self, collect: bool = False) -> EngineChoice:
        return EngineChoice("ray", self.cluster.address, collect)


@pytest.fixture
def one_node(tmp_path: Path) -> Iterator[Clusters]:
    with running_cluster(1, UNSEEN=str(tmp_path / "unseen")) as cluster:
        (tmp_path / "unseen").mkdir()
        yield Clusters(cluster, tmp_path / "unseen")


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    unseen = tmp_path_factory.mktemp("unseen")
    with running_cluster(3, UNSEEN=str(unseen)) as cluster:
        yield Clusters(cluster, unseen)


def tried(clusters: Clusters) -> bool:
    return clusters.unseen.with_name(f"{clusters.unseen.name}.tried").exists()


@pytest.mark.whole
def test_what_one_actor_makes_comes_back_where_no_folder_is_shared(
    one_node: Clusters, undisturbed: Path
) -> None:
    out = one_node.unseen / "dataset"
    reports: list[BuildProgress] = []
    with pytest.raises(UserError) as refused:
        tiny(out, workers=1, engine=one_node.choice())
    assert f"{out} is a different folder on" in refused.value.problems[0]
    assert "--collect" in (refused.value.hint or "")
    assert shards_done(out) == 0
    assert tried(one_node)
    one_node.unseen.with_name(f"{one_node.unseen.name}.tried").unlink()

    def hear(progress: object) -> None:
        if isinstance(progress, BuildProgress):
            reports.append(progress)
            assert shards_done(out) >= progress.shards_done

    with listening(hear):
        tiny(out, workers=1, engine=one_node.choice(collect=True))
    assert not tried(one_node)
    assert published(out) == published(undisturbed)
    assert [report.images_done for report in reports] == sorted(
        report.images_done for report in reports
    )
    assert (reports[-1].images_done, reports[-1].shards_done) == (IMAGES, SHARDS)
    assert not list(out.rglob("*.tmp"))


@pytest.mark.whole
def test_class_tokens_come_back_likewise(three_nodes: Clusters, tmp_path: Path) -> None:
    learn = (
        "tokens={path: null, learn: {steps: 2, batch_size: 1, learning_rate: 1.0e-2,"
        " classes_in_flight: 2}}"
    )
    sandal = "source.classes=[{id: '05', name: sandal, source_label: 5}]"
    recipe = load_recipe("wardrobe-mini", [sandal, learn])
    out = three_nodes.unseen / "tokens"
    with pytest.raises(UserError, match="is a different folder on"):
        learn_tokens(recipe, out, device="cpu", workers=1, engine=three_nodes.choice())
    result = learn_tokens(
        recipe, out, device="cpu", workers=1, engine=three_nodes.choice(collect=True)
    )
    assert set(result.losses) == {"05"}
    learn_tokens(recipe, tmp_path / "here", device="cpu", workers=1)
    assert published(out) == published(tmp_path / "here")


def ended(before: set[int]) -> None:
    wait_for(lambda: not before & actors())


@pytest.mark.whole
def test_killed_and_interrupted_it_goes_on_to_the_same_bytes(
    three_nodes: Clusters, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "dataset"
    engine = ["--engine", "ray", "--address", three_nodes.cluster.address, "--json"]
    words, environment = command(*build_arguments(out, workers=2), *engine)
    with warm.start(words, environment, start_new_session=True) as process:
        wait_for(lambda: shards_done(out) >= 1, process)
        running = actors()
        assert running
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    ended(running)
    done = shards_done(out)
    assert 1 <= done < SHARDS
    assert not (out / "manifest.json").exists()
    with warm.start(words, environment, start_new_session=True) as process:
        wait_for(lambda: (out / ".counterfoil" / "lock.pid").exists() and bool(actors()), process)
        running = actors()
        os.killpg(process.pid, signal.SIGINT)
        output, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert output == ""
    assert "Traceback" not in err
    assert "Run the same command again" in err
    ended(running)
    assert shards_done(out) >= done
    left = SHARDS - shards_done(out)
    assert tiny(out, workers=1, engine=three_nodes.choice()).shards_made == left
    assert published(out) == published(undisturbed)
    assert not list(out.rglob("*.tmp"))


@pytest.mark.whole
def test_three_nodes_make_the_same_bytes_though_one_is_lost(
    three_nodes: Clusters, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "dataset"
    node = max(three_nodes.cluster.worker_nodes, key=lambda node: node.unique_id)
    reports: list[BuildProgress] = []

    def hear(progress: object) -> None:
        nonlocal node
        if isinstance(progress, BuildProgress):
            reports.append(progress)
            if node is not None and progress.images_done:
                three_nodes.cluster.remove_node(node, allow_graceful=False)
                node = None

    with listening(hear):
        tiny(out, engine=three_nodes.choice(), workers=3)
    assert node is None
    assert published(out) == published(undisturbed)
    assert (reports[-1].images_done, reports[-1].shards_done) == (IMAGES, SHARDS)
    assert not list(out.rglob("*.tmp"))


@pytest.mark.whole
def test_an_actor_of_another_stack_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "dataset"
    with running_cluster(1) as cluster:
        monkeypatch.setenv("VERSION", OTHER_VERSION)
        cluster.add_node(num_cpus=1)
        with pytest.raises(UserError) as refused:
            tiny(out, workers=2, engine=EngineChoice("ray", cluster.address))
    assert "was rendered by another stack" in refused.value.problems[0]
    assert any(
        "versions.counterfoil" in line and OTHER_VERSION in line for line in refused.value.problems
    )
    assert "--allow-mixed" in (refused.value.hint or "")
    # The refusal may come before the first shard.
    assert {receipt.stack["versions"]["counterfoil"] for receipt in read_receipts(out)} <= {
        RENDERING_VERSION
    }
