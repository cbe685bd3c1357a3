"""Drawing on a contact sheet: pictures in squares, and text that stays inside its box."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

PAPER = "#ffffff"
INK = "#1f2328"
FAINT = "#59636e"
EMPTY = "#eef0f2"
QUALITY = 88


@lru_cache
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with matplotlib and so is the same on every machine."""
    from matplotlib import get_data_path

    path = Path(get_data_path(), "fonts/ttf", "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")
    # The basic layout engine is part of Pillow; the other one is there on some machines only.
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


def wrapped(text: str, size: int, width: int, most_lines: int, bold: bool = False) -> list[str]:
    """The text in lines no wider than `width` pixels; what does not fit ends in "…"."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font(size, bold).getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most_lines:
        lines[most_lines - 1 :] = [" ".join(lines[most_lines - 1 :])]
    return [_cut(line, size, width, bold) for line in lines]


def _cut(line: str, size: int, width: int, bold: bool) -> str:
    if font(size, bold).getlength(line) <= width:
        return line
    while line and font(size, bold).getlength(f"{line}…") > width:
        line = line[:-1].rstrip()
    return f"{line}…"


@dataclass(frozen=True)
class Sheet:
    """A sheet of paper that pictures and text are put on."""

    image: Image.Image
    draw: ImageDraw.ImageDraw

    @classmethod
    def blank(cls, width: int, height: int) -> Sheet:
        image = Image.new("RGB", (width, height), PAPER)
        return cls(image, ImageDraw.Draw(image))

    def picture(self, picture: Image.Image | None, x: int, y: int, side: int) -> None:
        """A picture fitted into a square, or an empty square where there is none."""
        if picture is None:
            self.draw.rectangle((x, y, x + side - 1, y + side - 1), fill=EMPTY)
            return
        scale = side / max(picture.size)
        width, height = (max(1, round(length * scale)) for length in picture.size)
        fitted = picture.resize((width, height), Image.Resampling.LANCZOS)
        self.image.paste(fitted, (x + (side - width) // 2, y + (side - height) // 2))

    def text(
        self, lines: list[str], x: int, y: int, size: int, *, anchor: str = "la", faint: bool = False, bold=False
    ) -> None:
        """Lines of text; `anchor` says which point of the first line is at (x, y), as in Pillow."""
        fill = FAINT if faint else INK
        for number, line in enumerate(lines):
            at = (x, y + number * line_height(size))
            self.draw.text(at, line, fill=fill, font=font(size, bold), anchor=anchor)

    def encoded(self) -> bytes:
        """The sheet as WebP."""
        file = io.BytesIO()
        self.image.save(file, "WEBP", quality=QUALITY, method=4)
        return file.getvalue()


def line_height(size: int) -> int:
    """Pixels from one line of text to the next."""
    return round(size * 1.25)
