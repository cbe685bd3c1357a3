"""Weights from elsewhere: nothing in them runs, nothing is taken for a weight that is none, and the rest loads."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from hostile_files import FORMS, Attack, assert_that_it_works
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf

import warm
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.weights_files import read_pickled
from loopback_hub.clients import client, client_environment
from loopback_hub.hub import LoopbackHub


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier") / "tiny"
    torch.manual_seed(7)
    model: Any = timm.create_model("test_resnet", num_classes=4)
    save_for_hf(model, str(folder), safe_serialization=True)
    return folder


@pytest.fixture
def mine(folder: Path, tmp_path: Path) -> Path:
    """A copy of the folder without weights."""
    shutil.copytree(folder, tmp_path / "mine", ignore=shutil.ignore_patterns("*.safetensors"))
    return tmp_path / "mine"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(folder: Path, name: str) -> bool:
    loaded = load_classifier(name).module.state_dict()
    return all(torch.equal(loaded[key], value) for key, value in weights(folder).items())


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pth", "other.pth.tar"])
@pytest.mark.parametrize("form", FORMS)
def test_no_pickle_runs(mine: Path, tmp_path: Path, form: str, name: str) -> None:
    proof = tmp_path / "proof"
    assert_that_it_works(form, proof)
    (mine / name).write_bytes(FORMS[form](Attack(proof)))
    with pytest.raises(UserError, match="cannot be read as weights alone") as refused:
        load_classifier(f"local-dir:{mine}")
    assert not proof.exists()
    assert name in refused.value.problems[0]
    assert "\n" not in refused.value.problems[0]
    assert "safetensors" in (refused.value.hint or "")


@pytest.mark.parametrize("source", ["local-dir", "hf-hub"])
def test_no_pickle_runs_whatever_timm_would_do(mine: Path, tmp_path: Path, source: str, loopback: LoopbackHub) -> None:
    """timm before 1.0.26 trusts every pickle, and so does, in a process of its own, the timm that is installed."""
    proof = tmp_path / "proof"
    (mine / "pytorch_model.bin").write_bytes(FORMS["zipped"](Attack(proof)))
    name = f"local-dir:{mine}"
    if source == "hf-hub":
        client(loopback).create_repo("someone/evil")
        client(loopback).upload_folder(repo_id="someone/evil", folder_path=str(mine))
        name = "hf-hub:someone/evil"
    said = in_a_process(TRUSTING + LOAD, name, loopback, tmp_path)
    assert said.startswith("UserError: ") and "pytorch_model.bin cannot be read as weights alone" in said
    assert not proof.exists()


TRUSTING = """
import sys
import torch
careful = torch.load
def as_timm_once_did(*arguments, **options):
    by_timm = sys._getframe(1).f_globals["__name__"].startswith("timm.")
    return careful(*arguments, **(options | {"weights_only": False} if by_timm else options))
torch.load = as_timm_once_did
"""
LOAD = """
import sys
from counterfoil.errors import CounterfoilError
from counterfoil.models.classifiers import load_classifier
try:
    model = load_classifier(sys.argv[1])
    print(model.sha256)
except CounterfoilError as error:
    print(f"{type(error).__name__}: {error}")
"""


def in_a_process(code: str, name: str, hub: LoopbackHub, home: Path) -> str:
    run = warm.run([sys.executable, "-c", code, name], client_environment(hub, home / "home"))
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_model_of_the_hub_is_that_of_its_folder(folder: Path, tmp_path: Path, loopback: LoopbackHub) -> None:
    pickled = shutil.copytree(folder, tmp_path / "pickled")
    torch.save(weights(folder), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    hashes = {f"{load_classifier(f'local-dir:{folder}').sha256}\n"}
    for place in (folder, pickled):
        client(loopback).create_repo(f"someone/{place.name}")
        client(loopback).upload_folder(repo_id=f"someone/{place.name}", folder_path=str(place))
        hashes.add(in_a_process(LOAD, f"hf-hub:someone/{place.name}", loopback, tmp_path))
    assert len(hashes) == 1
    first = client(loopback).repo_info("someone/tiny").sha
    (pickled / "model.safetensors").write_bytes(b"another commit")
    client(loopback).upload_folder(repo_id="someone/tiny", folder_path=str(pickled))
    assert {in_a_process(LOAD, f"hf-hub:someone/tiny@{first}", loopback, tmp_path)} == hashes


def test_a_repository_without_weights_is_told(mine: Path, tmp_path: Path, loopback: LoopbackHub) -> None:
    client(loopback).create_repo("someone/empty")
    client(loopback).upload_folder(repo_id="someone/empty", folder_path=str(mine))
    said = in_a_process(LOAD, "hf-hub:someone/empty", loopback, tmp_path)
    assert said.startswith("UserError: ") and "none of model.safetensors, pytorch_model.bin" in said


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pth", "checkpoint-12.pth.tar"])
@pytest.mark.parametrize("inside", [None, "state_dict", "model", "state_dict_ema"])
def test_weights_alone_load_from_any_file_of_torch(folder: Path, mine: Path, name: str, inside: str | None) -> None:
    state: dict[str, Any] = weights(folder)
    if inside is not None:
        # As timm's training writes them: wrapped, beside the number of the epoch and the arguments.
        wrapped = {f"module.{key}": value for key, value in state.items()}
        state = {inside: wrapped, "epoch": 12, "args": argparse.Namespace(lr=0.1)}
    torch.save(state, mine / name)
    assert same(folder, f"local-dir:{mine}")


def test_an_archive_of_old_loads(folder: Path, mine: Path) -> None:
    torch.save(weights(folder), mine / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert same(folder, f"local-dir:{mine}")


def test_safetensors_come_first(folder: Path, mine: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    for name in ("pytorch_model.bin", "model.pth"):
        (mine / name).write_bytes(FORMS["zipped"](Attack(proof)))
    shutil.copy(folder / "model.safetensors", mine / "weights-of-mine.safetensors")
    assert same(folder, f"local-dir:{mine}")
    assert not proof.exists()


def test_a_pipe_is_no_weights_file(mine: Path) -> None:
    os.mkfifo(mine / "model.safetensors")
    with pytest.raises(UserError, match="no weights"):
        load_classifier(f"local-dir:{mine}")


@pytest.mark.parametrize(
    "found",
    [[1, 2], {}, {"fc.weight": 3}, {1: torch.zeros(1)}, {"state_dict": {"a": None}}, torch.zeros(3),
     {"fc.weight": torch.zeros(1).expand(10**6, 10**6)}, {"fc.weight": torch.zeros(4, 4).to_sparse()},
     {f"layer{number}": value for number, value in enumerate([torch.zeros(10**5)] * 40)}],
)  # fmt: skip
def test_what_is_no_weights_by_name_is_refused(tmp_path: Path, found: Any) -> None:
    """Numbers that are told without being there too: a layer of a million copies of one would fill memory."""
    torch.save(found, tmp_path / "model.pth")
    with pytest.raises(UserError, match=r"model\.pth"):
        read_pickled(tmp_path / "model.pth", "mine")


@pytest.mark.parametrize("stored", [0, 1], ids=["all of it", "but one member"])
def test_a_packed_archive_is_refused(stored: int, tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.zeros(10**6)}, tmp_path / "plain.pth")
    with zipfile.ZipFile(tmp_path / "plain.pth") as plain, zipfile.ZipFile(tmp_path / "p.pth", "w", 8) as packed:
        for place, member in enumerate(plain.infolist()):
            how = zipfile.ZIP_STORED if place < stored else zipfile.ZIP_DEFLATED
            packed.writestr(member.filename, plain.read(member), how)
    assert (tmp_path / "p.pth").stat().st_size < 50_000
    with pytest.raises(UserError, match="packed"):
        read_pickled(tmp_path / "p.pth", "mine")


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"PK\3\4" + b"\0" * 60, b"\x80\x02.", b"not weights" * 100])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_file_of_anything_is_told(mine: Path, name: str, content: bytes) -> None:
    (mine / name).write_bytes(content)
    with pytest.raises(CounterfoilError, match=name) as told:
        load_classifier(f"local-dir:{mine}")
    assert all("\n" not in problem for problem in told.value.problems)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("key", ["fc.weight", "bn1.running_mean"])
def test_weights_that_are_no_numbers_are_refused(folder: Path, mine: Path, key: str, value: float) -> None:
    state = weights(folder)
    key = next(name for name in state if name.endswith(key) or (key != "fc.weight" and name.endswith("running_mean")))
    state[key].view(-1)[-1] = value
    save_file(state, mine / "model.safetensors")
    with pytest.raises(UserError, match="not finite") as refused:
        load_classifier(f"local-dir:{mine}")
    assert key in refused.value.problems[0]


@pytest.mark.parametrize("shape", [(4, 95), (5, 96), (96,), (0,)])
def test_weights_of_another_shape_are_told(folder: Path, mine: Path, shape: tuple[int, ...]) -> None:
    state = weights(folder)
    assert state["fc.weight"].shape == (4, 96)
    state["fc.weight"] = torch.zeros(shape)
    save_file(state, mine / "model.safetensors")
    with pytest.raises(RunFailure, match=r"could not be loaded: .*fc\.weight"):
        load_classifier(f"local-dir:{mine}")


def test_nothing_of_the_file_stays_beside_the_module(folder: Path, mine: Path) -> None:
    torch.save(weights(folder), mine / "pytorch_model.bin")
    module = load_classifier(f"local-dir:{mine}").module
    assert "state_dict" not in module.pretrained_cfg
    assert str(mine) not in json.dumps(module.pretrained_cfg)
