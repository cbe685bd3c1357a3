"""A transformers model of the Hub is that of one commit, whatever its branch does meanwhile; pickles stay there."""

from __future__ import annotations

import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import warm
from colour_kinds import save_colour_transformer
from counterfoil.models.classifiers import load_classifier
from loopback_hub.clients import client, client_environment
from loopback_hub.hub import LoopbackHub

REPO = "someone/vit"
LOAD = """
import sys
from counterfoil.errors import CounterfoilError
from counterfoil.models.classifiers import load_classifier
for name in sys.argv[1:]:
    try:
        model = load_classifier(name)
        print(model.sha256, *model.label_names)
    except CounterfoilError as error:
        print(f"{type(error).__name__}: {error.problems[0]}")
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models that differ in everything: order of outputs, weights, size of the input."""
    root = tmp_path_factory.mktemp("hub")
    return (
        save_colour_transformer(root / "first"),
        save_colour_transformer(root / "second", names=("blue", "green", "red"), size=48),
    )


def loaded(hub: LoopbackHub, home: Path, *names: str) -> list[str]:
    """What a process of its own says of each model, where `home` is its cache and its working folder's parent."""
    (home / "here").mkdir(parents=True, exist_ok=True)
    run = warm.run([sys.executable, "-c", LOAD, *names], client_environment(hub, home), cwd=home / "here")
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def expected(folder: Path) -> str:
    model = load_classifier(f"transformers:{folder}")
    return " ".join([model.sha256 or "", *(model.label_names or ())])


def upload(hub: LoopbackHub, folder: Path, name: str = REPO) -> str:
    there = client(hub, observer=True)
    there.create_repo(name, exist_ok=True)
    return there.upload_folder(repo_id=name, folder_path=str(folder)).oid


def test_a_model_of_the_hub_is_that_of_its_folder_at_each_commit(
    folders: tuple[Path, Path], tmp_path: Path, loopback: LoopbackHub
) -> None:
    first = upload(loopback, folders[0])
    upload(loopback, folders[1])
    names = (f"transformers:{REPO}@{first}", f"transformers:{REPO}", f"transformers:hf-hub:{REPO}@{first}")
    assert loaded(loopback, tmp_path, *names) == [expected(folders[place]) for place in (0, 1, 0)]


@pytest.mark.parametrize("request_number", [1, 4])
def test_a_branch_that_moves_between_two_requests_changes_nothing(
    folders: tuple[Path, Path], tmp_path: Path, loopback: LoopbackHub, request_number: int
) -> None:
    upload(loopback, folders[0])
    before = loopback.keep(REPO, "model")
    upload(loopback, folders[1])
    after = loopback.keep(REPO, "model")
    loopback.put_back(before)
    paths: list[str] = []

    def on_request(request: Any) -> None:
        paths.append(request.path)
        if len(paths) == request_number + 1:
            loopback.put_back(after)

    loopback.on_request = on_request
    found = loaded(loopback, tmp_path, f"transformers:{REPO}")
    loopback.on_request = None
    assert len(paths) > request_number + 2
    assert found == [expected(folders[0])]


def test_pickles_stay_there_and_a_folder_of_the_same_name_is_not_taken_for_it(
    folders: tuple[Path, Path], tmp_path: Path, loopback: LoopbackHub
) -> None:
    pickled = Path(shutil.copytree(folders[0], tmp_path / "pickled"))
    (pickled / "model.safetensors").unlink()
    (pickled / "pytorch_model.bin").write_bytes(pickle.dumps({"classifier.weight": [1.0]}))
    upload(loopback, pickled, "someone/pickled")
    upload(loopback, folders[0])
    shutil.copytree(folders[1], tmp_path / "here" / REPO)
    first, second = loaded(loopback, tmp_path, "transformers:someone/pickled", f"transformers:{REPO}")
    assert first.startswith("UserError: ") and "has no model.safetensors" in first
    assert not any(one.path.endswith("pytorch_model.bin") and not one.observer for one in loopback.requests)
    assert second.startswith("UserError: ") and "there is a folder of this name here" in second
