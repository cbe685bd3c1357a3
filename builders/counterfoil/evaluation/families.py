"""The family of an architecture, told by its name alone: resnet, vit, convnext, mobilenet and so on."""

from __future__ import annotations

import re

# What builders of a name put before it: who trained it, how, or that it is small enough for a test.
_BEFORE = re.compile(r"^(?:tf|legacy|gluon|ssl|swsl|ig|dm|test|wide)_")
# `ViTForImageClassification`, as transformers names classes.
_CLASS_OF_TRANSFORMERS = re.compile(r"for[a-z]*classification.*$")
# The first word, without the number of a version: `convnextv2_atto` is of convnext, `deit3_small` of deit.
_FIRST_WORD = re.compile(r"[a-z]+?(?=v?\d|[^a-z]|$)")
# Names that begin so, in this order, and the family that they are of. A DeiT is a ViT that is trained otherwise,
# and timm builds an LCNet by its code of MobileNetV3; RN50 is open_clip's, BiT is a ResNet v2.
_BEGINNINGS = (
    ("resnet", "resnet"),
    ("resnext", "resnet"),
    ("resnest", "resnet"),
    ("seresnet", "resnet"),
    ("seresnext", "resnet"),
    ("ecaresnet", "resnet"),
    ("skresnet", "resnet"),
    ("skresnext", "resnet"),
    ("regnet", "regnet"),
    ("mobilenet", "mobilenet"),
    ("convnext", "convnext"),
    ("flexivit", "vit"),
)
_WHOLE_WORDS = {"deit": "vit", "lcnet": "mobilenet", "rn": "resnet", "bit": "resnet"}
# What stands where no architecture is told: such models are each of a family of their own.
_UNTOLD = frozenset({"", "predictions", "open_clip", "sequential", "module", "function", "<lambda>"})


def family_of(architecture: str, name: str = "") -> str:
    """The family of an architecture (`resnet50` → resnet); one that is not known is its own, by its first word.

    `name` is the model's, which stands for its family where no architecture is told.
    """
    plain = plain_architecture(architecture)
    if plain in _UNTOLD:
        return name or architecture
    before = None
    while before != plain:
        before, plain = plain, _BEFORE.sub("", plain)
    found = _FIRST_WORD.match(_CLASS_OF_TRANSFORMERS.sub("", plain))
    if found is None:
        return plain
    word = found[0]
    if word in _WHOLE_WORDS:
        return _WHOLE_WORDS[word]
    return next((family for beginning, family in _BEGINNINGS if word.startswith(beginning)), word)


def plain_architecture(architecture: str) -> str:
    """The architecture alone, in small letters: timm's name without the tag that says how it was trained."""
    return architecture.strip().lower().partition(".")[0]


def is_told(architecture: str) -> bool:
    """Whether something is known of it, so that two of this name are alike."""
    return plain_architecture(architecture) not in _UNTOLD
