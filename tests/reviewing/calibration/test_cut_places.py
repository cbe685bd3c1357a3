"""A cut changes a directory only on request, and first says what will be lost for good."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from calibrated import environment, run

import warm
from content_reference import content_of_files
from counterfoil import recut
from counterfoil.dataset.closing import close_again
from counterfoil.errors import UserError
from counterfoil.store.manifest import verify_files
from counterfoil.store.reading import read_rows
from counterfoil.store.sealed_folder import EVALUATED, REVIEWED, sealed
from tiny_builds import images, published

STRICT = "prompts: {shifts: {rain: {threshold: 0.3}}}"


@pytest.fixture
def dataset(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "cranes"))


@pytest.fixture
def cut(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        (tmp_path / "cut.yaml").write_text(text)
        return str(tmp_path / "cut.yaml")

    return write


def with_results(directory: Path) -> None:
    content = content_of_files(directory)
    table = b"model,top1\n"
    close_again(directory, EVALUATED.files({"content": content}, {"results.csv": table}), content)


def falling_out(directory: Path) -> int:
    rows = [row for row in read_rows(directory, what="candidates") if row["shift"] == "rain"]
    return sum(row["reason"] == "accepted" and row["shift_score"] < 0.3 for row in rows)


def test_a_place_must_be_named(dataset: Path, cut: Callable[[str], str]) -> None:
    before = published(dataset)
    for words in ((), ("--in-place", "--out", str(dataset.parent / "new"))):
        refused = run(str(dataset), "--apply", cut(STRICT), *words, code=2)
        assert "--out NEW" in refused.stderr and "--in-place" in refused.stderr
    assert (
        "the dataset itself"
        in run(str(dataset), "--apply", cut(STRICT), "--out", str(dataset), code=2).stderr
    )
    assert "need --apply" in run(str(dataset), "--in-place", code=2).stderr
    for out, in_place in ((None, False), (dataset, False), (dataset.parent / "new", True)):
        with pytest.raises(UserError, match="in place"):
            recut(dataset, cut(STRICT), out, in_place=in_place)
    with pytest.raises(UserError, match="lies inside the dataset"):
        recut(dataset, cut(STRICT), dataset / "cut")
    assert published(dataset) == before
    assert not (dataset.parent / "new").exists()


def test_what_is_lost_in_place_is_reported_and_refused_where_nobody_answers(
    dataset: Path, cut: Callable[[str], str]
) -> None:
    with_results(dataset)
    before = published(dataset)
    lost = falling_out(dataset)
    assert lost > 1
    refused = run(str(dataset), "--apply", cut(STRICT), "--in-place", code=2)
    assert f"deletes {lost} images that no later cut can restore" in refused.stderr
    assert f"{lost} of rain" in refused.stderr
    assert "deletes results in evaluation/" in refused.stderr and "2 files" in refused.stderr
    assert "-y" in refused.stderr and "--out" in refused.stderr
    assert published(dataset) == before
    done = run(str(dataset), "--apply", cut(STRICT), "--in-place", "--yes", "--json")
    assert f"{lost} of rain" in done.stderr
    assert json.loads(done.stdout)["images_dropped"] == lost
    assert not (dataset / "evaluation").exists()
    assert verify_files(dataset) == []


def test_another_directory_loses_nothing_and_asks_nothing(
    dataset: Path, cut: Callable[[str], str]
) -> None:
    with_results(dataset)
    before = published(dataset)
    done = run(str(dataset), "--apply", cut(STRICT), "--out", str(dataset.parent / "new"))
    assert "cannot be undone" not in done.stderr
    assert published(dataset) == before
    assert len(images(dataset)) - len(images(dataset.parent / "new")) == falling_out(dataset)


def test_what_can_be_undone_is_not_asked_about(dataset: Path, cut: Callable[[str], str]) -> None:
    """With rejected images kept, another cut takes back each cut."""
    assert "cannot be undone" not in run(str(dataset), "--apply", cut("{}"), "--in-place").stderr
    kept = sum(key.startswith("snow") for key in images(dataset))
    loose = "prompts: {shifts: {snow: {threshold: -1}}}\nscreen: {object_threshold: -1}"
    with pytest.raises(UserError, match=r"rain: needs .* images that were not kept"):
        recut(dataset, cut(loose), in_place=True)
    shown: list[object] = []
    all_of_snow = "prompts: {shifts: {snow: {threshold: -1, object_threshold: -1}}}"
    recut(dataset, cut(all_of_snow), in_place=True, before=shown.append)
    assert shown == []
    assert sum(key.startswith("snow") for key in images(dataset)) == kept


@pytest.mark.parametrize(
    ("answer", "code"), [pytest.param("n", 1, marks=pytest.mark.whole), ("y", 0)]
)
def test_on_a_terminal_it_asks(
    dataset: Path, cut: Callable[[str], str], answer: str, code: int
) -> None:
    import pty

    before = published(dataset)
    mine, other = pty.openpty()
    os.write(mine, f"{answer}\n".encode())
    words = [
        "-m",
        "counterfoil.cli.main",
        "calibrate",
        str(dataset),
        "--apply",
        cut(STRICT),
        "--in-place",
    ]
    done = warm.run([sys.executable, *words], environment(), stdin=other)
    assert done.returncode == code, done.stderr
    assert "cannot be undone" in done.stderr and "Apply the thresholds in place?" in done.stderr
    assert (published(dataset) == before) is (answer == "n")
    assert ("Nothing was changed." in done.stderr) is (answer == "n")


def test_results_of_an_earlier_form_stay_and_the_card_says_so(dataset: Path) -> None:
    """Closing the dataset again keeps earlier results; the card shows none of their numbers and
    says what to do."""
    with_results(dataset)
    assert (dataset / "evaluation" / "results.json").is_file()
    content = content_of_files(dataset)
    table = (dataset / "evaluation" / "results.csv").read_bytes()
    before = sealed(
        {"content": content}, {"results.csv": hashlib.sha256(table).hexdigest()}, version=1
    )
    EVALUATED.write(dataset, {"results.json": before, "results.csv": table})
    close_again(dataset)
    assert (dataset / "evaluation" / "results.csv").read_bytes() == table
    assert (
        "results.json is of an earlier version of Counterfoil: found version 1"
        in (dataset / "README.md").read_text()
    )
    assert verify_files(dataset) == []
    assert REVIEWED.version == 1
