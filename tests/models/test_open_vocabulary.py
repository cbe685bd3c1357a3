"""Open-vocabulary detectors answer as a plain call of transformers; strangers' configurations are
refused first."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.open_vocabulary import load_text_detector
from support.files import Payload, edit
from support.images import noise
from support.refusals import refuses
from tiny_text_detectors import TEXT_DETECTORS, save_text_detector

IMAGES = [noise(0, 70, 50), noise(1, 40, 60)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("text_detectors")
    return {family: save_text_detector(family, root / family) for family in TEXT_DETECTORS}


def plain(folder: Path, image: Image.Image, text: Any, least: float) -> dict[str, torch.Tensor]:
    """Return what transformers itself finds."""
    model: Any = AutoModelForZeroShotObjectDetection.from_pretrained(folder).eval()
    processor: Any = AutoProcessor.from_pretrained(folder)
    inputs = processor(text=text, images=image, return_tensors="pt")
    with torch.inference_mode():
        outputs = model(**inputs)
    (detections,) = processor.post_process_grounded_object_detection(
        outputs, threshold=least, target_sizes=[image.size[::-1]]
    )
    return detections


@pytest.mark.parametrize("family", TEXT_DETECTORS)
def test_boxes_and_confidences_are_those_of_a_plain_call(
    folders: dict[str, Path], family: str
) -> None:
    detector = load_text_detector(f"transformers:{folders[family]}", "cpu")
    for image in IMAGES:
        expected = plain(folders[family], image, [["a photo of a bag"]], 0.0)
        boxes, confidences = detector(image, "a photo of a bag", 0.0)
        assert len(boxes) == len(expected["boxes"]) >= 9
        torch.testing.assert_close(boxes, expected["boxes"], rtol=0, atol=1e-6)
        torch.testing.assert_close(confidences, expected["scores"], rtol=0, atol=1e-6)
        middle = float(confidences.median())
        some, _ = detector(image, "a photo of a bag", middle)
        assert len(some) == int((confidences > middle).sum()) < len(boxes)


def test_a_dot_in_a_name_is_no_end_of_a_phrase(folders: dict[str, Path]) -> None:
    detector = load_text_detector(f"transformers:{folders['grounding_dino']}", "cpu")
    boxes, confidences = detector(IMAGES[0], "A photo of a Coat.  bag", 0.0)
    expected = plain(folders["grounding_dino"], IMAGES[0], "a photo of a coat bag.", 0.0)
    torch.testing.assert_close(boxes, expected["boxes"], rtol=0, atol=1e-6)
    torch.testing.assert_close(confidences, expected["scores"], rtol=0, atol=1e-6)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a detector of fixed classes": ({"model_type": "detr"}, "no open-vocabulary detector of that kind"),
    "code": ({"auto_map": {"AutoConfig": "evil.Evil"}}, "auto_map names code of its author"),
    "a model of timm inside": ({"vision_config": {"model_type": "timm_wrapper"}}, "which is not built"),
    "width": ({"projection_dim": 2**40}, "expected at most 1,000,000"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_configuration_of_a_stranger_is_refused_before_a_weight_is_read(
    folders: dict[str, Path], tmp_path: Path, case: str
) -> None:
    values, says = REFUSED[case]
    folder = Path(shutil.copytree(folders["owlv2"], tmp_path / "odd"))
    (folder / "model.safetensors").write_bytes(b"no weights")
    edit(folder / "config.json", lambda document: document.update(values))
    name = f"transformers:{folder}"
    with refuses("invalid-config", f"model {name!r}", says):
        load_text_detector(name, "cpu")


def test_pickles_do_not_run(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["owlv2"], tmp_path / "odd"))
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(UserError, match="safetensors"):
        load_text_detector(f"transformers:{folder}", "cpu")
    assert not (tmp_path / "ran").exists()


def test_a_text_that_is_too_long_says_so(folders: dict[str, Path]) -> None:
    detector = load_text_detector(f"transformers:{folders['owlv2']}", "cpu")
    with pytest.raises(RunFailure, match="look for 'a photo of a bag bag"):
        detector(IMAGES[0], "a photo of a" + " bag" * 40, 0.0)


def test_a_folder_without_a_tokenizer_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["owlv2"], tmp_path / "odd"))
    (folder / "merges.txt").unlink()
    with pytest.raises(UserError, match=r"has no tokenizer\.json"):
        load_text_detector(f"transformers:{folder}", "cpu")
