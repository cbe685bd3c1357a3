"""Pictures that count how often they are decoded: PNGs with a mark behind their end, opened by
Pillow's own plugin."""

from __future__ import annotations

from typing import IO

from PIL import Image
from PIL.PngImagePlugin import PngImageFile

MARK = b"COUNTED!"
# Appending is atomic, so parallel threads lose no count.
decoded: list[int] = []


def counted(png: bytes) -> bytes:
    return png + MARK


def _open(file: IO[bytes], filename: str | bytes) -> PngImageFile:
    if file.read().endswith(MARK):
        decoded.append(1)
    file.seek(0)
    return PngImageFile(file, filename)


def register() -> None:
    """Let Pillow open PNGs through the count; a repeated call is harmless."""
    Image.init()
    Image.register_open("PNG", _open, Image.OPEN["PNG"][1])
