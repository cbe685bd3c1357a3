"""What a model's answers are called: by the recipe's classes, by ImageNet's labels, or by the model's own names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from counterfoil.prediction.class_map import ClassMap
from counterfoil.recipe import RecipeClass


def answer_names(classes: Sequence[RecipeClass], class_map: ClassMap) -> Callable[[int], str]:
    """A function from a model's output to its name for people."""
    if class_map.outputs == "imagenet":
        from timm.data.imagenet_info import ImageNetInfo

        info = ImageNetInfo()
        return lambda output: info.index_to_description(output).split(",")[0]
    if class_map.outputs == "names":
        by_output = {output: one.name for one, own in zip(classes, class_map.targets, strict=True) for output in own}
        labels = class_map.label_names or ()
        return lambda output: by_output.get(output) or labels[output]
    by_source_label = {one.source_label: one.name for one in classes}
    return lambda output: by_source_label.get(output, f"source label {output}")
