"""Processes that each make a part share one directory; one that needs it alone is refused, and
nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from store_cases import ATTACHMENTS, INPUTS, STACK, build, candidates_of, opened, plan_of

from counterfoil.errors import UserError
from counterfoil.plan.layout import Plan, PlanPart
from counterfoil.store import directory_lock as locks
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.directory_lock import directory_lock, marked_folder
from counterfoil.store.inside import list_files
from counterfoil.store.reading import read_receipts
from support.files import published
from support.refusals import refuses

FIRST = PlanPart(1, 2)
SECOND = PlanPart(2, 2)
OTHER = {**STACK, "device": "cuda", "versions": {"torch": "2.14.0", "diffusers": "0.42.0"}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_LOOKING_WAITS", 0.2)


def write_pending(store: DatasetStore, plan: Plan) -> int:
    pending = store.pending()
    for shard in pending:
        store.writer.write(shard, candidates_of(plan, shard))
    return len(pending)


def make_part(out: Path, plan: Plan, part: PlanPart) -> int:
    with opened(out, plan, part=part) as store:
        return write_pending(store, plan)


def forked(work: Callable[[], object]) -> int:
    """Return the process id of a fork that does some work and exits with 0, or with 1 if that
    raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


@contextlib.contextmanager
def held_elsewhere(out: Path, part: PlanPart) -> Iterator[int]:
    """Yield another process that holds a part; kill it at the end."""
    mark = out.parent / f"{part.number}-is-held"

    def hold() -> None:
        with opened(out, plan_of(), part=part):
            mark.touch()
            time.sleep(120)

    child = forked(hold)
    while not mark.exists():
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the process ended by itself"
        time.sleep(0.005)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_two_parts_at_once_and_the_closing_give_the_bytes_of_one_build(tmp_path: Path) -> None:
    plan = plan_of()
    with (
        opened(tmp_path / "a", plan, part=FIRST) as first,
        opened(tmp_path / "a", plan, part=SECOND) as second,
    ):
        assert write_pending(second, plan) + write_pending(first, plan) == plan.n_shards
        assert first.done() == second.done() == plan.n_shards
    assert not (tmp_path / "a" / "manifest.json").exists()
    assert published(build(tmp_path / "a", plan)) == published(build(tmp_path / "b", plan))


def test_many_processes_that_begin_one_directory_at_one_moment(tmp_path: Path) -> None:
    plan = plan_of("output.rows_per_shard=4", "samples.candidates=2")
    of = 6
    begin = tmp_path / "begin"

    def run(part: PlanPart) -> None:
        while not begin.exists():
            time.sleep(0.0005)
        make_part(tmp_path / "together", plan, part)

    children = [forked(lambda n=number: run(PlanPart(n, of))) for number in range(1, of + 1)]
    begin.touch()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * of
    with opened(tmp_path / "together", plan) as store:
        assert not store.pending()
    assert published(build(tmp_path / "together", plan)) == published(
        build(tmp_path / "alone", plan)
    )


def test_a_part_that_is_made_is_refused_to_a_second_process_and_reported_by_whom(
    tmp_path: Path,
) -> None:
    out = tmp_path / "dataset"
    with held_elsewhere(out, FIRST) as child:
        with refuses("in-use", out, f"(process id {child}) is making part 1/2"):
            make_part(out, plan_of(), FIRST)
        assert make_part(out, plan_of(), SECOND) == 3
    assert make_part(out, plan_of(), FIRST) == 4, "the lock of a killed process blocks nobody"


def test_who_needs_a_directory_alone_is_refused_while_a_part_is_made(tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    with held_elsewhere(out, SECOND) as child:
        for alone in (lambda: opened(out, plan_of()), lambda: directory_lock(out)):
            with (
                refuses("in-use", out, f"parts of it: 2/2 (process id {child})"),
                alone(),
            ):
                pass
    with directory_lock(out):
        pass


def test_a_part_is_refused_while_another_process_has_the_directory_alone(tmp_path: Path) -> None:
    with opened(tmp_path, plan_of()) as store:
        before = published(tmp_path)
        with refuses("in-use", None, "by another process"):
            make_part(tmp_path, plan_of(), FIRST)
        assert published(tmp_path) == before
        write_pending(store, plan_of())


@pytest.mark.parametrize(
    ("first", "second", "shards"), [(PlanPart(1, 3), SECOND, 3), (FIRST, PlanPart(3, 3), 2)]
)
def test_parts_of_two_numbers_are_never_made_together(
    first: PlanPart, second: PlanPart, shards: int, tmp_path: Path
) -> None:
    plan = plan_of()
    with (
        opened(tmp_path, plan, part=first),
        refuses("in-use", None, f"in {first.of} parts", f"found --shards {second}"),
    ):
        make_part(tmp_path, plan, second)
    assert make_part(tmp_path, plan, second) == shards, "one after another they may"


def test_a_part_begins_by_the_lock_and_the_attachments_of_the_first(tmp_path: Path) -> None:
    plan = plan_of()
    with opened(tmp_path, plan, part=FIRST):
        first = published(tmp_path)
        with opened(tmp_path, plan_of("description=the same birds"), part=SECOND):
            assert published(tmp_path) == first
        other = {**INPUTS, "generator": {"model": "lab:sd", "sha256": "cd" * 32}}
        for recipe, pins in ((plan_of("generator.steps=30"), INPUTS), (plan, other)):
            with (
                refuses("other-build"),
                opened(tmp_path, recipe, part=SECOND, inputs=pins),
            ):
                pass
        assert published(tmp_path) == first
    assert first.keys() == {"lock.json", "recipe.yaml", *ATTACHMENTS}


def test_what_another_part_is_writing_stays_and_is_removed_by_who_is_alone(tmp_path: Path) -> None:
    plan = plan_of()
    with opened(tmp_path, plan, part=FIRST):
        for path in (
            "data/base/test-00000-of-00002.parquet.4242.cf.tmp",
            "receipts/base-00000.json.4242.cf.tmp",
        ):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(b"half a shard")
        with opened(tmp_path, plan, part=SECOND):
            assert len(list(tmp_path.rglob("*.tmp"))) == 2
    with opened(tmp_path, plan):
        assert list(tmp_path.rglob("*.tmp")) == []


def test_another_stack_beside_a_part_is_refused_though_no_shard_is_done(tmp_path: Path) -> None:
    plan = plan_of()
    with opened(tmp_path, plan, part=FIRST) as first:
        with (
            refuses("other-stack") as refused,
            opened(tmp_path, plan, stack=OTHER, part=SECOND),
        ):
            pass
        assert 'device: "cpu" there, "cuda" here' in str(refused.value)
        with opened(tmp_path, plan, stack=OTHER, part=SECOND, allow_mixed=True) as second:
            write_pending(second, plan)
        write_pending(first, plan)
    assert {r.stack["device"] for r in read_receipts(tmp_path)} == {"cpu", "cuda"}
    assert json.loads((tmp_path / "lock.json").read_text())["stack"]["device"] == "cpu"


def test_a_part_alone_with_nothing_rendered_may_have_another_stack(tmp_path: Path) -> None:
    with opened(tmp_path, plan_of(), part=FIRST):
        pass
    with opened(tmp_path, plan_of(), stack=OTHER, part=SECOND):
        assert json.loads((tmp_path / "lock.json").read_text())["stack"]["device"] == "cuda"


def test_a_finished_dataset_stays_finished_unless_the_part_has_something_to_do(
    tmp_path: Path,
) -> None:
    plan = plan_of()
    finished = published(build(tmp_path, plan))
    (tmp_path / "receipts" / "base-00001.json").unlink()  # the second shard of the plan
    with opened(tmp_path, plan, part=FIRST) as store:
        assert not store.pending()
        assert (tmp_path / "manifest.json").exists()
    with opened(tmp_path, plan, part=SECOND) as store:
        assert [shard.id for shard in store.pending()] == ["base-00001"]
        assert not (tmp_path / "manifest.json").exists()
    assert published(build(tmp_path, plan)) == finished


def test_a_folder_of_something_else_is_refused_to_a_part(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with refuses("unusable-output", None, "not empty"):
        make_part(tmp_path, plan_of(), FIRST)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_files_that_come_and_go_while_a_directory_is_listed_are_no_matter(tmp_path: Path) -> None:
    (tmp_path / "stays").touch()
    ended = threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            for number in range(20):
                (tmp_path / f"goes-{number}").touch()
            for number in range(20):
                (tmp_path / f"goes-{number}").unlink()

    writer = threading.Thread(target=come_and_go)
    writer.start()
    try:
        assert all("stays" in list_files(tmp_path).files for _ in range(300))
    finally:
        ended.set()
        writer.join()


def test_it_is_seen_where_the_folder_is_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    with marked_folder(folder) as mark:
        mark.refuse_unseen()
        replace(mark, folder=tmp_path / "link").refuse_unseen()
        assert len(list(folder.rglob("mark-*"))) == 1
    assert not list(folder.rglob("mark-*"))


def test_a_folder_that_is_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_PATIENCE", 0.0)
    first = tmp_path / "first"
    second = tmp_path / "second"
    first.mkdir()
    with marked_folder(first) as mark:
        shutil.copytree(first, second)
        replace(mark, folder=second).refuse_unseen()  # a copy made now has it too
    with marked_folder(first) as mark:
        for other in (second, tmp_path / "absent"):
            with pytest.raises(UserError) as refused:
                replace(mark, folder=other).refuse_unseen()
            assert f"{other}: is a different folder on" in refused.value.problems[0]
            assert "--collect" in (refused.value.hint or "")


def test_two_marks_do_not_meet(tmp_path: Path) -> None:
    with marked_folder(tmp_path) as first, marked_folder(tmp_path) as second:
        first.refuse_unseen()
        second.refuse_unseen()
        assert first.name != second.name
