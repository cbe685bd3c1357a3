"""Files that a viewer can page through: what it must read for a page of rows is bounded, in both formats."""

from __future__ import annotations

import dataclasses
import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow.parquet as pq
import pytest
from store_cases import candidates_of, opened, plan_of

from counterfoil.store.shard_files import ROWS_A_GROUP_WITH_IMAGES, ROWS_A_GROUP_WITHOUT_IMAGES

IMAGE = 20_000
# What the Hub's viewer takes of a Parquet file at once; a row may have 2 MB (FIELD.md, section 3).
LARGEST_GROUP = 300_000_000
LARGEST_ROW = 2_000_000


class Counted(io.RawIOBase):
    """A file that counts the bytes read of it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.bytes_read = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.bytes_read += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


@pytest.fixture(params=["parquet", "webdataset"])
def shard(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Path]:
    """A shard of 450 accepted images of 20 kB that no compression makes smaller: what → file."""
    plan = plan_of("samples.candidates=150", "output.rows_per_shard=450", f"output.format={request.param}")
    noise = random.Random(0)
    accepted = [
        dataclasses.replace(candidate, reason="accepted", image=noise.randbytes(IMAGE))
        for candidate in candidates_of(plan, plan.shards[0])
    ]
    with opened(tmp_path, plan) as store:
        receipt = store.writer.write(plan.shards[0], accepted)
    files = {what: receipt.file(what) for what in ("data", "candidates")}
    return {what: tmp_path / file.path for what, file in files.items() if file is not None}


def test_a_page_of_images_costs_its_own_bytes_and_no_others(shard: dict[str, Path]) -> None:
    rows, overhead = 100, 200_000
    with Counted(shard["data"]) as file:
        if shard["data"].suffix == ".parquet":
            parquet = pq.ParquetFile(cast(BinaryIO, file))
            table = parquet.read_row_group(2)
            assert table.num_rows == rows
            assert min(len(image["bytes"]) for image in table.column("image").to_pylist()) == IMAGE
        else:
            with tarfile.open(fileobj=cast(BinaryIO, file), mode="r|") as tar:
                members = [tar.next() for _ in range(3 * rows)]
            stems = {member.name.partition(".")[0] for member in members if member}
            assert len(stems) == rows, "the members of a sample are adjacent"
        assert rows * IMAGE <= file.bytes_read <= rows * IMAGE + 3 * rows * 1024 + overhead


def test_row_groups_stay_within_what_a_viewer_takes(shard: dict[str, Path]) -> None:
    assert ROWS_A_GROUP_WITH_IMAGES * LARGEST_ROW <= LARGEST_GROUP
    if shard["data"].suffix != ".parquet":
        pytest.skip("tar files have no row groups")
    for what, most in (("data", ROWS_A_GROUP_WITH_IMAGES), ("candidates", ROWS_A_GROUP_WITHOUT_IMAGES)):
        metadata = pq.read_metadata(shard[what])
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        assert all(group.num_rows <= most for group in groups)
        # A row is its image and, with it, little else.
        image = IMAGE if what == "data" else 0
        assert all(group.total_byte_size / group.num_rows <= image + 1000 for group in groups)


def test_rows_hold_no_more_beside_the_image_than_a_viewer_shows(shard: dict[str, Path]) -> None:
    if shard["data"].suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(shard["candidates"]).to_pylist()
        assert "image" not in rows[0]
    else:
        with tarfile.open(shard["candidates"]) as tar:
            rows = []
            for member in tar:
                stream = tar.extractfile(member)
                assert stream
                assert member.name.endswith((".json", ".cls"))
                if member.name.endswith(".json"):
                    rows.append(json.load(stream))
    assert len(rows) == 450
    assert max(len(json.dumps(row)) for row in rows) < 1000
