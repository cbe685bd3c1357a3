"""Corrupt photographs: beside imagecorruptions, the published code as a package, and the nearest
transforms of albumentations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benches.corrupt import (
    ALBUMENTATIONS,
    Change,
    ours,
    published,
    small_picture,
    transformed,
)
from benches.evaluate import save_windows
from peers_bench.pair import Agreement, Pair

NEEDS = ("imagecorruptions", "albumentations")
# Without glass_blur and gaussian_blur, which fail with scikit-image from 0.26 on.
FIXED = (
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "saturate",
)
RANDOM = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "speckle_noise",
    "motion_blur",
    "snow",
    "frost",
    "fog",
    "spatter",
    "elastic_transform",
)
PHOTOGRAPHS = 4
# The changed photographs of each kind.
Changed = dict[str, np.ndarray]
ONE_LEVEL = 1.0
# Of the mean change of a pixel by random kinds.
ALIKE = 0.25


def pairs(present: Sequence[str]) -> Iterator[Pair]:
    """Yield kinds without chance, kinds with chance, and what albumentations has."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_windows(folder, PHOTOGRAPHS)
        photographs = [small_picture(path) for path in sorted(folder.glob("*/*.jpg"))]
    size = f"{PHOTOGRAPHS} photographs of 224 pixels, severity 3"
    if "imagecorruptions" in present:
        for kinds, what, agreement in (
            (FIXED, "kinds without chance", same_levels),
            (RANDOM, "kinds with chance", alike(photographs)),
        ):
            yield Pair(
                what=f"{len(kinds)} corruptions, {what}: {size}",
                peer="imagecorruptions",
                way="`corrupt`",
                ours=over(ours, kinds, photographs),
                peers=over(published, kinds, photographs),
                agreement=agreement,
            )
    if "albumentations" in present:
        yield Pair(
            what=f"{len(ALBUMENTATIONS)} corruptions: {size}",
            peer="albumentations",
            way="the transform nearest in kind",
            ours=over(ours, tuple(ALBUMENTATIONS), photographs),
            peers=over(transformed, tuple(ALBUMENTATIONS), photographs),
            agreement=other_kinds,
        )


def over(
    change: Change,
    kinds: Sequence[str],
    photographs: Sequence[np.ndarray],
) -> Callable[[], Changed]:
    """Return a function that changes all photographs by each kind."""

    def changed() -> Changed:
        results = {}
        for kind in kinds:
            images = [change(pixels, kind, seed) for seed, pixels in enumerate(photographs)]
            results[kind] = np.stack(images).astype(np.uint8).astype(np.float64)
        return results

    return changed


def same_levels(mine: Changed, other: Changed) -> Agreement:
    most = max(float(np.abs(mine[kind] - other[kind]).max()) for kind in mine)
    return Agreement(most <= ONE_LEVEL, f"grey levels differ by {most:g} at most")


def alike(
    photographs: Sequence[np.ndarray],
) -> Callable[[Changed, Changed], Agreement]:
    """Compare how far kinds with chance change a pixel on average: each side draws for itself."""
    original = np.stack(photographs).astype(np.float64)

    def compare(mine: Changed, other: Changed) -> Agreement:
        ratios = {}
        for kind, changed in mine.items():
            far = float(np.abs(changed - original).mean())
            ratios[kind] = far / float(np.abs(other[kind] - original).mean())
        least, *_, most = sorted(ratios, key=lambda kind: ratios[kind])
        words = (
            f"own draws; pixels change {ratios[least]:.2f} ({least}) to {ratios[most]:.2f}"
            f" ({most}) times as far"
        )
        return Agreement(max(abs(ratio - 1) for ratio in ratios.values()) <= ALIKE, words)

    return compare


def other_kinds(mine: Changed, other: Changed) -> Agreement:
    return Agreement(False, "other constants and methods")
