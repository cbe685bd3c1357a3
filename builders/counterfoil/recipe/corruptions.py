"""The corruptions that a recipe may name, each with the kind of shift that it is, and what goes with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# The fifteen of Hendrycks and Dietterich 2019 and their extra four; then what cameras and pipelines do.
KINDS: Mapping[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
    "camera": ("darker", "colour_cast", "greyscale", "rotation", "occlusion", "low_resolution"),
}
KIND_OF: Mapping[str, str] = {name: kind for kind, names in KINDS.items() for name in names}
# Of the pairs of a built dataset: each base image with the brightness and contrast of its shifted partner.
MATCH = "match"
SEVERITY = "severity"
MOST_SEVERE = 5
_SCREENED_BY = {"model": "the CLIP that screens, such as lab:clip", "object_threshold": "a number or `percentile:`"}


def corrupts(recipe: Mapping[str, Any]) -> bool:
    return _mapping(recipe.get("generator")).get("kind") == "corrupt"


def corrupted_row_problems(
    recipe: Mapping[str, Any], shifts: Mapping[str, Any]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """A corruption for each shift, and no words to draw by; and none where images are not corrupted."""
    specs: list[tuple[tuple[str | int, ...], Any]] = [
        (("prompts", "shifts", name), _mapping(spec)) for name, spec in shifts.items()
    ]
    if not corrupts(recipe):
        for path, spec in specs:
            for key in ("corruption", "severity"):
                if spec.get(key) is not None:
                    yield (*path, key), "rows are corrupted by generator.kind corrupt alone, expected null"
        return
    if recipe.get("tokens") is not None:
        yield ("tokens",), "rows that are corrupted are not drawn from prompts, expected null"
    for path, spec in [(("prompts", "base"), _mapping(_mapping(recipe.get("prompts")).get("base"))), *specs]:
        for key in ("prompt", "embedding"):
            if spec.get(key) is not None:
                yield (*path, key), "rows that are corrupted are not drawn, expected null"
    for path, spec in specs:
        if spec.get("corruption") is None:
            yield (*path, "corruption"), "missing, expected what is done to the rows, such as fog"
        elif spec["corruption"] == MATCH:
            if spec.get("severity") is not None:
                yield (*path, "severity"), "match has no severity, expected null"
            if _mapping(recipe.get("source")).get("config") != "base":
                told = "match takes the pairs of a built dataset, expected base: the config of its base images"
                yield ("source", "config"), told


def screening_problems(
    recipe: Mapping[str, Any], shifts: Mapping[str, Any]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """A CLIP that screens, but where rows are corrupted, which need none; and nothing to screen by without one."""
    screen = recipe.get("screen", {})
    if not isinstance(screen, Mapping) or screen.get("model") is not None:
        return
    if not corrupts(recipe):
        for key, expected in _SCREENED_BY.items():
            if screen.get(key) is None:
                yield ("screen", key), f"missing, expected {expected}"
        return
    told = "without screen.model nothing is screened, expected null"
    least = _mapping(screen.get("object_threshold"))
    if least.get("percentile") is not None or least.get("classes") or least.get("value", -1) != -1:
        yield ("screen", "object_threshold"), told
    for key in ("weights", "shift_threshold"):
        if screen.get(key) is not None:
            yield ("screen", key), told
    if screen.get("store_embeddings") is True:
        yield ("screen", "store_embeddings"), "without screen.model there is no embedding to store, expected false"
    base = _mapping(recipe.get("prompts")).get("base")
    specs: list[tuple[tuple[str | int, ...], Any]] = [(("prompts", "base"), base)]
    for path, spec in specs + [(("prompts", "shifts", name), own) for name, own in shifts.items()]:
        for key in ("caption", "threshold", "object_caption", "object_threshold"):
            if _mapping(spec).get(key) is not None:
                yield (*path, key), told


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
