"""Models that code hands over: what of them is refused, how they take images, and what of their
answers are scores.

A name means nothing once its run is over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image
from timm.data.config import resolve_model_data_config
from timm.data.transforms_factory import create_transform
from torchvision import transforms
from torchvision.transforms import ToTensor
from transformers import ViTConfig, ViTForImageClassification

from counterfoil.errors import CounterfoilError, UserError
from counterfoil.models.classifiers import describe_classifier
from counterfoil.models.classifiers.of_python import USUAL_TRANSFORMS, classifier_of, handed_over
from counterfoil.prediction.inference import shares_of


def model(batch: Any) -> Any:
    return np.zeros((len(batch), 2))


@pytest.mark.parametrize(
    ("models", "transform", "message"),
    [
        (["lab:resnet10t"], model, "needs a callable"),
        ({"one": "lab:resnet10t"}, model, "needs a callable"),
        ([model, model], None, "found a function in a list, expected names"),
        ({"mine": model}, {"mien": model}, "did you mean 'mine'"),
        ({" ": model}, None, "expected a printable name"),
    ],
)
def test_what_is_no_model_with_a_name_is_refused(models: Any, transform: Any, message: str) -> None:
    with pytest.raises(UserError, match=message), handed_over(models, transform):
        raise AssertionError("it was held")


def test_a_name_is_of_one_run() -> None:
    with handed_over({"mine": model, "theirs": "lab:resnet10t"}) as (names, held):
        assert names == ["python:mine", "lab:resnet10t"] and [handed.model for handed in held] == [
            model
        ]
        with pytest.raises(UserError, match="no other run"), handed_over({"mine": model}):
            raise AssertionError("it was held twice")
    with pytest.raises(UserError, match="only if you name it yourself"):
        describe_classifier("python:mine")


IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8))


class Scoring(torch.nn.Module):
    """A module whose scores `make` computes from the mean colours, (b, 3)."""

    def __init__(self, make: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, batch: torch.Tensor) -> Any:
        return self.make(batch.mean(dim=(2, 3)))


def scores_of(given: Any, transform: Any = None) -> torch.Tensor:
    _, classifier = classifier_of("mine", given, transform, IMAGE)
    return classifier.logits(classifier.transform()(IMAGE)[None], "cpu")


class ShiftsItsInput(torch.nn.Module):
    """A module that normalises its batch in place."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return batch.sub_(0.5).div_(0.25).mean(dim=(2, 3))


def shifts_its_input(batch: Any) -> Any:
    batch -= 0.5
    batch /= 0.25
    return batch.mean(axis=(2, 3))


@pytest.mark.parametrize("given", [ShiftsItsInput(), shifts_its_input])
def test_a_model_that_changes_its_input_leaves_that_of_others(given: Any) -> None:
    _, classifier = classifier_of("mine", given, ToTensor(), IMAGE)
    batch = ToTensor()(IMAGE)[None]
    before = batch.clone()
    scores = classifier.logits(batch, "cpu")
    assert torch.equal(batch, before)
    torch.testing.assert_close(scores, ((before - 0.5) / 0.25).mean(dim=(2, 3)))


class NeverOff(torch.nn.Module):
    """A module whose dropout is also in eval mode, as `F.dropout` is by default."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(batch.flatten(1)[:, :30] + 1, 0.2)


def in_training_mode(*layers: torch.nn.Module) -> Callable[[Any], Any]:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), *layers).train()
    return lambda batch: network(torch.from_numpy(batch)).mean(dim=(2, 3)).detach()


def quantised(batch: Any) -> Any:
    """Round by the largest number of the batch, as dynamically quantised layers do."""
    step = np.abs(batch).max() / 127
    return np.round(batch / step).mean(axis=(2, 3)) * step


OTHER = Image.fromarray(
    np.random.default_rng(1).integers(
        60,
        200,
        (40, 50, 3),
        dtype=np.uint8,
    )
)
FLIPPED = transforms.Compose([transforms.RandomHorizontalFlip(), ToTensor()])
STEADY = np.random.default_rng(2).normal(size=(3, 5))


@pytest.mark.parametrize(
    ("given", "transform", "why"),
    [
        (NeverOff(), ToTensor(), "differently each time"),
        (in_training_mode(torch.nn.Dropout(0.3)), None, "differently each time"),
        (in_training_mode(torch.nn.BatchNorm2d(8)), None, "beside another image"),
        (lambda batch: np.exp(batch.mean(axis=(2, 3))) / len(batch), None, "beside another image"),
        (Scoring(lambda means: means), FLIPPED, "its transform is random"),
        (Scoring(lambda means: means), transforms.ToTensor(), ""),
        (lambda batch: batch.mean(axis=(2, 3)) @ STEADY, None, ""),
        (lambda batch: np.float16(batch.mean(axis=(2, 3)) @ STEADY), None, ""),
        (lambda batch: np.zeros((len(batch), 4)), None, ""),
        (quantised, None, ""),
        (lambda batch: batch.reshape(1, 3, 2000)[:, :, 0], None, ""),
    ],
)
def test_answers_that_are_not_always_the_same_are_named(
    given: Any, transform: Any, why: str
) -> None:
    _, classifier = classifier_of(
        "mine",
        given,
        transform,
        IMAGE,
        more=[OTHER] * 9,
    )
    assert why in classifier.unsteady and bool(classifier.unsteady) == bool(why)
    _, alone = classifier_of("mine", given, transform, IMAGE)
    assert "beside" not in alone.unsteady


class TestScores:
    @pytest.mark.parametrize("sparse", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
    def test_sparse_scores_are_scores(self, sparse: Callable[[torch.Tensor], torch.Tensor]) -> None:
        plain = scores_of(Scoring(lambda means: means), ToTensor())
        assert torch.equal(scores_of(Scoring(lambda means: sparse(means)), ToTensor()), plain)

    @pytest.mark.parametrize(
        "make",
        [
            Scoring(lambda means: means * (1 + 2j)),
            lambda batch: batch.mean(axis=(2, 3)) * (1 + 2j),
            lambda batch: [[1 + 2j, 3.0]],
        ],
    )
    def test_complex_scores_are_refused(self, make: Any) -> None:
        with pytest.raises(UserError, match=r"expected scores .*complex"):
            scores_of(make, ToTensor())

    @pytest.mark.parametrize(("library", "scale"), [("torch", 1e39), ("numpy", -1e300)])
    def test_finite_scores_that_float32_does_not_hold_are_called_what_they_are(
        self, scale: float, library: str
    ) -> None:
        makes = {
            "torch": Scoring(lambda means: means.double() * scale),
            "numpy": lambda batch: batch.mean(axis=(2, 3)).astype(np.float64) * scale,
        }
        with pytest.raises(UserError, match=r"larger than float32 holds") as refused:
            scores_of(makes[library], ToTensor())
        assert f"e+{int(np.log10(abs(scale))) - 1}" in refused.value.problems[0]

    def test_digits_that_float32_loses_stay(self) -> None:
        sure = np.array([[1 - 1e-12, 1 - 2e-12, 0.25]])
        assert np.array_equal(scores_of(lambda batch: sure, ToTensor()).numpy(), sure)

    @pytest.mark.parametrize(
        ("ends", "scale", "shares"),
        [
            (lambda logits: logits, "logits", lambda logits: logits.softmax(1)),
            (lambda logits: logits.softmax(1), "probabilities", lambda logits: logits.softmax(1)),
            (lambda logits: 100 * logits.softmax(1), "percent", lambda logits: logits.softmax(1)),
            (
                lambda logits: logits.log_softmax(1),
                "log-probabilities",
                lambda logits: logits.softmax(1),
            ),
            (lambda logits: logits.sigmoid(), "unknown", None),
            (lambda logits: logits.sigmoid() - 0.1, "logits", None),
        ],
    )
    def test_the_end_of_a_network_decides_what_its_scores_are(
        self,
        ends: Callable[[torch.Tensor], torch.Tensor],
        scale: str,
        shares: Callable[[torch.Tensor], Any] | None,
    ) -> None:
        def logits_of(means: torch.Tensor) -> torch.Tensor:
            return torch.stack(
                [9 * means[:, 0] - 6, 2 - 5 * means[:, 1], 3 * means[:, 2] - 4], dim=1
            )

        network = Scoring(lambda means: ends(logits_of(means)))
        _, classifier = classifier_of("mine", network, ToTensor(), IMAGE, more=[IMAGE] * 3)
        assert classifier.score_scale == scale and bool(classifier.read) == (scale != "logits")
        batch = classifier.transform()(IMAGE)[None]
        confidence = shares_of(classifier.score_scale)(classifier.logits(batch, "cpu").numpy())
        if shares is not None:
            expected = shares(logits_of(batch.mean(dim=(2, 3)))).numpy()
            assert confidence == pytest.approx(expected, rel=1e-5)
        elif scale == "unknown":
            assert np.isnan(confidence).all()

    def test_further_images_show_that_scores_are_logits(self) -> None:
        network = Scoring(lambda means: means * torch.tensor([0.9, 0.8, 0.7]))
        images = [Image.new("RGB", (32, 32), colour) for colour in ("white", "black", "red")]
        assert classifier_of("mine", network, ToTensor(), images[2])[1].score_scale == "unknown"
        bright = Scoring(lambda means: means * 3 - 1.9)
        greys = [Image.new("RGB", (32, 32), (shade,) * 3) for shade in (170, 180, 250)]
        assert classifier_of("mine", bright, ToTensor(), greys[0])[1].score_scale == "unknown"
        assert (
            classifier_of("mine", bright, ToTensor(), greys[0], more=greys[1:])[1].score_scale
            == "logits"
        )

    def test_doubles_that_float32_holds_are_rounded_to_it(self) -> None:
        double = scores_of(lambda batch: batch.mean(axis=(2, 3)).astype(np.float64), ToTensor())
        assert torch.equal(double, scores_of(lambda batch: batch.mean(axis=(2, 3)), ToTensor()))

    @pytest.mark.parametrize(
        ("where", "code"), [("model", 0), ("module", "bye"), ("transform", None)]
    )
    def test_a_model_that_ends_the_program_fails_the_run(self, code: Any, where: str) -> None:
        def ends(*_: Any) -> Any:
            sys.exit(code)

        given, transform = {
            "model": (ends, ToTensor()),
            "module": (Scoring(ends), ToTensor()),
            "transform": (model, ends),
        }[where]
        with pytest.raises(CounterfoilError, match=f"failed.*called sys.exit\\({code}\\)"):
            scores_of(given, transform)


class TestTransforms:
    def test_a_module_without_one_is_refused_with_some_to_copy(self) -> None:
        with pytest.raises(UserError, match="torch module without a transform") as refused:
            scores_of(torchvision.models.resnet18())
        for code in USUAL_TRANSFORMS:
            assert code in (refused.value.hint or "")
            transform = eval(code, {"torchvision": torchvision, "T": transforms})
            assert transform(IMAGE).shape[0] == 3 and torch.is_floating_point(transform(IMAGE))

    def test_torchvisions_are_torchvisions_and_imagenets_are_imagenets(self) -> None:
        first, second, _ = (
            eval(code, {"torchvision": torchvision, "T": transforms}) for code in USUAL_TRANSFORMS
        )
        preset = torchvision.models.ResNet50_Weights.DEFAULT.transforms()
        assert torch.equal(first(IMAGE), preset(IMAGE))
        assert second.transforms[-1].mean == pytest.approx(preset.mean)
        assert second.transforms[-1].std == pytest.approx(preset.std)

    def test_a_module_of_timm_has_its_own(self) -> None:
        torch.manual_seed(0)
        module: Any = timm.create_model("test_vit", num_classes=5)
        form: dict[str, Any] = dict(resolve_model_data_config(module, use_test_size=True))
        timms: Any = create_transform(**form, is_training=False)
        with torch.no_grad():
            expected = module.eval()(timms(IMAGE)[None])
        facts, classifier = classifier_of("mine", module, None, IMAGE)
        assert torch.equal(scores_of(module), expected) and facts.num_classes == 5
        assert (
            classifier.input_size == tuple(form["input_size"])
            and classifier.crop_pct == form["crop_pct"]
        )

    def test_a_function_takes_images_as_they_are(self) -> None:
        assert torch.equal(
            scores_of(lambda batch: batch.mean(axis=(2, 3))),
            scores_of(lambda b: b.mean((2, 3)), ToTensor()),
        )


class TestNames:
    def test_of_what_transformers_and_timm_leave_in_a_module(self) -> None:
        def names_of(module: torch.nn.Module) -> Any:
            return classifier_of("mine", module, _small, IMAGE)[0].label_names

        config = ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32,
            patch_size=16, id2label={0: "cat", 1: "dog"}, label2id={"cat": 0, "dog": 1},
        )  # fmt: skip
        assert names_of(ViTForImageClassification(config)) == ("cat", "dog")
        module: Any = timm.create_model("test_vit", num_classes=3, img_size=32)
        assert names_of(module) is None
        module.pretrained_cfg["label_names"] = ["a", "b", "c"]
        assert names_of(module) == ("a", "b", "c")
        module.reset_classifier(4)  # a new head has other outputs than the names were of
        assert names_of(module) is None
        module.label_names = ["w", "x", "y", "z"]
        assert names_of(module) == ("w", "x", "y", "z")


def _small(image: Image.Image) -> torch.Tensor:
    return ToTensor()(image.resize((32, 32)))
