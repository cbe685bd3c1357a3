"""Dataset directories hold regular files: links, pipes and paths that lead out are never
followed."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from store_cases import build, cached_copy, plan_of

from counterfoil.errors import RunFailure
from counterfoil.regular_files import UnfitFile
from counterfoil.store.atomic import try_folder
from counterfoil.store.decoding import UnreadableImage, open_image, rgb_image
from counterfoil.store.inside import (
    is_outside,
    list_files,
    read_inside,
    refuse_unfit,
    refuse_written_inside,
)
from counterfoil.store.layout import receipt_path
from counterfoil.store.lock import read_lock
from counterfoil.store.manifest import changed_data, published_paths, read_manifest, verify_files
from counterfoil.store.reading import read_batches, read_receipts
from counterfoil.store.receipts import finished_shards
from counterfoil.store.replacement import settle_directory
from support.files import published
from support.refusals import refuses

Spoil = Callable[[Path, Path], None]


@pytest.fixture
def dataset(cranes: Path) -> Path:
    return cranes


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("mine")
    return tmp_path / "secret"


def link_a_file(dataset: Path, secret: Path) -> None:
    (dataset / "data" / "extra.parquet").symlink_to(secret / "file")


def link_a_folder(dataset: Path, secret: Path) -> None:
    (dataset / "more").symlink_to(secret)


def link_inside(dataset: Path, secret: Path) -> None:
    (dataset / "more").symlink_to(dataset / "recipe.yaml")


def link_to_nothing(dataset: Path, secret: Path) -> None:
    (dataset / "more").symlink_to(dataset / "none")


def link_in_private(dataset: Path, secret: Path) -> None:
    (dataset / ".counterfoil").mkdir(exist_ok=True)
    (dataset / ".counterfoil" / "evaluation").symlink_to(secret)


def pipe(dataset: Path, secret: Path) -> None:
    os.mkfifo(dataset / "tokens" / "pipe")


def moved_shards(dataset: Path, secret: Path) -> None:
    shutil.move(dataset / "data", secret / "data")
    (dataset / "data").symlink_to(secret / "data")


SPOILS = [
    link_a_file,
    link_a_folder,
    link_inside,
    link_to_nothing,
    link_in_private,
    pipe,
    moved_shards,
]


@pytest.mark.parametrize("spoil", SPOILS)
def test_whoever_opens_or_verifies_a_directory_refuses_what_is_no_file_of_it(
    dataset: Path, secret: Path, spoil: Spoil
) -> None:
    settle_directory(dataset)
    assert verify_files(dataset) == []
    spoil(dataset, secret)
    with pytest.raises(
        RunFailure, match=r"is a (link|pipe), expected a regular file of the dataset"
    ):
        settle_directory(dataset)
    with pytest.raises(RunFailure):
        published_paths(dataset)
    assert any("expected a regular file of the dataset" in line for line in verify_files(dataset))
    assert not any(path.startswith("more/") for path in list_files(dataset).files)


def test_every_problem_is_named_at_once(dataset: Path, secret: Path) -> None:
    link_a_file(dataset, secret)
    link_a_folder(dataset, secret)
    pipe(dataset, secret)
    with pytest.raises(RunFailure) as caught:
        refuse_unfit(dataset)
    assert len(caught.value.problems) == 3


def test_a_copy_of_the_hubs_client_is_whole_where_links_lead_to_its_blobs_and_nowhere_else(
    dataset: Path, secret: Path, tmp_path: Path
) -> None:
    copy = cached_copy(dataset, tmp_path / "hub" / "datasets--a--b")
    settle_directory(copy)
    assert verify_files(copy) == []
    assert changed_data(copy, read_receipts(copy)) == []
    assert [receipt.files for receipt in read_receipts(copy)] == [
        receipt.files for receipt in read_receipts(dataset)
    ]
    shared = tmp_path / "hub" / "blobs" / "ab" / "notes"
    shared.parent.mkdir(parents=True)
    shared.write_text("no blob by its name")
    for target in (secret / "file", copy.parent.parent / "blobs" / "link", shared):
        (copy.parent.parent / "blobs" / "link").unlink(missing_ok=True)
        (copy.parent.parent / "blobs" / "link").symlink_to(secret / "file")
        (copy / "more").unlink(missing_ok=True)
        (copy / "more").symlink_to(target)
        with pytest.raises(RunFailure, match="more: is a link"):
            settle_directory(copy)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", ".", "a\0b", "a\\b"])
def test_paths_that_lead_out_are_known(path: str) -> None:
    assert is_outside(path)
    assert not is_outside("data/base/test-00000-of-00001.parquet")


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secret/file", "data/../../secret/file", "README.md", "x"]
)
def test_a_receipt_names_files_of_its_own_shard_only(
    dataset: Path, secret: Path, path: str
) -> None:
    receipt = sorted((dataset / "receipts").iterdir())[0]
    document = json.loads(receipt.read_text())
    document["files"][0]["path"] = path
    receipt.write_text(json.dumps(document))
    with refuses("damaged-shard", None, "another shard", kind=RunFailure):
        read_receipts(dataset)
    with pytest.raises(RunFailure):
        list(read_batches(dataset))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": [{}] * 300_000}, "has a list of 300,000 values"),
        (
            {"counts": {shift: dict.fromkeys(map(str, range(90_000)), -1) for shift in "abc"}},
            "more than 250,000 values",
        ),
    ],
)
def test_a_receipt_is_bounded_before_each_fault_takes_memory(
    dataset: Path, change: dict[str, object], message: str
) -> None:
    receipt = sorted((dataset / "receipts").iterdir())[0]
    receipt.write_text(json.dumps(json.loads(receipt.read_text()) | change))
    with pytest.raises(RunFailure, match=message):
        read_receipts(dataset)


def test_a_manifest_names_no_file_outside(dataset: Path, secret: Path) -> None:
    document = json.loads((dataset / "manifest.json").read_text())
    document["files"][0]["path"] = "../secret/file"
    (dataset / "manifest.json").write_text(json.dumps(document))
    assert read_manifest(dataset) is None


@pytest.mark.parametrize("name", ["../secret", "/secret", "", ".counterfoil", "..", "a/b", 3, None])
@pytest.mark.parametrize("key", ["new", "gone"])
def test_a_journal_moves_entries_of_the_dataset_and_nothing_else(
    dataset: Path, secret: Path, key: str, name: object
) -> None:
    folder = dataset / ".counterfoil" / "replacement"
    (folder / "new").mkdir(parents=True)
    (folder / "swap.json").write_text(json.dumps({"new": [], "gone": [], key: [name]}))
    before = published(dataset)
    with pytest.raises(RunFailure, match=rf"swap\.json: is not the journal of a swap: {key}\.0: "):
        settle_directory(dataset)
    assert (secret / "file").read_text() == "mine"
    assert published(dataset) == before


NESTED = b'{"a":' * 100_000


@pytest.mark.parametrize(
    "content", [NESTED, b"[" * 100_000, b"\xff", b'"\\ud800"', b"[]", b"null", b"1e999", b"NaN"]
)
@pytest.mark.parametrize("name", ["lock.json", "manifest.json", "receipts"])
def test_documents_of_any_content_are_refused_in_words(
    dataset: Path, name: str, content: bytes
) -> None:
    file = sorted((dataset / "receipts").iterdir())[0] if name == "receipts" else dataset / name
    file.write_bytes(content)
    match name:
        case "lock.json":
            with pytest.raises(RunFailure, match=r"lock\.json"):
                read_lock(dataset)
        case "receipts":
            with pytest.raises(RunFailure, match="receipts/"):
                read_receipts(dataset)
        case _:
            assert read_manifest(dataset) is None
            assert verify_files(dataset) != []


def test_documents_too_large_to_be_one_are_not_read(dataset: Path) -> None:
    os.truncate(dataset / "lock.json", 1 << 40)  # a hole: it takes no room
    with pytest.raises(RunFailure, match="expected at most 32,000,000"):
        read_lock(dataset)


@pytest.mark.parametrize(
    "change",
    [
        {"groups": [{"name": "../x", "shards": 1}]},
        {"groups": [{"name": "base", "shards": "1"}]},
        {"groups": [{"name": "base", "shards": -1}]},
        {"groups": [{"name": ["base"], "shards": 1}]},
        {"groups": 3},
        {"hashes": {"plan": 3}},
        {"hashes": []},
        {"plan": []},
        {"stack": None},
    ],
)
def test_a_lock_of_another_form_is_refused_in_words(dataset: Path, change: dict) -> None:
    document = json.loads((dataset / "lock.json").read_text()) | change
    (dataset / "lock.json").write_text(json.dumps(document))
    with pytest.raises(RunFailure, match="is not a lock of Counterfoil"):
        read_lock(dataset)


@pytest.mark.parametrize(
    "name",
    [
        b"\xff\xfe",
        b"data/base/\xff",
        b"receipts/\xff.json",
        b"n\xe4mlich.txt",
        b"a\n  Repair: rm b",
    ],
)
def test_a_name_that_is_no_text_is_reported_before_anything_is_written(
    dataset: Path, name: bytes
) -> None:
    before = published(dataset)
    (dataset / os.fsdecode(name)).touch()
    for run in (lambda: settle_directory(dataset), lambda: build(dataset, plan_of())):
        with pytest.raises(
            RunFailure, match="has a name that is not text, expected UTF-8"
        ) as refused:
            run()
        assert "\n" not in refused.value.problems[0]
    assert not [line for line in verify_files(dataset) if "\n" in line]
    (dataset / os.fsdecode(name)).unlink()
    assert published(dataset) == before
    (dataset / os.fsdecode(b".\xff")).touch()  # hidden: it is not published
    build(dataset, plan_of())
    assert verify_files(dataset) == []


def test_receipts_behind_a_link_are_none(tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    name = receipt_path("base", 0)
    (elsewhere / Path(name).name).touch()
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "receipts").symlink_to(elsewhere)
    assert finished_shards(tmp_path / "dataset") == set()
    (tmp_path / "dataset" / "receipts").unlink()
    elsewhere.rename(tmp_path / "dataset" / "receipts")
    assert len(finished_shards(tmp_path / "dataset")) == 1


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="a path follows no circle from 3.13 on")
def test_a_place_behind_a_circle_of_links_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with refuses("unusable-output", None, "circle"):
        refuse_written_inside(tmp_path / "loop" / "page.html", tmp_path / "data")


def test_no_folder_is_made_among_the_files_of_a_dataset(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(dataset)
    for inside in (dataset / "new", dataset / "data" / "new" / "deep", tmp_path / "link" / "new"):
        for of_dataset in (False, True):
            with refuses("unusable-output", None, "lies inside the dataset"):
                try_folder(inside, of_dataset=of_dataset)
    with refuses("unusable-output", None, "lies inside the dataset"):
        try_folder(dataset)
    try_folder(dataset, of_dataset=True)
    try_folder(dataset / ".counterfoil" / "report")
    try_folder(dataset.parent / "new")
    assert verify_files(dataset) == []


def test_a_document_in_a_linked_folder_is_not_read(dataset: Path, secret: Path) -> None:
    (dataset / "evaluation").symlink_to(secret)
    with pytest.raises(UnfitFile, match="lies under a link"):
        read_inside(dataset, "evaluation/file")
    assert read_inside(dataset, "README.md")


# Images of strangers: judged by their header, and only then decoded.


def encoded(format: str, side: int = 8) -> bytes:
    with io.BytesIO() as file:
        Image.new("RGB", (side, side), (1, 2, 3)).save(file, format)
        return file.getvalue()


def png_that_says(width: int, height: int, *, whole: bool = False) -> bytes:
    """Return a header of this size, and next to nothing behind it, or `whole` all its pixels: a bit
    each, all black."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    rows = (width + 15) // 8 * height if whole else 100
    return (
        b"\x89PNG\r\n\x1a\n"
        + header
        + chunk(b"IDAT", zlib.compress(b"\0" * rows))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP"])
def test_what_a_recipe_may_ask_for_is_opened(format: str) -> None:
    assert open_image(encoded(format)).format == format
    assert rgb_image(encoded(format)).size == (8, 8)


@pytest.mark.parametrize("format", ["GIF", "BMP", "TIFF", "PPM", "TGA", "ICO"])
def test_other_formats_are_not(format: str) -> None:
    with pytest.raises(UnreadableImage):
        open_image(encoded(format, 16))


@pytest.mark.parametrize(
    "content", [None, 3, "text", b"", b"x", encoded("PNG")[:40], {"bytes": b""}]
)
def test_what_is_no_image_is_reported(content: object) -> None:
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
    """177 million pixels in 22 kB take as many bytes when decoded, and thrice that as RGB."""
    large = png_that_says(13_300, 13_300, whole=True)
    code = (
        "import resource, sys, warnings\nwarnings.simplefilter('ignore')\n"
        "from counterfoil.dataset.verification.shards import look_at\n"
        "large = sys.stdin.buffer.read()\nlook_at(large[:2000])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nprint(look_at(large).fault)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=large, capture_output=True, check=True
    )
    fault, kilobytes = done.stdout.decode().splitlines()
    assert "13300×13300 pixels" in fault
    assert int(kilobytes) < 50_000


def tiff_that_says(side: int, tile: int) -> bytes:
    """Return a picture of a few pixels in one deflated tile of many."""
    content = zlib.compress(b"\0" * 1000)
    tags = {
        256: side,
        257: side,
        258: 8,
        259: 8,
        262: 1,
        277: 1,
        322: tile,
        323: tile,
        324: 8,
        325: len(content),
    }
    offset = 8 + len(content) + len(content) % 2
    entries = b"".join(
        struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items())
    )
    return (
        struct.pack("<2sHI", b"II", 42, offset) + content.ljust(offset - 8, b"\0")
        + struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0)
    )  # fmt: skip


def test_a_tile_is_no_larger_than_a_picture_may_be() -> None:
    assert open_image(tiff_that_says(10, 16), photograph=True).size == (10, 10)
    with pytest.raises(UnreadableImage, match="it declares a tile of 1,600,000,000 pixels"):
        open_image(tiff_that_says(10, 40_000), photograph=True)


def test_a_jpeg_has_as_many_scans_as_encoders_write() -> None:
    with io.BytesIO() as file:
        Image.effect_noise((64, 64), 50).convert("RGB").save(file, "JPEG", progressive=True)
        whole = file.getvalue()
    assert rgb_image(whole).size == (64, 64)
    start = whole.rindex(b"\xff\xda")
    with pytest.raises(UnreadableImage, match=r"has 10\d scans, expected at most 100"):
        open_image(whole[:start] + whole[start:-2] * 100 + whole[-2:])


def test_what_no_photograph_is_is_reported_in_words() -> None:
    with pytest.raises(UnreadableImage, match="cannot identify image file"):
        open_image(b"<svg xmlns='http://www.w3.org/2000/svg'/>", photograph=True)
    with io.BytesIO() as file:
        Image.new("RGB", (8, 8)).save(
            file, "MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))]
        )
        assert rgb_image(file.getvalue(), photograph=True).size == (8, 8)
