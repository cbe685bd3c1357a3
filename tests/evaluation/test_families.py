"""The family of an architecture is told by its name, and what is not known is its own."""

from __future__ import annotations

import pytest

from counterfoil.evaluation.measures.transfer import family_of, is_told, relation_of


@pytest.mark.parametrize(
    ("architecture", "family"),
    [
        ("resnet10t", "resnet"),
        ("resnet50.a1_in1k", "resnet"),
        ("resnetv2_101x1_bit", "resnet"),
        ("wide_resnet50_2", "resnet"),
        ("legacy_seresnext26_32x4d", "resnet"),
        ("ResNetForImageClassification", "resnet"),
        ("RN50", "resnet"),
        ("vit_tiny_patch16", "vit"),
        ("deit3_small_patch16_224", "vit"),
        ("ViT-B-32-quickgelu", "vit"),
        ("ViTForImageClassification", "vit"),
        ("convnext_atto", "convnext"),
        ("convnextv2_tiny.fcmae", "convnext"),
        ("ConvNextV2ForImageClassification", "convnext"),
        ("mobilenetv3_small_050", "mobilenet"),
        ("tf_mobilenetv3_large_100", "mobilenet"),
        ("lcnet_035", "mobilenet"),
        ("tf_efficientnetv2_s", "efficientnet"),
        ("swinv2_tiny_window8_256", "swin"),
        ("densenet121", "densenet"),
        ("maxvit_tiny_tf_224", "maxvit"),
        ("mobilevit_s", "mobilevit"),
    ],
)
def test_a_name_tells_its_family(architecture: str, family: str) -> None:
    assert family_of(architecture, "somebody") == family


def test_every_architecture_of_the_library_has_a_family() -> None:
    import timm

    names = timm.list_models()
    families = {name: family_of(name) for name in names}
    assert all(families.values())
    assert 20 < len(set(families.values())) < len(names) / 4, "neither all in one nor each by itself"


@pytest.mark.parametrize("untold", ["", "predictions", "open_clip", "<lambda>"])
def test_what_tells_no_architecture_is_of_its_models_own_family(untold: str) -> None:
    assert not is_told(untold)
    assert family_of(untold, "predictions:a.csv") == "predictions:a.csv"


def test_kinship_is_told_by_names_and_sizes() -> None:
    judge = ("resnet10t", "aa", (400, 10))
    assert relation_of("resnet10t.tag", "bb", (400, 10), *judge) == "same architecture"
    assert relation_of("resnet10t", "bb", (900, 10), *judge) == "same family", "a wider one is no other initialisation"
    assert relation_of("resnet10t", "bb", (399, 7), *judge) == "same architecture", "another head tells nothing"
    assert relation_of("resnet10t", "bb", (400, 10), "resnet10t", "aa", (None, None)) == "same architecture"
    assert relation_of("resnet14t", "bb", (400, 10), *judge) == "same family"
    assert relation_of("vit_tiny", "bb", (400, 10), *judge) == "other"
    assert relation_of("predictions", "bb", (None, 10), "predictions", "aa", (None, 10)) == "other"
