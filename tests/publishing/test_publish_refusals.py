"""What is not published: options, names, links, repositories of something else."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml
from publishing_cases import (
    REPO,
    Publisher,
    add_by_hand,
    call,
    changing,
    contents,
    published,
    with_package,
)

import warm
from counterfoil.documents import document_bytes
from counterfoil.recipe import load_own_recipe
from counterfoil.store.layout import INDEX
from counterfoil.store.manifest import Entry, hash_files, manifest_document
from loopback_hub import LoopbackHub, client, client_environment

Start = Callable[..., Publisher]


@pytest.mark.parametrize(
    ("token", "words"),
    [("hf_wrong_token_of_nobody", "hf auth login"), ("", "hf auth login")],
    ids=["wrong", "none"],
)
def test_without_a_valid_token(
    loopback: LoopbackHub, first: Path, start_publisher: Start, token: str, words: str
) -> None:
    refused = start_publisher(loopback, token=token).ask(call(first))
    assert refused["exit_code"] == 2
    assert words in refused["hint"]
    assert "hf_wrong" not in str(refused)
    assert not changing(loopback)


def test_a_token_that_only_reads(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    refused = start_publisher(loopback, token=loopback.read_token).ask(call(first))
    assert (refused["exit_code"], refused["kind"]) == (2, "UserError")
    assert "not allowed" in refused["error"][0]
    assert loopback.read_token not in str(refused)


def test_the_name_of_somebody_else(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    refused = start_publisher(loopback).ask(call(first, "another/garments"))
    assert refused["exit_code"] == 2
    assert "organisation" in refused["hint"]


@pytest.mark.parametrize(
    "repo", ["cranes", "a/b/c", "../x/y", "someone/cra nes", "someone/", "a/b--c", "a/b.git"]
)
def test_a_name_that_is_none(
    loopback: LoopbackHub, first: Path, start_publisher: Start, repo: str
) -> None:
    refused = start_publisher(loopback).ask(call(first, repo))
    assert refused["exit_code"] == 2
    assert not loopback.requests


def test_without_a_name_the_recipe_must_have_one(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    assert "publish.repo" in start_publisher(loopback).ask(call(first, None))["error"][0]


def test_a_tag_that_names_another_version(
    hub_of_first: LoopbackHub, second: Path, start_publisher: Start
) -> None:
    client(hub_of_first).create_tag(REPO, tag="v1", repo_type="dataset")
    before = changing(hub_of_first)
    refused = start_publisher(hub_of_first).ask(call(second, tag="v1"))
    assert refused["exit_code"] == 2
    assert "tag 'v1'" in refused["error"][0]
    assert changing(hub_of_first) == before


def test_a_repository_of_something_else_is_not_emptied(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    api = client(loopback)
    api.create_repo(REPO, repo_type="dataset", private=True)
    add_by_hand(loopback, "data/mine.csv", b"1,2")
    before = loopback.branch(REPO)
    refused = start_publisher(loopback).ask(call(first))
    assert refused["exit_code"] == 2
    assert "data/mine.csv" in refused["error"][0]
    assert loopback.branch(REPO) == before


def test_another_dataset_keeps_its_card(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    api = client(loopback)
    api.create_repo(REPO, repo_type="dataset", private=True)
    for path in ("README.md", "train.parquet"):
        add_by_hand(loopback, path)
    before = loopback.branch(REPO)
    assert start_publisher(loopback).ask(call(first))["exit_code"] == 2
    assert loopback.branch(REPO) == before


@pytest.mark.parametrize("files_per_commit", [100, 12])
def test_a_gitignore_there_leaves_nothing_out_unsaid(
    hub_of_first: LoopbackHub, second: Path, start_publisher: Start, files_per_commit: int
) -> None:
    process = start_publisher(hub_of_first)
    add_by_hand(hub_of_first, ".gitignore", b"receipts/\n")
    before = published(hub_of_first)
    refused = process.ask(call(second, files_per_commit=files_per_commit))
    assert refused["exit_code"] == 2
    assert ".gitignore" in refused["error"][0]
    assert published(hub_of_first) == before


def test_private_is_not_said_of_a_public_repository(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    process = start_publisher(loopback)
    process.publish(call(first, public=True))
    assert not loopback.repository(REPO).private
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
    assert refused["lines"] == []
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
    for dry_run in (False, True):
        refused = start_publisher(loopback).ask(call(directory, dry_run=dry_run))
        assert refused["exit_code"] == 1
        assert any(file.name in line for line in refused["error"])
        assert "counterfoil build --from" in refused["hint"]
    assert not loopback.requests


@pytest.mark.parametrize("state", ["missing", "empty", "file"])
def test_a_directory_that_is_no_dataset(
    loopback: LoopbackHub, start_publisher: Start, tmp_path: Path, state: str
) -> None:
    folder = tmp_path / "place"
    if state == "empty":
        folder.mkdir()
    elif state == "file":
        folder.write_text("x")
    refused = start_publisher(loopback).ask(call(folder))
    assert refused["exit_code"] == 2
    assert not loopback.requests


def test_options_that_do_not_go_together(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
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


def test_the_command_asks_unless_told_not_to(
    loopback: LoopbackHub, first: Path, tmp_path: Path
) -> None:
    unconfirmed = run_command(loopback, tmp_path / "home", str(first), REPO)
    assert unconfirmed.returncode == 2
    assert "Pass -y" in unconfirmed.stderr
    assert not changing(loopback)
    done = run_command(loopback, tmp_path / "home", str(first), REPO, "-y", "--tag", "v1", "--json")
    assert done.returncode == 0, done.stderr
    assert '"tag": "v1"' in done.stdout
    assert published(loopback) == contents(first)
    for text in (unconfirmed.stderr, done.stdout, done.stderr):
        assert loopback.token not in text
    leaks = [
        path
        for path in first.rglob("*")
        if path.is_file() and loopback.token.encode() in path.read_bytes()
    ]
    assert leaks == []


SECRET = b"a canary that nobody may see, 8f2c61d0"
SHARD = "data/base/test-00000-of-00002.parquet"
DOCUMENTS = [
    SHARD,
    "README.md",
    "manifest.json",
    "recipe.yaml",
    "lock.json",
    "receipts/base-00000.json",
]
# Far beyond what a refusal takes; a publication that waits for a pipe is ended then.
_PATIENCE = 600.0


@pytest.fixture
def directory(first: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first, tmp_path / "mine" / "garments"))


@pytest.fixture
def private(first: Path, tmp_path: Path) -> Path:
    """Return a folder beside the dataset that holds a secret in every form that something could
    take it for."""
    folder = tmp_path / "mine" / "private"
    shutil.copytree(first, folder / "dataset")
    for name in ("secret.txt", "tokens/a.safetensors", "model/model.safetensors", "train/a/1.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(SECRET)
    for name in ("recipe.yaml", "classes.yaml", "model/config.json", "tokens/manifest.json"):
        (folder / name).write_bytes(b"# " + SECRET)
    return folder


@pytest.fixture
def ask(loopback: LoopbackHub, start_publisher: Start) -> Callable[[Path], dict[str, Any]]:
    """Return a function that publishes a directory and ends what does not end."""
    process = start_publisher(loopback)
    return lambda directory: process.ask(call(directory), patience=_PATIENCE)


def relist(directory: Path, *more: Entry) -> None:
    """Write a manifest of everything that is there, links followed, as an attacker would write
    it."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != INDEX)
    paths = [path.relative_to(directory).as_posix() for path in files]
    inside = [path for path in paths if not path.startswith(".") and path != "manifest.json"]
    entries = [
        Entry(path, (directory / path).stat().st_size, sha256_of(directory / path))
        for path in inside
    ]
    (directory / "manifest.json").write_bytes(document_bytes(manifest_document([*entries, *more])))


def sha256_of(path: Path) -> str:
    real = path.resolve()
    return hash_files(real.parent, [real.name])[0].sha256


def arrived(hub: LoopbackHub, content: bytes = SECRET) -> bool:
    """Return whether a content came to the Hub, committed or uncommitted."""
    return any(content in path.read_bytes() for path in hub.folder.rglob("*") if path.is_file())


def is_refused(answer: dict[str, Any], path: str) -> bool:
    """Return whether the answer is one for people, and about this path."""
    assert answer.get("exit_code") in (1, 2), answer
    return any(path in line for line in answer["error"])


def test_what_arrives_is_found(
    loopback: LoopbackHub, directory: Path, private: Path, ask: Callable[[Path], dict[str, Any]]
) -> None:
    """Check that the other tests' search for the secret can fail."""
    (directory / "figures" / "mine.txt").write_bytes(SECRET)
    relist(directory)
    assert ask(directory)["published"]
    assert published(loopback) == contents(directory)
    assert arrived(loopback)


@pytest.mark.parametrize(
    "path",
    [
        SHARD,
        "README.md",
        "manifest.json",
        "recipe.yaml",
        "lock.json",
        "receipts/base-00000.json",
        "figures/x.txt",
    ],
)
def test_a_link_to_a_file_is_refused(
    loopback: LoopbackHub,
    directory: Path,
    private: Path,
    ask: Callable[[Path], dict[str, Any]],
    path: str,
) -> None:
    """Links to a secret and to the original file are refused alike."""
    for target in (private / "dataset" / path, private / "secret.txt"):
        if not target.exists():
            continue
        (directory / path).unlink(missing_ok=True)
        (directory / path).symlink_to(target)
        if path != "manifest.json":
            relist(directory)
        answer = ask(directory)
        assert is_refused(answer, path)
        assert "link" in " ".join(answer["error"])
        assert not loopback.requests
    assert not arrived(loopback)


@pytest.mark.parametrize("path", ["data", "data/base", "receipts", "figures", "figures/more"])
def test_a_link_to_a_folder_is_refused(
    loopback: LoopbackHub,
    directory: Path,
    private: Path,
    ask: Callable[[Path], dict[str, Any]],
    path: str,
) -> None:
    target = private / "dataset" / path
    target.mkdir(exist_ok=True)
    shutil.rmtree(directory / path, ignore_errors=True)
    (directory / path).symlink_to(target)
    answer = ask(directory)
    assert is_refused(answer, path)
    assert "link" in " ".join(answer["error"])
    assert not loopback.requests


def piped(path: Path) -> None:
    os.mkfifo(path)


def socketed(path: Path) -> None:
    cwd = Path.cwd()
    os.chdir(path.parent)  # its address is short, and the paths of tests are long
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(cwd)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def looped(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("path", "make"), list(zip([*DOCUMENTS, "more"], cycle([piped, socketed, endless, looped])))
)
def test_what_is_no_file_is_refused_at_once(
    loopback: LoopbackHub,
    directory: Path,
    ask: Callable[[Path], dict[str, Any]],
    path: str,
    make: Callable[[Path], None],
) -> None:
    (directory / path).unlink(missing_ok=True)
    make(directory / path)
    assert is_refused(ask(directory), path)
    assert not loopback.requests


@pytest.mark.parametrize(
    ("document", "way"),
    [
        ("manifest", "relative"),
        ("manifest", "absolute"),
        ("manifest", "through"),
        ("manifest", "backslash"),
        ("receipt", "relative"),
        ("receipt", "absolute"),
    ],
)
def test_a_file_that_a_document_names_elsewhere_is_not_sent(
    loopback: LoopbackHub,
    directory: Path,
    private: Path,
    ask: Callable[[Path], dict[str, Any]],
    document: str,
    way: str,
) -> None:
    path = {
        "relative": "../private/secret.txt",
        "absolute": str(private / "secret.txt"),
        "through": "data/../../private/secret.txt",
        "backslash": "..\\private\\secret.txt",
    }[way]
    if document == "manifest":
        relist(directory, Entry(path, len(SECRET), sha256_of(private / "secret.txt")))
    else:
        receipt = json.loads((directory / "receipts/base-00000.json").read_bytes())
        receipt["files"][0] |= {
            "path": path,
            "size": len(SECRET),
            "sha256": sha256_of(private / "secret.txt"),
        }
        (directory / "receipts/base-00000.json").write_bytes(document_bytes(receipt))
        relist(directory)
    answer = ask(directory)
    assert answer.get("exit_code") in (1, 2), answer
    assert not loopback.requests
    assert not arrived(loopback)


@pytest.mark.parametrize(
    "keys",
    [
        {"source.dataset": ""},
        {"source.dataset": "/train"},
        {"source.classes": "/classes.yaml"},
        {"generator.model": "/model"},
        {"screen.model": "/model"},
        {"tokens": {"path": "/tokens"}},
        {"extends": "/recipe.yaml"},
        {"evaluate": {"models": ["/model"]}},
        {"publish": {"repo": "../private"}},
    ],
    ids=str,
)
def test_a_folder_that_the_recipe_or_the_lock_names_is_not_sent(
    loopback: LoopbackHub,
    directory: Path,
    private: Path,
    ask: Callable[[Path], dict[str, Any]],
    keys: dict[str, Any],
) -> None:
    """Check a recipe changed by hand, with a lock and a manifest that agree with it as far as they
    can."""
    recipe = load_own_recipe(directory)
    document = yaml.safe_load((directory / "recipe.yaml").read_text())
    for key, value in keys.items():
        *sections, last = key.split(".")
        parent = document
        for section in sections:
            parent = parent[section]
        parent[last] = (
            json.loads(json.dumps(value).replace('"/', f'"{private}/')) if value else str(private)
        )
    (directory / "recipe.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    lock = json.loads((directory / "lock.json").read_bytes())
    for name in ("source", "generator", "screen"):
        section = document[name] if isinstance(document.get(name), dict) else {}
        names = {key: section[key] for key in ("dataset", "model") if key in section}
        recipe = recipe.model_copy(update={name: getattr(recipe, name).model_copy(update=names)})
        if name == "source":
            lock["inputs"]["source"]["dataset"] = section["dataset"]
        else:
            lock["inputs"]["models"][name]["name"] = section["model"]
    lock["hashes"] |= {"plan": recipe.plan_hash, "screen": recipe.screen_hash}
    (directory / "lock.json").write_bytes(document_bytes(lock))
    relist(directory)
    answer = ask(directory)
    assert answer.get("published") or answer.get("exit_code") in (1, 2), answer
    assert not arrived(loopback)
    if answer.get("published"):
        assert published(loopback) == contents(directory)


def test_a_directory_of_the_hubs_cache_is_refused_in_words(
    loopback: LoopbackHub, directory: Path, tmp_path: Path, ask: Callable[[Path], dict[str, Any]]
) -> None:
    """Links of the client's cache, which verifying follows, are no files of the directory's."""
    blobs = tmp_path / "datasets--a--b" / "blobs"
    snapshot = tmp_path / "datasets--a--b" / "snapshots" / "1"
    blobs.mkdir(parents=True)
    shutil.copytree(directory, snapshot, ignore=shutil.ignore_patterns(".counterfoil"))
    for number, path in enumerate(path for path in sorted(snapshot.rglob("*")) if path.is_file()):
        path.rename(blobs / str(number))
        path.symlink_to(blobs / str(number))
    answer = ask(snapshot)
    assert answer["exit_code"] == 2, answer
    assert "is a link into the Hub's cache" in answer["error"][0]
    assert "cp -rL" in answer["hint"]
    assert not loopback.requests


def test_a_name_that_the_hub_does_not_take(
    loopback: LoopbackHub, directory: Path, ask: Callable[[Path], dict[str, Any]]
) -> None:
    (directory / "figures" / ".git").mkdir()
    (directory / "figures" / ".git" / "config").write_text("x")
    relist(directory)
    answer = ask(directory)
    assert answer["exit_code"] == 2, answer
    assert "figures/.git/config" in answer["error"][0]
    assert not loopback.requests
