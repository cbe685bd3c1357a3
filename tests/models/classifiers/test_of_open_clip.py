"""Zero-shot scores are CLIP's scale times cosines with the mean caption of each class, computed
here by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from open_clip import OPENAI_IMAGENET_TEMPLATES, factory, pretrained
from PIL import Image

from counterfoil.errors import UserError
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.lab.world import render
from counterfoil.models.classifiers import describe_classifier, load_classifier, of_open_clip
from counterfoil.models.clip import CONFIG, load_clip
from counterfoil.models.names import local_folder
from counterfoil.models.preparation import read_preparation
from counterfoil.recipe.prompts import RecipeClass
from lab_training.corpora import unbiased_scene
from support.refusals import refuses

LAB = [RecipeClass(f"{label:02d}", name, label, label, ()) for label, name in enumerate(CLASSES)]
TWO = ("a photo of a {}", "an oil painting of a {}")


@pytest.fixture(scope="module")
def images() -> list[Image.Image]:
    return [Image.fromarray(render(unbiased_scene(number))) for number in range(2000, 2020)]


@pytest.mark.parametrize("templates", [TWO[:1], TWO])
def test_scores_are_cosines_with_the_mean_of_the_captions(
    images: list[Image.Image], templates: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_open_clip, "default_templates", lambda model: templates)
    clip = load_clip("lab:clip")
    captions = np.stack(
        [clip.embed_texts([t.format(name) for t in templates]).mean(axis=0) for name in CLASSES]
    )
    captions /= np.linalg.norm(captions, axis=1, keepdims=True)
    expected = float(clip.module.logit_scale.exp()) * clip.embed_images(images, 20) @ captions.T
    classifier = of_open_clip.load("open_clip:lab:clip", "cpu", LAB)
    batch = torch.stack([classifier.transform()(image) for image in images])
    scores = classifier.logits(batch, "cpu")
    assert scores.dtype == torch.float32
    assert read_preparation(classifier.stages(), classifier.transform()) is not None
    np.testing.assert_allclose(scores.numpy(), expected, atol=2e-4)
    truth = np.arange(2000, 2020) % len(CLASSES)
    assert (scores.argmax(1).numpy() == truth).mean() > 0.5
    np.testing.assert_allclose(
        classifier.features(batch, "cpu").numpy(), clip.embed_images(images, 20), atol=2e-6
    )


def test_the_outputs_are_the_classes_in_their_order_each_by_a_name_of_its_own() -> None:
    facts = describe_classifier("open_clip:lab:clip", LAB[::-1])
    assert (facts.num_classes, facts.label_names) == (10, tuple(CLASSES)[::-1])
    cranes = [RecipeClass("n1", "crane", 0, 0, ()), RecipeClass("n2", "crane", 1, 1, ())]
    assert describe_classifier("open_clip:lab:clip", cranes).label_names == ("n1", "n2")
    with pytest.raises(UserError, match="needs class names"):
        describe_classifier("open_clip:lab:clip")


def test_a_model_of_full_size_is_asked_by_open_clips_own_templates() -> None:
    full = of_open_clip.default_templates("ViT-B-32")
    assert len(full) == 80
    assert [text.replace("{}", "cat") for text in full] == [
        template("cat") for template in OPENAI_IMAGENET_TEMPLATES
    ]
    assert of_open_clip.default_templates("lab:clip") == TWO[:1]
    facts = describe_classifier("open_clip:ViT-B-32/laion2b_s34b_b79k", LAB)
    assert (facts.architecture, facts.num_classes) == ("ViT-B-32", 10)


def test_the_hash_follows_weights_names_and_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    def sha256(classes: list[RecipeClass], templates: tuple[str, ...] = TWO[:1]) -> str | None:
        monkeypatch.setattr(of_open_clip, "default_templates", lambda model: templates)
        return of_open_clip.load("open_clip:lab:clip", "cpu", classes).sha256

    assert len({sha256(LAB), sha256(LAB[:5]), sha256(LAB[::-1]), sha256(LAB, TWO)}) == 4


@pytest.mark.parametrize(
    ("name", "code", "near"),
    [
        ("open_clip:ViT-B-23/openai", "unknown-model", "did you mean 'ViT-B-32'"),
        ("open_clip:ViT-B-32/opnai", "unknown-model", "did you mean 'openai'"),
        ("open_clip:ViT-B-32", "unknown-model", "found none, expected one of"),
        ("open_clip:lab:resnet10t", "missing-model-file", "open_clip_config.json"),
        ("open_clip:./no/such", "missing-model-file", "no/such"),
        ("open-clip:ViT-B-32/openai", "unknown-model", "did you mean 'open_clip:'"),
    ],
)
def test_a_name_that_is_no_model_is_a_users_mistake(name: str, code: str, near: str) -> None:
    with refuses(code, None, near) as refused:
        describe_classifier(name, LAB)
    assert refused.value.problems[0].path.startswith("model ")


def test_an_image_without_end_is_refused() -> None:
    transform = load_classifier("open_clip:lab:clip", classes=LAB).transform()
    with pytest.raises(UserError, match="would be resized"):
        transform(Image.new("RGB", (500_000, 1)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lab = local_folder("lab:clip")
    assert lab is not None
    return Path(shutil.copytree(lab, tmp_path / "clip"))


def configure(folder: Path, **towers: Any) -> dict[str, Any]:
    """Change the towers' configuration of a folder, and return it."""
    document = json.loads((folder / CONFIG).read_text())
    document["model_cfg"] |= towers
    (folder / CONFIG).write_text(json.dumps(document))
    return document["model_cfg"]


@pytest.mark.parametrize("quick", [False, True])
def test_a_weights_tag_has_the_activation_that_it_was_trained_with(
    quick: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    towers = json.loads((folder / CONFIG).read_text())["model_cfg"]
    towers["text_cfg"]["hf_tokenizer_name"] = str(folder)
    tag = pretrained._pcfg(url="https://example.org/weights", quick_gelu=quick)
    weights = str(folder / "open_clip_model.safetensors")
    monkeypatch.setitem(factory._MODEL_CONFIGS, "exact", towers)
    monkeypatch.setitem(pretrained._PRETRAINED, "exact", {"ours": tag})
    monkeypatch.setattr(
        factory,
        "download_pretrained",
        lambda *_, **__: weights,
    )
    clip = load_clip("exact", "ours")
    given = clip.embed_texts(["a photo of a bag"])
    module: Any = open_clip.create_model(
        "exact",
        pretrained=weights,
        force_quick_gelu=quick,
    )
    module.eval()
    with torch.inference_mode():
        tokens = clip.tokenizer(["a photo of a bag"])
        expected = module.encode_text(tokens, normalize=True).numpy()
    np.testing.assert_allclose(given, expected, atol=1e-6)


def test_answers_are_kept_by_the_towers_and_the_tokenizer_too(folder: Path) -> None:
    def kept_by() -> tuple[str | None, str]:
        classifier = load_classifier(f"open_clip:local-dir:{folder}", classes=LAB)
        return classifier.sha256, classifier.input_key

    keys = {kept_by()}
    configure(folder, quick_gelu=True)
    keys.add(kept_by())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["a</w>"], words["photo</w>"] = words["photo</w>"], words["a</w>"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    keys.add(kept_by())
    assert len(keys) == 3


def called(names: Sequence[str]) -> list[RecipeClass]:
    return [RecipeClass(f"{label}", name, label, label, ()) for label, name in enumerate(names)]


def test_names_of_folders_are_asked_in_words() -> None:
    def directions(*names: str) -> torch.Tensor:
        return of_open_clip.load("open_clip:lab:clip", "cpu", called(names)).directions

    assert torch.equal(directions("red_bag", "t_shirt_"), directions("red bag", "t shirt"))


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (("n01440764", "n01443537", "bag"), "2 of 3 classes have a number or an id as a name"),
        (("01", "02"), "2 of 2 classes"),
        (("bag", "n01 road", "7"), ""),
    ],
)
def test_names_that_are_no_words_are_told(names: tuple[str, ...], note: str) -> None:
    read = of_open_clip.load("open_clip:lab:clip", "cpu", called(names)).read
    assert note in read and bool(note) == bool(read)
