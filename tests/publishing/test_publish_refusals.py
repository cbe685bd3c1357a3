"""What cannot be published is refused before anything is sent, in words for people, and without the token."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from publishing_cases import REPO, Publisher, call, contents, published, with_package

import warm
from loopback_hub import LoopbackHub, client, client_environment

Start = Callable[..., Publisher]


def changing(hub: LoopbackHub) -> list[str]:
    """The requests that change something, made or not."""
    harmless = ("/api/validate-yaml",)
    return [str(one) for one in hub.requests if one.method not in ("GET", "HEAD") and one.path not in harmless]


@pytest.mark.parametrize(
    ("token", "words"), [("hf_wrong_token_of_nobody", "hf auth login"), ("", "hf auth login")], ids=["wrong", "none"]
)
def test_without_a_valid_token(
    loopback: LoopbackHub, first: Path, start_publisher: Start, token: str, words: str
) -> None:
    refused = start_publisher(loopback, token=token).ask(call(first))
    assert refused["exit_code"] == 2
    assert words in refused["hint"]
    assert "hf_wrong" not in str(refused)
    assert not changing(loopback)


def test_a_token_that_only_reads(loopback: LoopbackHub, first: Path, start_publisher: Start) -> None:
    refused = start_publisher(loopback, token=loopback.read_token).ask(call(first))
    assert (refused["exit_code"], refused["kind"]) == (2, "UserError")
    assert "not allowed" in refused["error"][0]
    assert loopback.read_token not in str(refused)


def test_the_name_of_somebody_else(loopback: LoopbackHub, first: Path, start_publisher: Start) -> None:
    refused = start_publisher(loopback).ask(call(first, "another/garments"))
    assert refused["exit_code"] == 2
    assert "organisation" in refused["hint"]


@pytest.mark.parametrize("repo", ["cranes", "a/b/c", "../x/y", "someone/cra nes", "someone/", "a/b--c", "a/b.git"])
def test_a_name_that_is_none(loopback: LoopbackHub, first: Path, start_publisher: Start, repo: str) -> None:
    refused = start_publisher(loopback).ask(call(first, repo))
    assert refused["exit_code"] == 2
    assert not loopback.requests


def test_without_a_name_the_recipe_must_have_one(loopback: LoopbackHub, first: Path, start_publisher: Start) -> None:
    assert "publish.repo" in start_publisher(loopback).ask(call(first, None))["error"][0]


def test_a_tag_that_names_another_version(
    loopback: LoopbackHub, first: Path, second: Path, start_publisher: Start
) -> None:
    process = start_publisher(loopback)
    process.publish(call(first, tag="v1"))
    before = changing(loopback)
    refused = process.ask(call(second, tag="v1"))
    assert refused["exit_code"] == 2
    assert "tag 'v1'" in refused["error"][0]
    assert changing(loopback) == before


def test_a_repository_of_something_else_is_not_emptied(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    api = client(loopback)
    api.create_repo(REPO, repo_type="dataset", private=True)
    api.upload_file(path_or_fileobj=b"1,2", path_in_repo="data/mine.csv", repo_id=REPO, repo_type="dataset")
    before = loopback.branch(REPO)
    refused = start_publisher(loopback).ask(call(first))
    assert refused["exit_code"] == 2
    assert "data/mine.csv" in refused["error"][0]
    assert loopback.branch(REPO) == before


def test_another_dataset_keeps_its_card(loopback: LoopbackHub, first: Path, start_publisher: Start) -> None:
    api = client(loopback)
    api.create_repo(REPO, repo_type="dataset", private=True)
    for path in ("README.md", "train.parquet"):
        api.upload_file(path_or_fileobj=b"mine", path_in_repo=path, repo_id=REPO, repo_type="dataset")
    before = loopback.branch(REPO)
    assert start_publisher(loopback).ask(call(first))["exit_code"] == 2
    assert loopback.branch(REPO) == before


@pytest.mark.parametrize("files_per_commit", [100, 12])
def test_a_gitignore_there_leaves_nothing_out_unsaid(
    loopback: LoopbackHub, first: Path, second: Path, start_publisher: Start, files_per_commit: int
) -> None:
    process = start_publisher(loopback)
    process.publish(call(first))
    api = client(loopback)
    api.upload_file(path_or_fileobj=b"receipts/\n", path_in_repo=".gitignore", repo_id=REPO, repo_type="dataset")
    before = published(loopback)
    refused = process.ask(call(second, files_per_commit=files_per_commit))
    assert refused["exit_code"] == 2
    assert ".gitignore" in refused["error"][0]
    assert published(loopback) == before


def test_private_is_not_said_of_a_public_repository(loopback: LoopbackHub, first: Path, start_publisher: Start) -> None:
    process = start_publisher(loopback)
    process.publish(call(first, public=True))
    before = changing(loopback)
    assert "is public" in process.ask(call(first, public=False))["error"][0]
    assert changing(loopback) == before


def test_a_full_storage_ends_it_at_once(
    start_loopback: Callable[..., LoopbackHub], first: Path, start_publisher: Start
) -> None:
    hub = start_loopback(storage_quota=10_000)
    refused = start_publisher(hub).ask(call(first))
    assert (refused["exit_code"], refused["kind"]) == (1, "RunFailure")
    assert "storage quota" in refused["error"][0]
    assert refused["told"] == []
    assert published(hub) == {}


def test_a_damaged_directory_is_not_sent(
    loopback: LoopbackHub, first: Path, start_publisher: Start, tmp_path: Path
) -> None:
    directory = tmp_path / "cranes"
    shutil.copytree(first, directory)
    file = min((directory / "data" / "base").iterdir())
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    refused = start_publisher(loopback).ask(call(directory))
    assert refused["exit_code"] == 1
    assert any(file.name in line for line in refused["error"])
    assert "counterfoil build --from" in refused["hint"]
    assert not loopback.requests


@pytest.mark.parametrize("made", ["missing", "empty", "file"])
def test_a_directory_that_is_no_dataset(
    loopback: LoopbackHub, start_publisher: Start, tmp_path: Path, made: str
) -> None:
    place = tmp_path / "place"
    if made == "empty":
        place.mkdir()
    elif made == "file":
        place.write_text("x")
    refused = start_publisher(loopback).ask(call(place))
    assert refused["exit_code"] == 2
    assert not loopback.requests


def test_options_that_do_not_go_together(loopback: LoopbackHub, first: Path, start_publisher: Start) -> None:
    process = start_publisher(loopback)
    options: list[dict[str, Any]] = [
        {"tag": "v1", "create_pr": True},
        {"create_pr": True, "revision": "next"},
        {"files_per_commit": 0},
        {"tag": "v 1"},
        {"revision": "../main"},
    ]
    for option in options:
        assert process.ask(call(first, **option))["exit_code"] == 2
    assert not changing(loopback)


def run_command(hub: LoopbackHub, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = with_package(client_environment(hub, home, sleep_scale=0.01))
    line = [sys.executable, "-m", "counterfoil.cli.main", "publish", *words]
    return warm.run(line, environment)


def test_the_command_asks_unless_told_not_to(loopback: LoopbackHub, first: Path, tmp_path: Path) -> None:
    asked = run_command(loopback, tmp_path / "home", str(first), REPO)
    assert asked.returncode == 2
    assert "Pass -y" in asked.stderr
    assert not changing(loopback)
    done = run_command(loopback, tmp_path / "home", str(first), REPO, "-y", "--tag", "v1", "--json")
    assert done.returncode == 0, done.stderr
    assert '"tag": "v1"' in done.stdout
    assert published(loopback) == contents(first)
    for text in (asked.stderr, done.stdout, done.stderr):
        assert loopback.token not in text
    held = [path for path in first.rglob("*") if path.is_file() and loopback.token.encode() in path.read_bytes()]
    assert held == []
