"""A cut changes a directory only where somebody says so, and says what is lost for good before it is."""

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
from counterfoil.building.closing import close_again
from counterfoil.errors import UserError
from counterfoil.store import read_rows, verify_files
from counterfoil.store.sealed_folder import EVALUATED, REVIEWED, sealed
from tiny_builds import images, published

STRICT = "prompts: {shifts: {rain: {threshold: 0.3}}}"


@pytest.fixture
def place(finished: Path, tmp_path: Path) -> Path:
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


def test_a_place_must_be_named(place: Path, cut: Callable[[str], str]) -> None:
    before = published(place)
    for words in ((), ("--in-place", "--out", str(place.parent / "new"))):
        refused = run(str(place), "--apply", cut(STRICT), *words, code=2)
        assert "--out NEW" in refused.stderr and "--in-place" in refused.stderr
    assert "the dataset itself" in run(str(place), "--apply", cut(STRICT), "--out", str(place), code=2).stderr
    assert "need --apply" in run(str(place), "--in-place", code=2).stderr
    for out, in_place in ((None, False), (place, False), (place.parent / "new", True)):
        with pytest.raises(UserError, match="in place"):
            recut(place, cut(STRICT), out, in_place=in_place)
    assert published(place) == before
    assert not (place.parent / "new").exists()


def test_what_is_lost_in_place_is_reported_and_refused_where_nobody_answers(
    place: Path, cut: Callable[[str], str]
) -> None:
    with_results(place)
    before, lost = published(place), falling_out(place)
    assert lost > 1
    refused = run(str(place), "--apply", cut(STRICT), "--in-place", code=2)
    assert f"deletes {lost} images that no later cut can restore" in refused.stderr
    assert f"{lost} of rain" in refused.stderr
    assert "deletes results in evaluation/" in refused.stderr and "2 files" in refused.stderr
    assert "-y" in refused.stderr and "--out" in refused.stderr
    assert published(place) == before
    done = run(str(place), "--apply", cut(STRICT), "--in-place", "--yes", "--json")
    assert f"{lost} of rain" in done.stderr
    assert json.loads(done.stdout)["images_dropped"] == lost
    assert not (place / "evaluation").exists()
    assert verify_files(place) == []


def test_another_directory_loses_nothing_and_asks_nothing(place: Path, cut: Callable[[str], str]) -> None:
    with_results(place)
    before = published(place)
    done = run(str(place), "--apply", cut(STRICT), "--out", str(place.parent / "new"))
    assert "cannot be undone" not in done.stderr
    assert published(place) == before
    assert len(images(place)) - len(images(place.parent / "new")) == falling_out(place)


def test_what_can_be_undone_is_not_asked_about(place: Path, cut: Callable[[str], str]) -> None:
    """Where rejected images are kept, every cut is followed by the one back."""
    assert "cannot be undone" not in run(str(place), "--apply", cut("{}"), "--in-place").stderr
    kept = sum(key.startswith("snow") for key in images(place))
    loose = "prompts: {shifts: {snow: {threshold: -1}}}\nscreen: {object_threshold: -1}"
    with pytest.raises(UserError, match=r"rain: needs .* images that were not kept"):
        recut(place, cut(loose), in_place=True)
    shown: list[object] = []
    all_of_snow = "prompts: {shifts: {snow: {threshold: -1, object_threshold: -1}}}"
    recut(place, cut(all_of_snow), in_place=True, before=shown.append)
    assert shown == []
    assert sum(key.startswith("snow") for key in images(place)) == kept


@pytest.mark.parametrize(("answer", "code"), [pytest.param("n", 1, marks=pytest.mark.whole), ("y", 0)])
def test_on_a_terminal_it_asks(place: Path, cut: Callable[[str], str], answer: str, code: int) -> None:
    import pty

    before = published(place)
    mine, other = pty.openpty()
    os.write(mine, f"{answer}\n".encode())
    words = ["-m", "counterfoil.cli.main", "calibrate", str(place), "--apply", cut(STRICT), "--in-place"]
    done = warm.run([sys.executable, *words], environment(), stdin=other)
    assert done.returncode == code, done.stderr
    assert "cannot be undone" in done.stderr and "Apply the thresholds in place?" in done.stderr
    assert (published(place) == before) is (answer == "n")
    assert ("Nothing was changed." in done.stderr) is (answer == "n")


def test_results_of_an_earlier_form_stay_and_the_card_says_so(place: Path) -> None:
    """Whoever closes the dataset keeps what somebody measured; the card tells no number of it, and what to do."""
    with_results(place)
    assert (place / "evaluation" / "results.json").is_file()
    content, table = content_of_files(place), (place / "evaluation" / "results.csv").read_bytes()
    before = sealed({"content": content}, {"results.csv": hashlib.sha256(table).hexdigest()}, version=1)
    EVALUATED.write(place, {"results.json": before, "results.csv": table})
    close_again(place)
    assert (place / "evaluation" / "results.csv").read_bytes() == table
    assert "results.json is of an earlier version of Counterfoil: found version 1" in (place / "README.md").read_text()
    assert verify_files(place) == []
    assert REVIEWED.version == 1
