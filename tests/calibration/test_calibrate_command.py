"""`calibrate`: what the page shows and the cut sets is true of the dataset, and the cut applies."""

from __future__ import annotations

import base64
import html.parser
import json
import re
import shutil
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from calibrated import rows_of, run

from counterfoil.calibration import calibrate
from counterfoil.errors import UserError
from counterfoil.recipe import load_own_recipe
from counterfoil.store import verify_files


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_cut_resolves_open_shifts_by_their_percentile(finished: Path, tmp_path: Path) -> None:
    made = calibrate(finished, tmp_path / "page.html")
    snow, rain = made.shifts
    scores = np.array([row["shift_score"] for row in rows_of(finished, "snow")])
    assert snow.open
    assert snow.threshold is not None
    assert np.float32(snow.threshold) == np.float32(np.percentile(scores, 30))
    assert (rain.open, rain.threshold) == (False, 0.2)
    for cut in made.shifts:
        passing = [
            row for row in rows_of(finished, cut.shift)
            if row["object_score"] >= np.float32(0.2)
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
    assert all(source.startswith(("data:image/webp;base64,", "#")) for source in sources), "its own places or pictures"
    assert len(page) < 1_000_000
    data = data_of(page)
    assert data["exact"]
    assert [unit["name"] for unit in data["units"]] == ["base", "snow", "rain", "plain"]
    assert [data["units"][shift["unit"]]["name"] for shift in data["shifts"]] == ["snow", "rain"]
    for name, kind in (("shift", "<f4"), ("object", "<f4"), ("label", "<u2"), ("flags", "u1")):
        held = np.frombuffer(base64.b64decode(data["rows"][name]), kind)
        assert held.size == len(rows_of(finished)), "every candidate that has scores, exactly as they are stored"
    scores = np.frombuffer(base64.b64decode(data["rows"]["object"]), "<f4")
    assert sorted(scores) == sorted(np.float32(row["object_score"]) for row in rows_of(finished))
    pictures = [(picture["unit"], picture["shift"]) for picture in data["pictures"]]
    assert pictures == sorted(pictures, key=lambda one: (one[0], one[1] or 0))
    assert page.count("<figure ") == len(pictures) > 100


def test_of_very_many_candidates_the_page_holds_counts(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.calibration.calibrate_dataset.MOST_CANDIDATES", 319)
    made = calibrate(finished, tmp_path / "page.html")
    page = made.page.read_text()
    data = data_of(page)
    assert (data["exact"], data["rows"], data["groups"]) == (False, None, [])
    assert 'data-slider="object"' not in page
    assert "320 candidates" in page and "sliders of shifts alone" in page
    snow, rain = data["shifts"]
    assert snow["starts"][0]["accepted"] == made.shifts[0].accepted
    assert not any(snow["missing"]), "every image of an open shift is kept"
    assert rain["missing"][0] > 0
    at = rain["thresholds"].index(0.2)
    assert rain["missing"][at] == 0
    assert rain["accepted"][at] == made.shifts[1].accepted


def test_the_cut_and_the_pages_say_of_which_recipe_they_are(finished: Path, tmp_path: Path) -> None:
    made = calibrate(finished, tmp_path / "page.html")
    sha256 = load_own_recipe(finished).recipe_hash
    head, _, rest = made.cut.partition("\n")
    assert head.startswith("# For ") and sha256 in head
    assert rest.startswith("prompts:\n  shifts:\n    snow:\n      threshold: ")
    assert data_of(made.page.read_text())["head"] == head + "\n"


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
