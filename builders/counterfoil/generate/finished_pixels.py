"""Finished pixels as pictures of 8 bits: rounded where they were drawn, and copied while the next batch is drawn.

On a GPU a picture's levels are a quarter of its numbers, and they are copied to pinned memory behind the drawing, on
the same stream: whoever wants them waits for them alone, and the thread that draws waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

# Waits for pictures, uint8 [height, width, 3] each; None for one whose numbers were not all finite.
DrawnAhead = Callable[[], list["np.ndarray | None"]]


def as_pictures(pixels: torch.Tensor) -> DrawnAhead:
    """Pixels [n, 3, height, width] from 0 to 1, of any number type, on their way to be pictures.

    Levels are rounded in float32, half to even, on every device alike.
    """
    import torch

    numbers = pixels.float()
    finite = torch.isfinite(numbers).flatten(1).all(1)
    # What is not finite has no level; nobody looks at it.
    levels = (numbers.nan_to_num(0.0).clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    wait = None
    if pixels.is_cuda:
        levels, finite = (_pinned(part) for part in (levels, finite))
        copied = torch.cuda.Event(blocking=True)
        copied.record(torch.cuda.current_stream(pixels.device))
        wait = copied.synchronize

    def pictures() -> list[np.ndarray | None]:
        if wait is not None:
            wait()
        kept = finite.tolist()
        return [image if kept[place] else None for place, image in enumerate(levels.numpy())]

    return pictures


def _pinned(part: torch.Tensor) -> torch.Tensor:
    """A copy in memory that a GPU writes by itself, under way."""
    import torch

    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True)
