"""`calibrate`: what the page shows and the cut sets is true of the dataset, and the cut applies."""

from __future__ import annotations

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import warm
from counterfoil.calibration import calibrate
from counterfoil.errors import UserError
from counterfoil.recipe import load_own_recipe
from counterfoil.store import read_rows, verify_files


def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    arguments = [sys.executable, "-m", "counterfoil.cli.main", "calibrate", *words]
    done = warm.run(arguments, environment)
    assert done.returncode == code, done.stderr
    return done


def rows_of(directory: Path, shift: str) -> list[dict]:
    return [row for row in read_rows(directory, what="candidates") if row["shift"] == shift]


def data_of(page: str) -> list[dict]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_cut_resolves_open_shifts_by_their_percentile(finished: Path, tmp_path: Path) -> None:
    made = calibrate(finished, tmp_path / "page.html")
    snow, rain = made.shifts
    scores = np.array([r["shift_score"] for r in rows_of(finished, "snow") if r["shift_score"] is not None])
    assert snow.open
    assert snow.threshold is not None
    assert np.float32(snow.threshold) == np.float32(np.percentile(scores, 30))
    assert (rain.open, rain.threshold) == (False, 0.2)
    for cut in made.shifts:
        passing = [
            row for row in rows_of(finished, cut.shift)
            if row["object_score"] is not None
            and row["object_score"] >= np.float32(0.2)
            and row["shift_score"] >= np.float32(cut.threshold)
        ]  # fmt: skip
        assert (cut.candidates, cut.accepted) == (80, len(passing))
        assert cut.passed == len(passing) / 80


def test_the_page_is_one_safe_file_and_its_counts_are_true(finished: Path, tmp_path: Path) -> None:
    made = calibrate(finished, tmp_path / "page.html")
    page = made.page.read_text()
    assert verify_files(finished) == []
    assert calibrate(finished, tmp_path / "again.html").page.read_text() == page

    class Reader(html.parser.HTMLParser):
        tags: ClassVar[list[tuple[str, dict]]] = []

        def handle_starttag(self, tag, attrs):
            self.tags.append((tag, dict(attrs)))

    Reader().feed(page)
    tags = [tag for tag, _ in Reader.tags]
    assert "b" not in tags and "i" in tags, "the recipe's text is text; the template's own dots are marks"
    assert tags.count("i") == 3
    sources = [values[key] for _, values in Reader.tags for key in ("src", "href") if key in values]
    assert sources
    assert all(source.startswith("data:image/webp;base64,") for source in sources)
    assert len(page) < 1_000_000
    snow, rain = data_of(page)
    assert [snow["name"], rain["name"]] == ["snow", "rain"]
    assert snow["starts"][0]["accepted"] == made.shifts[0].accepted
    assert not any(snow["missing"]), "every image of an open shift is kept"
    assert rain["missing"][0] > 0
    at = rain["thresholds"].index(0.2)
    assert rain["missing"][at] == 0
    assert rain["accepted"][at] == made.shifts[1].accepted
    assert len(snow["pictures"]) > len(rain["pictures"]) > 10
    ordered = [picture["score"] for picture in snow["pictures"]]
    assert ordered == sorted(ordered)


def test_the_cut_and_the_pages_say_of_which_recipe_they_are(finished: Path, tmp_path: Path) -> None:
    made = calibrate(finished, tmp_path / "page.html")
    sha256 = load_own_recipe(finished).recipe_hash
    head, _, rest = made.cut.partition("\n")
    assert head.startswith("# For ") and sha256 in head
    assert rest.startswith("prompts:\n  shifts:\n    snow:\n      threshold: ")
    assert f"const head = {json.dumps(head + chr(10))};" in made.page.read_text()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_a_browser_moves_the_slider_and_writes_the_yaml(finished: Path, tmp_path: Path) -> None:
    made = calibrate(finished, tmp_path / "page.html")
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"{made.page.as_uri()}#snow=0.25"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0
    (snow,) = re.findall(r'<section id="shift-snow".*?</section>', done.stdout, re.DOTALL)
    kept = sum(
        row["object_score"] is not None
        and row["object_score"] >= np.float32(0.2)
        and row["shift_score"] >= np.float32(0.25)
        for row in rows_of(finished, "snow")
    )
    assert f"({kept} of 80)" in snow
    below, above = re.findall(r'<div class="pictures (?:below|above)">(.*?)</div>', snow, re.DOTALL)
    assert {float(s) < 0.25 for s in re.findall(r"<span>([\d.-]+)</span>", below)} == {True}
    assert {float(s) >= 0.25 for s in re.findall(r"<span>([\d.-]+)</span>", above)} == {True}


def test_the_command_pipes_a_cut_that_applies(finished: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "cranes"))
    made = run(str(out))
    assert str(out / ".counterfoil" / "calibrate.html") in made.stderr
    (tmp_path / "cut.yaml").write_text(made.stdout)
    found = json.loads(run(str(out), "--json", "--shift", "rain").stdout)
    assert [shift["shift"] for shift in found["shifts"]] == ["rain"]
    assert "snow" not in found["cut"]
    open_before = json.loads(run(str(out), "--json").stdout)["shifts"][0]
    applied = json.loads(run(str(out), "--apply", str(tmp_path / "cut.yaml"), "--in-place", "--yes", "--json").stdout)
    assert applied["open_shifts"] == []
    assert applied["counts"]["snow"]["accepted"] == open_before["accepted"]
    assert verify_files(out) == []
    assert "no threshold yet" not in (out / "README.md").read_text()
    refused = run(str(out), "--apply", str(tmp_path / "nowhere.yaml"), "--in-place", code=2)
    assert "nowhere.yaml" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_what_cannot_be_calibrated_is_said(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'snow'"):
        calibrate(finished, tmp_path / "page.html", ["snwo"])
    with pytest.raises(UserError, match="screened shift"):
        calibrate(finished, tmp_path / "page.html", ["plain"])
    with pytest.raises(UserError, match="not a Counterfoil dataset"):
        calibrate(tmp_path)
    assert not (tmp_path / "page.html").exists()
