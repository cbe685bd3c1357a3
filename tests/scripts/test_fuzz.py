"""The fuzzer: it sees the faults that it looks for, cases repeat exactly, and a small run finds
nothing."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe, load_recipe_text
from fuzzing import places, tables
from fuzzing.canaries import Canaries
from fuzzing.cases import Bench, Case, Prepared, Step, command
from fuzzing.judging import BAD, GOOD, Court, Verdict
from fuzzing.limits import MEBIBYTE, Limits
from fuzzing.plan import KINDS, dealt
from fuzzing.recipes import bundled
from fuzzing.report import by_cause, table, write
from fuzzing.trees import mutated, yaml_text
from fuzzing.values import Fragment
from fuzzing.watch import roots_of_the_program

ROOT = Path(__file__).parents[2]
LIGHT = [name for name, kind in KINDS.items() if kind.light]  # no dataset is built for these
# Only cases that wait on purpose get a short limit: on a busy machine everything waits.
PATIENT = Limits(seconds=60.0, killed_after=120.0, mebibytes=100, prepared_within=120.0)
SHORT = replace(PATIENT, seconds=0.2, killed_after=0.6)


def judged(
    tmp_path: Path,
    prepare: Callable[[Bench], Prepared],
    limits: Limits = PATIENT,
    keep: bool = False,
) -> Verdict:
    court = Court(
        tmp_path / "court", {"own": prepare}, {}, tmp_path, roots_of_the_program(), limits, keep
    )
    return court.judge(Case("own", 0, 0))


def doing(function: Callable[[Bench], object]) -> Callable[[Bench], Prepared]:
    def prepare(bench: Bench) -> Prepared:
        def step() -> None:
            function(bench)

        return Prepared([], [Step("step", function=step)])

    return prepare


def refuse(bench: Bench) -> None:
    raise UserError("not so")


def fail_in_a_thread(bench: Bench) -> None:
    thread = threading.Thread(target=lambda: [][0])
    thread.start()
    thread.join()


def open_below_python(bench: Bench) -> None:
    library = ctypes.CDLL(None)
    os.close(library.open(os.fsencode(bench.canaries.paths()[0]), os.O_RDONLY))


def open_by_a_link(bench: Bench) -> None:
    (bench.folder / "link").symlink_to(bench.canaries.paths()[0])
    (bench.folder / "link").read_bytes()


def refuse_a_link(bench: Bench) -> None:
    (bench.folder / "link").symlink_to(bench.canaries.paths()[0])
    with contextlib.suppress(OSError):
        os.open(bench.folder / "link", os.O_RDONLY | os.O_NOFOLLOW)


SEEN: dict[str, tuple[Callable[[Bench], object], str]] = {
    "nothing": (lambda bench: None, "ok"),
    "words": (refuse, "refused"),
    "segmentation fault": (lambda bench: ctypes.string_at(0), "crash"),
    "an end without a word": (lambda bench: os._exit(3), "crash"),
    "waiting": (lambda bench: time.sleep(600), "hang"),
    "waiting for a FIFO": (lambda bench: (os.mkfifo("fifo"), Path("fifo").read_bytes()), "hang"),
    "memory that is refused": (lambda bench: bytearray(400 * MEBIBYTE), "memory"),
    "an exception": (lambda bench: {}["key"], "raw exception"),
    "an exception in a thread": (fail_in_a_thread, "raw exception"),
    "a canary": (lambda bench: bench.canaries.paths()[0].read_bytes(), "read outside"),
    "a canary by a relative path": (
        lambda bench: Path("../secret/layer.yaml").read_bytes(),
        "read outside",
    ),
    "a canary by a link": (open_by_a_link, "read outside"),
    "a canary below Python": (open_below_python, "read outside"),
    "a folder's listing": (lambda bench: list(bench.canaries.folder.iterdir()), "read outside"),
    "a file of the machine": (lambda bench: Path("/etc/hosts").read_bytes(), "read outside"),
    "a program": (lambda bench: subprocess.run(["true"], check=False), "read outside"),
    "a link that is not followed": (refuse_a_link, "ok"),
    "its own files": (lambda bench: Path("own").write_bytes(b"x"), "ok"),
}


@pytest.mark.parametrize("what", SEEN)
def test_what_happens_is_seen(what: str, tmp_path: Path) -> None:
    function, outcome = SEEN[what]
    verdict = judged(tmp_path, doing(function), SHORT if outcome == "hang" else PATIENT)
    assert verdict.outcome == outcome, verdict


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_text("x"),
        lambda path: path.unlink(),
        lambda path: path.rename("taken"),
        lambda path: Path("taken").rename(path),
        lambda path: path.parent.joinpath("new").mkdir(),
        lambda path: path.chmod(0),
        lambda path: path.with_name("link").symlink_to("x"),
    ],
)
def test_harm_outside_is_seen_and_does_not_happen(
    harm: Callable[[Path], object], tmp_path: Path
) -> None:
    victim = tmp_path / "elsewhere" / "victim"
    victim.parent.mkdir()
    victim.write_text("whole")
    before = victim.stat().st_mode
    (tmp_path / "court").mkdir()
    assert (
        judged(tmp_path, doing(lambda bench: (Path("taken").touch(), harm(victim)))).outcome
        == "read outside"
    )
    assert (victim.read_text(), victim.stat().st_mode) == ("whole", before)
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """Neither a court nor new canaries leave a file open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    court = Court(
        tmp_path / "court",
        {"own": doing(open_by_a_link)},
        {},
        tmp_path,
        roots_of_the_program(),
        PATIENT,
    )
    assert [court.judge(Case("own", number, 0)).outcome for number in range(3)] == [
        "read outside"
    ] * 3
    del court
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_a_person_named_may_be_read(tmp_path: Path) -> None:
    def prepare(bench: Bench) -> Prepared:
        read = doing(lambda bench: bench.canaries.paths()[1].read_bytes())(bench)
        return replace(read, named=frozenset({str(bench.canaries.paths()[1])}))

    assert judged(tmp_path, prepare).outcome == "ok"


@pytest.mark.parametrize(
    ("words", "outcome"), [(("show", "wardrobe-mini"), "ok"), (("show", "nosuch"), "refused")]
)
def test_commands_run_as_they_are_installed(
    words: tuple[str, ...], outcome: str, tmp_path: Path
) -> None:
    assert judged(tmp_path, lambda bench: Prepared([], [command(*words)])).outcome == outcome


def test_a_bad_step_is_told_whatever_comes_after(tmp_path: Path) -> None:
    steps = [Step("first", function=lambda: {}["key"]), Step("second", function=lambda: None)]
    verdict = judged(tmp_path, lambda bench: Prepared(["odd"], steps))
    assert (verdict.outcome, verdict.step, verdict.told) == ("raw exception", "first", ["odd"])


def test_a_case_that_cannot_be_prepared_is_no_good_case(tmp_path: Path) -> None:
    def prepare(bench: Bench) -> Prepared:
        raise KeyError("x")

    assert judged(tmp_path, prepare).bad


@pytest.mark.parametrize("kind", LIGHT)
def test_a_case_has_the_same_files_again(kind: str, tmp_path: Path) -> None:
    """Other cases before it change nothing: a case has its own chances."""

    def files(numbers: list[int]) -> list[tuple[tuple[str, ...], dict[str, bytes]]]:
        results = []
        court = Court(
            tmp_path / "court", {kind: KINDS[kind].prepare}, {}, tmp_path, (), Limits(), keep=True
        )
        for number in numbers:
            lines = court.judge(Case(kind, number, 5)).told
            texts = {
                path.name: path.read_bytes()
                for path in (court.folder / "case").iterdir()
                if path.is_file()
            }
            results.append((tuple(lines), texts))
        return results

    first, second = files([0, 1])
    assert files([1]) == [second]
    assert first != second


def test_writing_a_recipe_changes_nothing_that_nobody_chose() -> None:
    """Ids such as 08 stay text in each style; else every case would be refused for the same
    reason."""
    for name, tree in bundled().items():
        # read from their own files
        if "source" not in tree or isinstance(tree["source"].get("classes"), str):
            continue
        texts = {yaml_text(tree, random.Random(seed)) for seed in range(5)}
        assert len(texts) > 2
        expected = load_recipe(name)
        assert all(load_recipe_text(text) == expected for text in texts)


def test_no_change_makes_a_tree_that_holds_itself() -> None:
    for seed in range(300):
        # small, so that the same odd value is drawn more than once
        start = {"a": {"x": {"y": 1}}, "b": [{"z": 2}]}
        tree, _ = mutated(start, random.Random(seed), lambda chance: Fragment("?"), times=8)
        json.dumps(tree, skipkeys=True)  # ValueError: circular reference


def test_a_longer_run_begins_as_a_shorter_one_and_has_every_kind() -> None:
    long = dealt(2_000, seed=3)
    assert long[:150] == dealt(150, seed=3)
    assert len(set(long)) == len(long)
    shares = {name: sum(case.kind == name for case in long) / len(long) for name in KINDS}
    assert shares == {
        name: pytest.approx(kind.often / 100, abs=0.002) for name, kind in KINDS.items()
    }
    assert {case.kind for case in dealt(50, 3, ["table", "cut"])} == {"table", "cut"}


def test_the_report_counts_every_case_and_keeps_other_sections(tmp_path: Path) -> None:
    outcomes = [*GOOD, *BAD, "ok"]
    verdicts = [
        Verdict(Case("table", n, 0), outcome, cause=outcome) for n, outcome in enumerate(outcomes)
    ]
    row = next(line for line in table(verdicts) if line.startswith("| table"))
    assert [cell.strip() for cell in row.split("|")][2:10] == [
        "8",
        "2",
        "1",
        "1",
        "1",
        "1",
        "1",
        "1",
    ]
    assert {outcome for outcome, *_ in by_cause(verdicts)} == set(BAD)
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\n## By hand\n\na\n")
    write(verdicts, "once", Limits(), page)
    write(verdicts[:2], "twice", Limits(), page)
    text = page.read_text()
    assert text.startswith("# Results\n\n## By hand\n\na\n") and text.count("| kind | cases |") == 1
    assert "`twice`" in text and "once" not in text and "No case crashed" in text


@pytest.mark.whole
def test_a_small_run_finds_nothing() -> None:
    cases = 100
    line = [sys.executable, str(ROOT / "scripts" / "fuzz.py"), "--cases", str(cases), "--seed", "1"]
    run = subprocess.run(line, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    counted = re.search(rf"^\| all \| {cases} \| (\d+) \| (\d+) \|", run.stdout, re.MULTILINE)
    assert counted is not None, run.stdout
    # Were all refused, the cases would not reach what they are about.
    assert int(counted[1]) >= cases // 20
    assert int(counted[1]) + int(counted[2]) == cases


class Drawn(random.Random):
    """Draws what is wanted wherever it is among the choices, else the first; chances always come
    true."""

    def __init__(self, *wanted: object) -> None:
        super().__init__(0)
        self.wanted = wanted

    def choice(self, seq):
        return next(
            (
                option
                for option in seq
                if any(option is want or option == want for want in self.wanted)
            ),
            seq[0],
        )

    def random(self) -> float:
        return 0.0


def bench_of(folder: Path, chance: random.Random) -> Bench:
    canaries = Canaries(folder / "secret")
    canaries.folder.mkdir()
    canaries.plant()
    (folder / "case").mkdir()
    return Bench(chance, folder / "case", canaries, {}, folder)


def test_several_folders_of_a_dataset_may_lie_elsewhere(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, random.Random(1))
    directory = bench.folder / "dataset"
    for name in ("data/base", "data/red", "candidates/base"):
        (directory / name).mkdir(parents=True)
        (directory / name / "file").write_text(name)
    places.change(bench, directory, "linked folder")
    places.change(bench, directory, "linked folder")
    links = [path for path in directory.rglob("*") if path.is_symlink()]
    assert len(links) == 2
    for link in links:
        assert (link / "file").read_text() == link.relative_to(directory).as_posix()


def test_a_table_of_millions_of_rows_is_not_written_row_by_row(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Drawn(tables.change_rows, "huge"))
    path = bench.folder / "shard.parquet"
    pq.write_table(pa.table({"key": ["a", "b"], "label": [0, 1]}), path)
    tables.rewrite(path, bench)
    metadata = pq.read_metadata(path)
    assert metadata.num_rows > 1_000_000, bench.told
    assert metadata.num_row_groups < 100
