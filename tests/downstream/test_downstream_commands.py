"""A dataset on the Hub is verified, made again and evaluated by name, and no command shows the
token."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from downstream_cases import FORMATS, REPOS, TAG
from huggingface_hub import CommitOperationAdd

from loopback_hub import LoopbackHub, client
from tiny_builds import published

DAMAGED = "damaged"
KINDS = ("data/", "candidates/", "rejected/", "receipts/", "figures/", "README.md", "recipe.yaml")
MODEL = "lab:resnet10t"

Command = Callable[..., subprocess.CompletedProcess[str]]


def flipped(content: bytes) -> bytes:
    """Flip one bit in the last quarter: the front of a card is YAML, which the Hub would refuse."""
    position = 3 * len(content) // 4
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.fixture(scope="module")
def damaged(hub: LoopbackHub) -> dict[str, set[str]]:
    """Return format → the files in which the Hub's branch "damaged" has another bit than the main
    one."""
    api = client(hub)
    damaged_paths = {}
    for format, repo in REPOS.items():
        files = hub.branch(repo)
        chosen = {next(path for path in files if path.startswith(kind)) for kind in KINDS}
        api.create_branch(repo, branch=DAMAGED, repo_type="dataset")
        additions = [CommitOperationAdd(path, flipped(files[path])) for path in sorted(chosen)]
        api.create_commit(
            repo, additions, commit_message="Flip", repo_type="dataset", revision=DAMAGED
        )
        damaged_paths[format] = chosen
    return damaged_paths


@pytest.mark.parametrize(("format", "revision"), [("parquet", ""), ("webdataset", f"@{TAG}")])
def test_a_published_dataset_is_whole(revision: str, format: str, run_published: Command) -> None:
    done = run_published("verify", REPOS[format] + revision)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{REPOS[format]}{revision} is complete and undamaged" in done.stdout


@pytest.mark.parametrize("format", FORMATS)
def test_a_flipped_byte_on_the_hub_is_named(
    format: str, damaged: dict[str, set[str]], run_published: Command
) -> None:
    done = run_published("verify", f"{REPOS[format]}@{DAMAGED}", "--json")
    assert done.returncode == 1, done.stderr
    problems = json.loads(done.stdout)["problems"]
    changed = {
        problem["path"] for problem in problems if problem["what"].startswith("is changed: sha256")
    }
    assert changed == {problem["path"] for problem in problems} == damaged[format]
    assert len(damaged[format]) == len(KINDS)


@pytest.mark.parametrize("format", ["parquet", pytest.param("webdataset", marks=pytest.mark.whole)])
def test_a_published_dataset_is_made_again_to_the_byte(
    format: str, run_published: Command, datasets: dict[str, Path], tmp_path: Path
) -> None:
    again = tmp_path / "again"
    options = ("--device", "cpu", "--workers", "1")
    done = run_published("build", "--from", f"{REPOS[format]}@{TAG}", "--out", str(again), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert published(again) == published(datasets[format])


@pytest.mark.parametrize("format", ["webdataset", pytest.param("parquet", marks=pytest.mark.whole)])
def test_a_published_dataset_is_evaluated_by_name_as_the_folder_is(
    format: str, run_published: Command, datasets: dict[str, Path], tmp_path: Path
) -> None:
    from counterfoil.evaluation import evaluate

    done = run_published(
        "evaluate", REPOS[format], "--models", MODEL, "--json", "--out", str(tmp_path / "report")
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    local = evaluate(datasets[format], [MODEL], out=tmp_path / "here", device="cpu").to_json()
    assert report["groups"] == json.loads(json.dumps(local))["groups"]
    assert report["rows"] == json.loads(json.dumps(local))["rows"]
    assert any(row["measure"] == "drop" and row["value"] for row in report["rows"])
