"""Names of models: one resolver, the nearest name for a mistake, and pins that follow the weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.models import LAB_WEIGHTS, lab_models, local_folder, pin_model, resolve_name
from counterfoil.models.names import folder_sha256


def test_lab_names_are_folders_of_weights() -> None:
    assert {"sd", "clip"} <= set(lab_models())
    for name in lab_models():
        assert resolve_name(f"lab:{name}") == f"local-dir:{LAB_WEIGHTS / name}"
        assert local_folder(f"lab:{name}") == LAB_WEIGHTS / name


@pytest.mark.parametrize("name", ["resnet50", "local-dir:/x", "./here", "user/model", "ViT-B-32"])
def test_other_names_pass_through(name: str) -> None:
    assert resolve_name(name) == name


def test_an_unknown_lab_model_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no 'clib'; did you mean 'clip'\?") as refused:
        resolve_name("lab:clib")
    assert "lab:sd" in (refused.value.hint or "")
    with pytest.raises(UserError):
        resolve_name("lab:../weights/sd")


def test_a_planted_worlds_classifier_is_named_within_its_folder() -> None:
    planted = [name for name in lab_models() if "/" in name]
    assert {"planted/null-0", "planted/rare-0", "planted/noisy-0"} <= set(planted)
    assert all(name.startswith("planted/") for name in planted)
    assert local_folder("lab:planted/rare-0") == LAB_WEIGHTS / "planted" / "rare-0"
    assert pin_model("lab:planted/rare-0").name == "lab:planted/rare-0"


@pytest.mark.parametrize(
    "name",
    ["planted", "planted/", "planted/../clip", "planted/rare-0/", "planted//rare-0", "planted/rare-0/..", "./clip",
     "/planted/rare-0", "sd/unet", "planted/rare-00", "planted\\rare-0"],
)  # fmt: skip
def test_no_other_name_under_the_lab_becomes_a_path(name: str) -> None:
    for look in (resolve_name, local_folder, pin_model):
        with pytest.raises(UserError, match="the lab has no"):
            look(f"lab:{name}")


def test_a_world_without_weights_here_says_where_they_come_from() -> None:
    with pytest.raises(UserError, match=r"no 'planted/rare-7'; did you mean 'planted/rare-0'\?") as refused:
        resolve_name("lab:planted/rare-7")
    assert "scripts/train_planted.py" in (refused.value.hint or "")
    assert "local-dir:" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["local-dir:/nowhere/at/all", "./nowhere"])
def test_a_missing_folder_is_told(name: str) -> None:
    with pytest.raises(UserError, match="nowhere"):
        local_folder(name)


def test_a_pin_follows_every_byte_of_the_weights_and_no_measurement(tmp_path: Path) -> None:
    folder = tmp_path / "clip"
    shutil.copytree(LAB_WEIGHTS / "clip", folder)
    before = folder_sha256(folder)
    assert before == folder_sha256(LAB_WEIGHTS / "clip")
    for name in ("metrics.json", "training.json", "README.md"):
        (folder / name).write_text("other")
    assert folder_sha256(folder) == before
    weights = folder / "open_clip_model.safetensors"
    content = bytearray(weights.read_bytes())
    seen = {before}
    for place in (0, len(content) // 2, len(content) - 1):
        content[place] ^= 1
        weights.write_bytes(content)
        seen.add(folder_sha256(folder))
        content[place] ^= 1
    assert len(seen) == 4
    weights.write_bytes(content)
    assert folder_sha256(folder) == before
    weights.rename(folder / "other.safetensors")
    assert folder_sha256(folder) not in seen


def test_the_same_files_elsewhere_are_the_same_model(tmp_path: Path) -> None:
    for parent in ("one", "two"):
        shutil.copytree(LAB_WEIGHTS / "clip", tmp_path / parent / "clip")
    one, two = (pin_model(f"local-dir:{tmp_path / parent / 'clip'}") for parent in ("one", "two"))
    assert one == two
    assert str(tmp_path) not in str(one.document())
    assert one.sha256 == pin_model("lab:clip").sha256
