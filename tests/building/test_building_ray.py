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
from ray_clusters import actors, running_cluster
from tiny_builds import SHARDS, build_arguments, command, published, tiny

IMAGES = 24


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
