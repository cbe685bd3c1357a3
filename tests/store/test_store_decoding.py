"""Images of strangers: judged by their header, and only then decoded."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib

import pytest
from PIL import Image

from counterfoil.store.decoding import UnreadableImage, open_image, rgb_image


def encoded(format: str, side: int = 8) -> bytes:
    with io.BytesIO() as file:
        Image.new("RGB", (side, side), (1, 2, 3)).save(file, format)
        return file.getvalue()


def png_that_says(width: int, height: int, *, whole: bool = False) -> bytes:
    """A header of this size, and next to nothing behind it, or `whole` all its pixels: a bit each, all black."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    rows = (width + 15) // 8 * height if whole else 100
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP"])
def test_what_a_recipe_may_ask_for_is_opened(format: str) -> None:
    assert open_image(encoded(format)).format == format
    assert rgb_image(encoded(format)).size == (8, 8)


@pytest.mark.parametrize("format", ["GIF", "BMP", "TIFF", "PPM", "TGA", "ICO"])
def test_other_formats_are_not(format: str) -> None:
    with pytest.raises(UnreadableImage):
        open_image(encoded(format, 16))


@pytest.mark.parametrize("content", [None, 3, "text", b"", b"x", encoded("PNG")[:40], {"bytes": b""}])
def test_what_is_no_image_is_told(content: object) -> None:
    with pytest.raises(UnreadableImage):
        rgb_image(content)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("size", [(13_300, 13_300), (60_000, 60_000), (2**31 - 1, 1), (4097, 4096)])
def test_more_pixels_than_a_dataset_has_are_refused_by_the_header(size: tuple[int, int]) -> None:
    with pytest.raises(UnreadableImage, match=r"pixels, expected at most|exceeds limit"):
        open_image(png_that_says(*size))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_photographs_may_have_more_and_not_any_number() -> None:
    assert open_image(png_that_says(9_000, 9_000), photograph=True).size == (9_000, 9_000)
    with pytest.raises(UnreadableImage, match="expected at most 89,478,485"):
        open_image(png_that_says(9_500, 9_500), photograph=True)


def test_a_large_image_costs_no_memory() -> None:
    """177 million pixels in 22 kB: whoever decodes them allocates as many bytes, and thrice that as RGB."""
    large = png_that_says(13_300, 13_300, whole=True)
    code = (
        "import resource, sys, warnings\nwarnings.simplefilter('ignore')\n"
        "from counterfoil.verification.shards import look_at\n"
        "large = sys.stdin.buffer.read()\nlook_at(large[:2000])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nprint(look_at(large).fault)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], input=large, capture_output=True, check=True)
    fault, kilobytes = done.stdout.decode().splitlines()
    assert "13300×13300 pixels" in fault
    assert int(kilobytes) < 50_000


def tiff_that_says(side: int, tile: int) -> bytes:
    """A picture of a few pixels in one deflated tile of many."""
    content = zlib.compress(b"\0" * 1000)
    tags = {256: side, 257: side, 258: 8, 259: 8, 262: 1, 277: 1, 322: tile, 323: tile, 324: 8, 325: len(content)}
    offset = 8 + len(content) + len(content) % 2
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return (
        struct.pack("<2sHI", b"II", 42, offset) + content.ljust(offset - 8, b"\0")
        + struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0)
    )  # fmt: skip


def test_a_tile_is_no_larger_than_a_picture_may_be() -> None:
    assert open_image(tiff_that_says(10, 16), photograph=True).size == (10, 10)
    with pytest.raises(UnreadableImage, match="a tile of it has 1,600,000,000 pixels"):
        open_image(tiff_that_says(10, 40_000), photograph=True)


def test_a_jpeg_has_as_many_scans_as_encoders_write() -> None:
    with io.BytesIO() as file:
        Image.effect_noise((64, 64), 50).convert("RGB").save(file, "JPEG", progressive=True)
        whole = file.getvalue()
    assert rgb_image(whole).size == (64, 64)
    start = whole.rindex(b"\xff\xda")
    with pytest.raises(UnreadableImage, match=r"has 10\d scans, expected at most 100"):
        open_image(whole[:start] + whole[start:-2] * 100 + whole[-2:])


def test_what_no_photograph_is_is_told_in_words() -> None:
    with pytest.raises(UnreadableImage, match="cannot identify image file"):
        open_image(b"<svg xmlns='http://www.w3.org/2000/svg'/>", photograph=True)
    with io.BytesIO() as file:
        Image.new("RGB", (8, 8)).save(file, "MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))])
        assert rgb_image(file.getvalue(), photograph=True).size == (8, 8)
