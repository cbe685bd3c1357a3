"""The corruptions that a recipe may name, each with the kind of shift that it is."""

from __future__ import annotations

from collections.abc import Mapping

# The fifteen of Hendrycks and Dietterich 2019 and their extra four; then what cameras and pipelines do.
KINDS: Mapping[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
    "camera": ("darker", "colour_cast", "greyscale", "rotation", "occlusion", "low_resolution"),
}
KIND_OF: Mapping[str, str] = {name: kind for kind, names in KINDS.items() for name in names}
SEVERITY = "severity"
MOST_SEVERE = 5
