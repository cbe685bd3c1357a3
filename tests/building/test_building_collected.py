"""Shards that workers send: written whole or not at all, once, with only their own files; and a
build of them."""

from __future__ import annotations

import contextlib
import pickle
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from counterfoil import engines
from counterfoil.building.build_dataset import BuildProgress
from counterfoil.building.workers import ShardFiles, SpansToCollect, write_collected
from counterfoil.engines import EngineChoice, Event, Work
from counterfoil.engines.engine import Item, Result
from counterfoil.engines.executor import name_of_item
from counterfoil.engines.local import LocalEngine
from counterfoil.errors import RunFailure, UserError
from counterfoil.plan.layout import make_plan
from counterfoil.progress import listening
from counterfoil.recipe import load_recipe
from counterfoil.store import directory_lock
from counterfoil.store.dataset_store import ShardWriter
from counterfoil.store.layout import LOCK
from counterfoil.store.lock import read_lock
from counterfoil.store.reading import read_receipts
from counterfoil.store.receipts import Receipt
from tiny_builds import SHARDS, TINY, published, tiny

# The shards of the plan that all of these are of.
ASKED = {
    (shard.group, shard.number, shard.of)
    for shard in make_plan(load_recipe("wardrobe-mini", TINY)).shards
}


@pytest.fixture
def writer(undisturbed: Path, tmp_path: Path) -> ShardWriter:
    """Return the writer of a dataset that has a lock and no shard."""
    out = tmp_path / "dataset"
    out.mkdir()
    shutil.copy(undisturbed / LOCK, out)
    lock = read_lock(out)
    assert lock is not None
    return ShardWriter.of_plan(
        out, make_plan(load_recipe("wardrobe-mini", TINY)), lock.hashes, lock.stack
    )


@pytest.fixture
def sent(undisturbed: Path) -> list[ShardFiles]:
    """Return the shards of a build as a worker sends them."""
    return [
        ShardFiles(
            receipt, {file.path: (undisturbed / file.path).read_bytes() for file in receipt.files}
        )
        for receipt in read_receipts(undisturbed)
    ]


def test_what_is_written_is_what_was_sent(
    writer: ShardWriter, sent: list[ShardFiles], undisturbed: Path
) -> None:
    for shard in sent:
        write_collected(writer, shard, ASKED)
    assert len(sent) == SHARDS
    written = published(writer.directory)
    assert len(written) == 1 + sum(1 + len(shard.contents) for shard in sent)
    assert written.items() <= published(undisturbed).items()


def test_one_that_comes_again_is_left_as_it_was(
    writer: ShardWriter, sent: list[ShardFiles]
) -> None:
    write_collected(writer, sent[0], ASKED)
    other = replace(sent[0], receipt=replace(sent[0].receipt, stack={"made": "elsewhere"}))
    before = published(writer.directory)
    write_collected(writer, other, ASKED)
    assert published(writer.directory) == before


def test_what_a_killed_run_left_of_a_shard_goes(
    writer: ShardWriter, sent: list[ShardFiles]
) -> None:
    data = next(path for path in sent[0].contents if path.startswith("data/"))
    left = writer.directory / data.replace("data/", "rejected/")
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of another stack")
    write_collected(writer, sent[0], ASKED)
    assert not left.exists()


@pytest.mark.parametrize(
    "wrong", ["damaged", "missing", "more", "foreign", "outside", "other hashes"]
)
def test_what_is_not_as_its_receipt_says_is_refused(
    wrong: str, writer: ShardWriter, sent: list[ShardFiles]
) -> None:
    receipt = sent[0].receipt
    contents = dict(sent[0].contents)
    first = receipt.files[0]
    match wrong:
        case "damaged":
            contents[first.path] += b"\0"
        case "missing":
            del contents[first.path]
        case "more":
            contents["data/base/notes.txt"] = b""
        case "foreign" | "outside":
            path = sent[1].receipt.files[0].path if wrong == "foreign" else "../there.parquet"
            contents[path] = contents.pop(first.path)
            receipt = replace(receipt, files=(replace(first, path=path), *receipt.files[1:]))
        case _:
            receipt = replace(receipt, hashes={**receipt.hashes, "plan": "0" * 64})
    before = published(writer.directory.parent)
    with pytest.raises(RunFailure, match="the files that a worker sent do not match their receipt"):
        write_collected(writer, ShardFiles(receipt, contents), ASKED)
    assert published(writer.directory.parent) == before


def test_nothing_is_written_where_the_dataset_was_removed(
    writer: ShardWriter, sent: list[ShardFiles]
) -> None:
    (writer.directory / LOCK).unlink()
    with pytest.raises(RunFailure, match="was removed while it was being built"):
        write_collected(writer, sent[0], ASKED)
    assert published(writer.directory) == {}


@dataclass(frozen=True)
class OtherMachine:
    """An engine whose workers see nothing of `folder`: it is away whenever they work."""

    folder: Path
    collects: bool
    at_once: int = 1
    elsewhere: bool = True

    @classmethod
    def of(cls, devices: Sequence[str], workers: int | None, choice: EngineChoice) -> OtherMachine:
        assert choice.address is not None
        return cls(Path(choice.address), choice.collect)

    def expect(self, imports: Sequence[str]) -> None:
        pass

    def run(
        self, work: Work[Item, Result], items: Sequence[Item]
    ) -> Generator[Event[Item, Result]]:
        events = LocalEngine().run(pickle.loads(pickle.dumps(work)), items)
        away = self.folder.with_name("away")
        with contextlib.closing(events):
            while True:
                exists = self.folder.exists()
                if exists:
                    self.folder.rename(away)
                try:
                    event = next(events, None)
                finally:
                    if exists:
                        away.rename(self.folder)
                if event is None:
                    return
                yield event


def test_what_another_machine_makes_is_written_here(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_lock, "_PATIENCE", 0.0)
    monkeypatch.setattr(engines, "ENGINES", {**engines.ENGINES, "other": OtherMachine})
    out = tmp_path / "dataset"
    with pytest.raises(UserError) as refused:
        tiny(out, engine=EngineChoice("other", str(out)))
    assert f"{out}: is a different folder on" in refused.value.problems[0]
    assert not list(out.rglob("receipts/*"))
    reports: list[BuildProgress] = []

    def hear(progress: object) -> None:
        if isinstance(progress, BuildProgress):
            reports.append(progress)
            assert len(list(out.rglob("receipts/*.json"))) >= progress.shards_done

    def believed(writer: ShardWriter, shard: object) -> None:
        raise AssertionError("on a worker's machine another dataset may lie under the same path")

    monkeypatch.setattr(ShardWriter, "made_before", believed)
    with listening(hear):
        tiny(out, engine=EngineChoice("other", str(out), collect=True))
    assert published(out) == published(undisturbed)
    assert [report.images_done for report in reports] == sorted(
        report.images_done for report in reports
    )
    assert (reports[-1].images_done, reports[-1].shards_done) == (24, SHARDS)
    assert not list(out.rglob("*.tmp"))


# Shards that come back from workers: only requested ones are written, and one that came is not
# requested again.


PLAN = make_plan(load_recipe("wardrobe-mini"), None)
FIRST = PLAN.shards[:3]
NOTHING = Receipt(FIRST[0].group, FIRST[0].number, FIRST[0].of, {}, {}, (), {}, {})


@pytest.mark.parametrize(
    "change", [{"group": "../elsewhere"}, {"shard": 1_000}, {"of": 1_000}], ids=str
)
def test_a_shard_that_nobody_asked_for_is_not_written(change: dict, tmp_path: Path) -> None:
    directory = tmp_path / "dataset"
    directory.mkdir()
    (directory / LOCK).touch()
    writer = ShardWriter.of_plan(directory, PLAN, {}, {})
    with pytest.raises(RunFailure, match="a shard that was not requested"):
        requested = {(shard.group, shard.number, shard.of) for shard in FIRST}
        write_collected(writer, ShardFiles(replace(NOTHING, **change), {}), requested)
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [
        Path("dataset") / LOCK
    ]


def test_a_span_that_is_asked_for_again_comes_with_what_is_here_already() -> None:
    spans = SpansToCollect([tuple(FIRST[:2]), tuple(FIRST[2:])])
    assert len(spans) == 2
    assert spans[0].receipts == {}
    spans.note(FIRST[0].id, NOTHING)
    again = spans[0]
    assert again.receipts == {FIRST[0].id: NOTHING}
    assert spans[1].receipts == {}
    assert name_of_item(again) == f"{FIRST[0].id}, {FIRST[1].id}"
