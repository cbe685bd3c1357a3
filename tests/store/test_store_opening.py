"""Opening a directory: what is refused, with which words, and what is left as it was."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from store_cases import INPUTS, STACK, build, candidates_of, opened, plan_of

from counterfoil.documents import document_differences
from counterfoil.errors import RunFailure, UserError
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.directory_lock import directory_lock
from counterfoil.store.reading import read_rows
from support.files import published
from support.refusals import refuses


def refusal(out: Path, plan=None, **options) -> UserError:
    before = published(out)
    with pytest.raises(UserError) as caught, opened(out, plan or plan_of(), **options):
        pass
    assert published(out) == before, "a refusal must change nothing"
    return caught.value


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    error = refusal(tmp_path)
    assert "not empty" in str(error)
    assert "thesis.tex" in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("")
    with refuses("unusable-output", path), opened(path, plan_of()):
        pass


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("generator.steps=30", "generator.steps: 20 there, 30 here"),
        ("prompts.shifts.rain=null", "prompts.rain: "),
        ("screen.object_threshold=0.3", "base.object_threshold.value: 0.25 there, 0.3 here"),
    ],
)
def test_another_recipe_is_refused_with_the_difference(
    tmp_path: Path, override: str, line: str
) -> None:
    build(tmp_path, plan_of())
    assert line in str(refusal(tmp_path, plan_of(override)))


def test_other_inputs_are_refused_with_the_difference(tmp_path: Path) -> None:
    build(tmp_path, plan_of())
    other = {**INPUTS, "generator": {"model": "lab:sd", "sha256": "cd" * 32}}
    message = str(refusal(tmp_path, inputs=other))
    assert "built from other inputs" in message
    assert f'generator.sha256: "{"ab" * 32}"'[:40] in message
    assert "another plan" not in message


def test_a_recipe_that_differs_in_no_hash_is_accepted_and_kept(tmp_path: Path) -> None:
    build(tmp_path, plan_of())
    build(tmp_path, plan_of("description=the same birds"))
    assert "the same birds" in (tmp_path / "recipe.yaml").read_text()


def test_another_stack_is_refused_unless_allowed(tmp_path: Path) -> None:
    plan = plan_of()
    other = {**STACK, "device": "cuda", "versions": {"torch": "2.14.0", "diffusers": "0.42.0"}}
    with opened(tmp_path, plan) as store:
        first = store.pending()[0]
        store.writer.write(first, candidates_of(plan, first))
    message = str(refusal(tmp_path, stack=other))
    assert 'device: "cpu" there, "cuda" here' in message
    assert 'versions.torch: "2.15.0" there, "2.14.0" here' in message
    assert "diffusers" not in message
    with opened(tmp_path, plan, stack=other, allow_mixed=True) as store:
        for shard in store.pending():
            store.writer.write(shard, candidates_of(plan, shard))
        devices = [receipt.stack["device"] for receipt in store.receipts()]
    assert devices == ["cpu"] + ["cuda"] * (plan.n_shards - 1)
    assert json.loads((tmp_path / "lock.json").read_text())["stack"]["device"] == "cpu"


def test_another_stack_is_no_matter_while_nothing_is_rendered(tmp_path: Path) -> None:
    with opened(tmp_path, plan_of()):
        pass
    with opened(tmp_path, plan_of(), stack={**STACK, "device": "cuda"}):
        pass
    assert json.loads((tmp_path / "lock.json").read_text())["stack"]["device"] == "cuda"


@pytest.mark.parametrize(
    "path",
    [
        "data/base/notes.txt",
        "data/base/test-00000-of-00007.parquet",
        "data/grass/test-00000-of-00001.parquet",
        "receipts/base-00009.json",
        "candidates/base/test-00002-of-00002.parquet",
    ],
)
def test_files_that_are_not_of_the_plan_are_refused(tmp_path: Path, path: str) -> None:
    build(tmp_path, plan_of())
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("")
    assert path in str(refusal(tmp_path))


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    build(tmp_path, plan_of())
    leftover = tmp_path / "data/base/test-00000-of-00002.parquet.4711.cf.tmp"
    leftover.write_bytes(b"half a fi")
    mine = tmp_path / "notes.tmp"
    mine.write_text("not the store's")
    with opened(tmp_path, plan_of()):
        assert not leftover.exists()
        assert mine.exists()


def test_a_file_that_a_killed_run_left_is_replaced_or_removed(tmp_path: Path) -> None:
    plan = plan_of()
    build(tmp_path / "never killed", plan)
    out = tmp_path / "killed"
    with opened(out, plan):
        # Under another stack this shard had been accepted; no receipt says so.
        for path in (
            "data/base/test-00000-of-00002.parquet",
            "data/nowhere/test-00000-of-00002.parquet",
        ):
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_bytes(b"other bytes")
    build(out, plan)
    assert published(out) == published(tmp_path / "never killed")


def test_finishing_waits_for_every_shard(tmp_path: Path) -> None:
    with (
        opened(tmp_path, plan_of()) as store,
        refuses("not-finished", tmp_path, "7 shards are", "base-00000", kind=RunFailure),
    ):
        store.finish("", {})
    assert not (tmp_path / "README.md").exists()


def test_finishing_notices_a_lost_or_a_stray_file(tmp_path: Path) -> None:
    plan = build_plan = plan_of()
    build(tmp_path, build_plan)
    path = tmp_path / "data/base/test-00000-of-00002.parquet"
    content = path.read_bytes()
    path.unlink()
    with (
        opened(tmp_path, plan) as store,
        refuses("damaged-shard", None, "is missing, but receipts/base-00000", kind=RunFailure),
    ):
        store.finish("")
    with refuses("damaged-shard", None, "is missing, but receipts/base-00000", kind=RunFailure):
        list(read_rows(tmp_path))
    path.write_bytes(content)
    stray = tmp_path / "data/nowhere/test-00000-of-00002.parquet"
    stray.parent.mkdir()
    stray.write_bytes(b"")
    with opened(tmp_path, plan) as store, refuses("unexpected-file", kind=RunFailure):
        store.finish("")


def test_a_receipt_from_elsewhere_or_damaged_is_noticed(tmp_path: Path) -> None:
    plan = plan_of()
    build(tmp_path, plan)
    path = tmp_path / "receipts/base-00000.json"
    receipt = json.loads(path.read_text())
    path.write_text(json.dumps({**receipt, "hashes": {**receipt["hashes"], "plan": "other"}}))
    with (
        opened(tmp_path, plan) as store,
        refuses("damaged-shard", None, "another dataset", kind=RunFailure),
    ):
        store.finish("")
    twice = [*receipt["files"], receipt["files"][0]]
    changed = [
        json.dumps({**receipt, **change})
        for change in ({"files": 3}, {"clock": 3}, {"files": twice})
    ]
    for damaged in ("{", "[]", *changed):
        path.write_text(damaged)
        with (
            opened(tmp_path, plan) as store,
            refuses("damaged-file", tmp_path / "receipts/base-00000.json", kind=RunFailure),
        ):
            store.finish("")


def test_figures_of_an_earlier_card_go(tmp_path: Path) -> None:
    plan = plan_of()
    build(tmp_path, plan)
    with opened(tmp_path, plan) as store:
        store.finish("", {"other.png": b""})
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["other.png"]


def test_a_manifest_never_stands_beside_missing_shards(tmp_path: Path) -> None:
    plan = plan_of()
    build(tmp_path, plan)
    (tmp_path / "receipts/base-00000.json").unlink()
    with opened(tmp_path, plan) as store:
        assert [shard.id for shard in store.pending()] == ["base-00000"]
        assert not (tmp_path / "manifest.json").exists()


def test_attachments_stay_inside_the_directory(tmp_path: Path) -> None:
    for path in ("../escaped", "/tmp/escaped", "tokens/../../escaped"):
        opening = DatasetStore.open(
            tmp_path / "out", plan_of(), {}, {}, {}, recipe_yaml="", attachments={path: b""}
        )
        with pytest.raises(ValueError, match="not a path below"), opening:
            pass
    assert not (tmp_path / "escaped").exists()


def test_the_lock_of_a_killed_process_blocks_nobody(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with directory_lock(tmp_path):
            (tmp_path / "held").touch()
            time.sleep(60)
        os._exit(0)
    while not (tmp_path / "held").exists():
        time.sleep(0.005)
    with refuses("in-use", tmp_path, f"process id {child}"), directory_lock(tmp_path):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with directory_lock(tmp_path):
        assert int((tmp_path / ".counterfoil/lock.pid").read_text()) == os.getpid()


def test_who_holds_the_lock_is_never_written_through_a_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    holder = tmp_path / "data" / ".counterfoil" / "lock.pid"
    other.write_text("kept")
    holder.parent.mkdir(parents=True)
    holder.symlink_to(other)
    with directory_lock(tmp_path / "data"):
        assert int(holder.read_text()) == os.getpid()
    assert other.read_text() == "kept"


def test_differences_are_named_counted_and_short() -> None:
    assert document_differences({"a": 1}, {"a": 1}) == []
    assert document_differences({"a": {"b": 1}}, {"a": {"b": 2}}) == ["a.b: 1 there, 2 here"]
    assert document_differences({"a": 1}, {}) == ["a: 1 there, absent here"]
    assert document_differences({"a": 1}, {"a": True}) == ["a: 1 there, true here"]
    assert document_differences([{"id": "x", "n": 1}], [{"id": "x", "n": 2}]) == [
        "x.n: 1 there, 2 here"
    ]
    assert document_differences({"a": [1, 2]}, {"a": [1, 3, 4]}) == [
        "a.[1]: 2 there, 3 here",
        "a.[2]: absent there, 4 here",
    ]
    swapped = document_differences(
        [{"id": "x"}, {"id": "y"}], [{"id": "y"}, {"id": "x"}], "classes"
    )
    assert swapped == ["classes: the same entries in another order"]
    many = document_differences({str(n): n for n in range(30)}, {})
    assert len(many) == 21
    assert many[-1] == "… and 10 more"
    assert len(document_differences({"a": "x" * 1000}, {"a": ""})[0]) < 100
