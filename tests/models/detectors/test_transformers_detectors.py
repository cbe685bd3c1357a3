"""Detectors of transformers answer as a plain call of transformers; strangers' configurations are
refused first."""

from __future__ import annotations

import functools
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoImageProcessor, AutoModelForObjectDetection

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.detectors import load_detector
from counterfoil.models.detectors.detector import Detector, checked_detections
from support.files import AUTHORS_CODE, Payload, edit
from support.images import noise
from support.refusals import refuses
from tiny_detectors import FAMILIES, NAMES, save_detector

# Two of one form, so that they are answered together, and two others.
IMAGES = [noise(0, 70, 50), noise(1, 50, 70), noise(2, 70, 50), noise(3, 120, 40)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("detectors")
    return {family: save_detector(family, root / family) for family in FAMILIES}


@pytest.fixture
def mine(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["detr"], tmp_path / "mine"))


@functools.cache
def detector_of(folder: Path) -> Detector:
    return load_detector(f"transformers:{folder}")


@functools.cache
def plain_parts(folder: Path) -> tuple[Any, Any]:
    model: Any = AutoModelForObjectDetection.from_pretrained(folder)
    return model.eval(), AutoImageProcessor.from_pretrained(folder)


def plain(folder: Path, image: Image.Image) -> dict[str, torch.Tensor]:
    """Return the detections of transformers itself for one image."""
    model, processor = plain_parts(folder)
    with torch.inference_mode():
        outputs = model(**processor(images=[image], return_tensors="pt"))
    (detections,) = processor.post_process_object_detection(
        outputs, threshold=0.0, target_sizes=[image.size[::-1]]
    )
    return detections


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_equal_those_of_a_plain_call(folders: dict[str, Path], family: str) -> None:
    detector = detector_of(folders[family])
    assert detector.label_names == NAMES
    answers = detector(IMAGES)
    assert len(answers) == len(IMAGES)
    for image, answer in zip(IMAGES, answers, strict=True):
        expected = plain(folders[family], image)
        assert len(answer["scores"]) == len(expected["scores"]) >= 6
        assert torch.equal(answer["labels"], expected["labels"])
        torch.testing.assert_close(answer["scores"], expected["scores"], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(answer["boxes"], expected["boxes"], rtol=1e-4, atol=1e-3)


def test_boxes_that_are_not_finite_are_no_answer() -> None:
    boxes = torch.tensor([[0.0, 0.0, float("inf"), 1.0]], dtype=torch.float64)
    detections = {
        "boxes": boxes,
        "scores": torch.ones(1),
        "labels": torch.zeros(1, dtype=torch.int32),
    }
    with pytest.raises(RunFailure, match="not finite"):
        checked_detections("mine", detections)
    whole = checked_detections("mine", detections | {"boxes": boxes.clamp(max=2)})
    assert [whole[key].dtype for key in ("boxes", "scores", "labels")] == [
        torch.float32,
        torch.float32,
        torch.int64,
    ]


def test_no_image_has_no_answers(folders: dict[str, Path]) -> None:
    assert detector_of(folders["yolos"])([]) == []


def test_the_hash_follows_what_it_computes_and_no_names(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folders["yolos"], tmp_path / "copy"))
    first = detector_of(folders["yolos"])
    edit(
        copy / "config.json",
        lambda document: document.update(id2label={"0": "a", "1": "b", "2": "c"}),
    )
    renamed = load_detector(f"transformers:{copy}")
    assert (renamed.sha256, renamed.input_key) == (first.sha256, first.input_key)
    assert renamed.label_names == ("a", "b", "c")
    stored = load_file(copy / "model.safetensors")
    key = next(key for key in sorted(stored) if key.endswith("bias"))
    stored[key][0] += 1e-3
    save_file(stored, copy / "model.safetensors", metadata={"format": "pt"})
    assert load_detector(f"transformers:{copy}").sha256 != first.sha256


def test_a_backbone_named_as_early_releases_name_it_is_built_and_not_fetched(
    mine: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import timm

    pretrained: list[Any] = []
    create = timm.create_model
    monkeypatch.setattr(
        timm,
        "create_model",
        lambda *a, **k: pretrained.append(k.get("pretrained")) or create(*a, **k),
    )

    def early(document: dict[str, Any]) -> None:
        document.pop("backbone_config")
        document.update(backbone="resnet10t", use_timm_backbone=True, use_pretrained_backbone=True)

    edit(mine / "config.json", early)
    (detections,) = load_detector(f"transformers:{mine}")(IMAGES[:1])
    torch.testing.assert_close(
        detections["boxes"], plain(folders["detr"], IMAGES[0])["boxes"], rtol=1e-4, atol=1e-3
    )
    assert pretrained and not any(pretrained)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a classifier": (
        "detr",
        {"model_type": "vit"},
        "found 'vit', and transformers has no detector of that kind",
    ),
    "code": (
        "detr",
        {"auto_map": {"AutoConfig": "evil.Evil"}},
        "auto_map names code of its author",
    ),
    "another's backbone": (
        "detr",
        {"backbone_config": None, "backbone": "someone/net"},
        "an architecture of timm",
    ),
    "a number": ("detr", {"backbone_config": None, "backbone": 7}, "an architecture of timm"),
    "beside another": (
        "rt_detr",
        {"backbone": "resnet10t"},
        "found 'resnet10t', which is not followed here",
    ),
    "settings of a backbone": (
        "detr",
        {"backbone_kwargs": {"pretrained": True}},
        "backbone_kwargs is not followed",
    ),
    "within": ("detr", {"nested": {"backbone": "resnet10t"}}, "backbone is not followed"),
    "width": ("detr", {"d_model": 2**40}, "expected at most 1,000,000"),
    "names": ("yolos", {"id2label": {"0": "a\u001b[31m"}}, "expected printable text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_configuration_of_a_stranger_is_refused_before_a_weight_is_read(
    folders: dict[str, Path], tmp_path: Path, case: str
) -> None:
    family, values, says = REFUSED[case]
    folder = Path(shutil.copytree(folders[family], tmp_path / "odd"))
    (folder / "model.safetensors").write_bytes(b"no weights")
    edit(folder / "config.json", lambda document: document.update(values))
    name = f"transformers:{folder}"
    with refuses("invalid-config", f"model {name!r}", says):
        load_detector(name)


def test_neither_code_nor_pickles_run(mine: Path, tmp_path: Path) -> None:
    (mine / "evil.py").write_text(AUTHORS_CODE.format(str(tmp_path / "ran"), "DetrImageProcessor"))
    edit(
        mine / "preprocessor_config.json",
        lambda document: document.update(auto_map={"AutoImageProcessor": "evil.Evil"}),
    )
    with pytest.raises(UserError, match="auto_map names code of its author, which is never run"):
        load_detector(f"transformers:{mine}")
    edit(mine / "preprocessor_config.json", lambda document: document.pop("auto_map"))
    (mine / "model.safetensors").unlink()
    (mine / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(UserError, match="safetensors"):
        load_detector(f"transformers:{mine}")
    assert not (tmp_path / "ran").exists()


def test_a_processor_that_makes_no_boxes_is_refused(mine: Path) -> None:
    settings = json.loads((mine / "preprocessor_config.json").read_text()) | {
        "image_processor_type": "ViTImageProcessor"
    }
    settings["size"] = {"height": 64, "width": 64}
    (mine / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match="ViTImageProcessor makes no boxes"):
        load_detector(f"transformers:{mine}")


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("detr", "unknown-model", "no kind of detector ''"),
        ("transformer:x", "unknown-model", "did you mean 'transformers:'"),
        ("transformers:./no/such", "missing-model-file", "there is no folder"),
        ("transformers:lab:resnet10t", "invalid-config", "transformers has no detector"),
        ("lab:no_such", "unknown-model", "the lab has no 'no_such'"),
    ],
)
def test_a_name_that_is_no_detector_is_a_users_mistake(name: str, code: str, says: str) -> None:
    with refuses(code, None, says):
        load_detector(name)
