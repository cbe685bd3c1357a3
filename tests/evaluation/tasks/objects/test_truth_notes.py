"""What is said of the objects that detectors are scored against."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from counterfoil.detection_stats import Objects
from counterfoil.evaluation.tasks.objects.notes import truth_notes

A = [2.0, 3.0, 20.0, 10.0]
B = [30.0, 3.0, 12.0, 14.0]


def notes(
    cells: list[list[tuple[int, list[float]]]],
    ids: list[list[int]] | None = None,
    size: int | None = None,
) -> str:
    """Return the notes on images of 64 × 48 pixels. cells: objects of each image, category and
    box."""
    image = [number for number, cell in enumerate(cells) for _ in cell]
    flat = [entry for cell in cells for entry in cell]
    truth = Objects.of(image, [box for _, box in flat], [category for category, _ in flat])
    given = [[number for number, _ in enumerate(cell)] for cell in cells] if ids is None else ids
    subject: Any = SimpleNamespace(
        truth=truth,
        sides=np.tile([64, 48], (len(cells), 1)),
        rows=np.arange(len(cells))[None],
        images=len(cells),
        objects=[{"id": numbers} for numbers in given],
        dataset=SimpleNamespace(
            recipe=SimpleNamespace(generator={"size": size}, kind=SimpleNamespace(edits=False))
        ),
    )
    return "\n".join(truth_notes(subject))


@pytest.mark.parametrize(
    ("cells", "more", "words"),
    [
        ([[(0, A), (0, A)], [(0, B)]], {}, "1 of 3 objects are copies"),
        ([[(0, A), (1, A)], [(0, A)]], {}, ""),  # other categories, other images
        (
            [[(0, A), (0, [60.0, 3.0, 20.0, 20.0])], [(0, B)]],
            {},
            "1 of 3 objects leave their image",
        ),
        ([[(0, A), (0, [60.0, 3.0, 4.5, 20.0])], [(0, B)]], {}, ""),  # rounding
        (
            [[(0, A), (0, [90.0, 3.0, 20.0, 20.0])], [(0, B)]],
            {},
            "1 of 3 objects have no area in their image",
        ),
        (
            [[(0, A), (0, [9.0, 3.0, 0.0, 20.0])], [(0, B)]],
            {},
            "1 of 3 objects have no area in their image",
        ),
        ([[(0, A)], [(0, B)]], {"ids": [[0], [1]]}, "An object has the annotation id 0"),
        ([[(0, A)], [(0, B)]], {"ids": [[0], [0]]}, ""),  # counted in each image
        (
            [[(0, A)], [(0, B)]],
            {"size": 48},
            "2 images of 2 were reduced to a shorter side of 48 pixels",
        ),
        ([[(0, A)], [(0, B)]], {"size": 640}, ""),
        ([[], []], {}, ""),
    ],
)
def test_what_changes_a_number_is_told(cells: Any, more: dict[str, Any], words: str) -> None:
    sentences = notes(cells, **more)
    assert words in sentences and (words or not sentences)
