"""Images that decoders stumble over: huge ones in few bytes, odd modes, broken ones, and what is no
image at all."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from random import Random

_NO_PICTURES = {
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "text": b"no image",
    "empty": b"",
    "script": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99999 99999\n(/etc/passwd) (r) file\n",
}


def png_of(
    width: int, height: int, *, bits: int = 1, colour: int = 0, rows: int | None = None
) -> bytes:
    """Return a PNG of one colour: small, however large its header says it is. With `rows` it ends
    early."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    row = b"\0" * (1 + (width * bits * channels + 7) // 8)
    packer = zlib.compressobj(9)
    left = height if rows is None else rows
    packed = []
    while left > 0:
        count = min(left, max(1, 4_000_000 // len(row)))
        packed.append(packer.compress(row * count))
        left -= count
    packed.append(packer.flush())
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))]
    if colour == 3:
        chunks.append((b"PLTE", b"\0\0\0\xff\xff\xff"))
    chunks += [(b"IDAT", b"".join(packed)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    named = name + content
    return struct.pack(">I", len(content)) + named + struct.pack(">I", zlib.crc32(named))


def _with_chunk(png: bytes, name: bytes, content: bytes) -> bytes:
    """Insert a chunk after the header, which is 33 bytes."""
    return png[:33] + _chunk(name, content) + png[33:]


def _saved(chance: Random) -> bytes:
    from PIL import Image

    mode, form = chance.choice(
        (
            ("1", "PNG"),
            ("L", "PNG"),
            ("P", "PNG"),
            ("LA", "PNG"),
            ("RGBA", "PNG"),
            ("I;16", "PNG"),
            ("CMYK", "JPEG"),
            ("L", "JPEG"),
            ("P", "GIF"),
            ("RGB", "BMP"),
            ("F", "TIFF"),
            ("I", "TIFF"),
            ("RGB", "WEBP"),
            ("RGBA", "WEBP"),
            ("RGB", "PPM"),
            ("RGB", "ICO"),
            ("RGB", "TGA"),
            ("RGB", "PDF"),
            ("RGB", "EPS"),
            ("RGB", "JPEG2000"),
        )
    )
    size = chance.choice(((64, 64), (64, 64), (1, 1), (1, 5_000), (63, 65), (16, 16)))
    with io.BytesIO() as file:
        Image.new(mode, size).save(file, form)
        return file.getvalue()


def _kept(shared: Path, width: int) -> bytes:
    """Return a square of three bytes a pixel, made once: packing it takes a second."""
    path = shared / f"square-{width}.png"
    if not path.is_file():
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(png_of(width, width, bits=8, colour=2))
        temporary.rename(path)
    return path.read_bytes()


def odd_picture(chance: Random, shared: Path) -> tuple[str, bytes]:
    """Return a description and its bytes. `shared` is a folder for what is costly to make."""
    what = chance.choice(
        (
            "bomb",
            "bomb",
            "wall",
            "palette bomb",
            "animation",
            "text bomb",
            "icc bomb",
            "early end",
            "no pixel",
            "svg",
            "odd mode",
            "odd mode",
            "text",
            "empty",
            "cut",
            "header",
            "page",
            "script",
        )
    )
    small = png_of(64, 64, bits=8, colour=2)
    if what in _NO_PICTURES:
        return what, _NO_PICTURES[what]
    match what:
        case "bomb":  # under the size at which Pillow refuses, 2 x 89,478,485 pixels
            return "PNG of 13,300 x 13,300", _kept(shared, 13_300)
        case "wall":  # over it
            return "PNG of 60,000 x 60,000", png_of(60_000, 60_000, rows=50)
        case "palette bomb":
            return "PNG of 9,000 x 9,000 in a palette", png_of(9_000, 9_000, bits=1, colour=3)
        case "animation":
            from PIL import Image

            with io.BytesIO() as file:
                frames = [Image.new("P", (64, 64), number) for number in range(60)]
                frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
                return what, file.getvalue()
        case "text bomb" | "icc bomb":
            name = b"zTXt" if what == "text bomb" else b"iCCP"
            packed = zlib.compress(b"x" * 80_000_000, 9)
            return what, _with_chunk(small, name, b"a\0\0" + packed)
        case "early end":
            return what, png_of(64, 64, bits=8, colour=2, rows=3)
        case "no pixel":
            return what, png_of(0, 64) if chance.random() < 0.5 else png_of(64, 0)
        case "odd mode":
            return what, _saved(chance)
        case "cut":
            return what, small[: chance.randrange(1, len(small))]
        case "page":
            return what, _with_chunk(small, b"pHYs", b"\xff" * 9)
    return what, small[:33] + b"\0" * 50
