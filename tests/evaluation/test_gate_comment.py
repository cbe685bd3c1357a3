"""What gate.md has below its table: what changed, against plain counts, and the worst images, in
order and as text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from PIL import Image

from colour_world import build_colours
from counterfoil.accuracy_stats import AverageComparison
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.gate import MOST_CHARACTERS, GateLine, GateResult, Judged, gate_markdown
from counterfoil.evaluation.gate_changes import Changed
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.lines import ClassLines
from counterfoil.evaluation.worst_images import MOST_GROUPS, MOST_IMAGES
from counterfoil.store.sealed_folder import EVALUATED, sealed
from prove_intervals import answered_of
from support.gate_comments import check_worst_images, table_rows
from support.images import encoded

GROUPS = (
    "plain",
    "../../etc/passwd",
    "<img src=x>|`y`](gate/z)",
    "www",
    "@you #12 !3 %4 :tada: https://y.example",
    "a/b",
    "A/B",
    "\n::error::x",
)
CLASSES = ["<script>|</details>", "`b`\n# c", "![d](https://e.example)"]


def model_of(frequency: float) -> Any:
    """Return a classifier of three classes whose answers jump as the grey level rises."""

    def classify(batch: Any) -> Any:
        level = np.asarray(batch).reshape(len(batch), -1).mean(axis=1)
        return 2 * np.sin(frequency * level[:, None] * np.array([3.0, 5.0, 7.0]))

    return classify


OPTIONS: Any = {
    "groups": "where",
    "base": "plain",
    "device": "cpu",
    "class_order": "position",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table: dict[str, list[Any]] = {"image": [], "label": [], "where": []}
    for number, group in enumerate(GROUPS):
        for row in range(36):
            grey = np.full((8, 8, 3), 7 * row + number, np.uint8)
            table["image"].append({"bytes": encoded(grey)})
            table["label"].append(row % 3)
            table["where"].append(group)
    names = datasets.ClassLabel(names=CLASSES)
    features = datasets.Features(
        image=datasets.Image(),
        label=names,
        where=datasets.Value("string"),
    )
    folder = tmp_path_factory.mktemp("strange")
    datasets.Dataset.from_dict(table, features).to_parquet(str(folder / "all.parquet"))
    return folder


@pytest.fixture(scope="module")
def earlier(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    models = {"new": model_of(1.1)}
    return evaluate(source, models, out=tmp_path_factory.mktemp("earlier"), **OPTIONS)


@pytest.fixture(scope="module")
def commented(
    source: Path, earlier: Evaluation, tmp_path_factory: pytest.TempPathFactory
) -> Evaluation:
    gate = [
        f"worse_than({earlier.files['document']}, any) <= 99",
        "accuracy(base) >= 1",
        "accuracy(www) >= 99",
    ]
    models = {"new": model_of(0.9)}
    return evaluate(
        source, models, out=tmp_path_factory.mktemp("commented") / "out", gate=gate, **OPTIONS
    )


def comment_of(evaluation: Evaluation) -> str:
    return evaluation.files["gate"].read_text()


def test_the_worst_images_are_wrong_in_order_and_few(commented: Evaluation) -> None:
    text = comment_of(commented).partition("#### Worst images")[2]
    _, *parts = re.split(r"^\*\*", text, flags=re.MULTILINE)
    assert len(parts) == MOST_GROUPS
    assert parts[0].startswith("`www`** (gate: fail)")
    assert f"{len(GROUPS) - MOST_GROUPS} further groups with wrong images" in text
    wrong = commented.failures("new")
    for part in parts:
        images = table_rows(part)
        of_group = wrong[wrong["key"].isin([row[1].strip("`") for row in images])]
        shown = [int(re.findall(r"(\d+) %", row[3])[-1]) for row in images]
        assert shown == sorted(shown, reverse=True)
        assert shown == [round(100 * share) for share in of_group["confidence"]]
        group = of_group["shift"].iloc[0]
        assert f": {len(images)} of {(wrong['shift'] == group).sum()} wrong images" in part
    check_worst_images(commented, "new", MOST_IMAGES)


def test_images_of_a_gate_that_compares_answers_are_those_that_differ(
    source: Path, tmp_path: Path
) -> None:
    models = {"new": model_of(0.9), "old": model_of(1.1)}
    gate = ["differs(old, www) <= 0", "accuracy(plain) >= 1"]
    evaluation = evaluate(source, models, out=tmp_path / "out", gate=gate, **OPTIONS)
    parts = comment_of(evaluation).partition("#### Worst images")[2].split("\n**")[1:]
    predictions = pq.read_table(evaluation.files["predictions"]).to_pandas()
    of_group = predictions[predictions["shift"] == "www"]
    differ = of_group["answered.new"] != of_group["answered.old"]
    assert 0 < differ.sum() < len(of_group)
    assert f"{differ.sum()} images answered differently" in parts[0]
    rows = table_rows(parts[0])
    keys = [row[1].strip("`") for row in rows]
    surest = of_group[differ].sort_values("confidence.new", ascending=False, kind="stable")
    assert keys == surest["key"].tolist()[:MOST_IMAGES]
    assert all(", not " in row[3] for row in rows)
    assert "wrong image" in parts[1] and ", not " not in parts[1]


def test_no_name_of_a_stranger_becomes_a_path_a_link_or_html(commented: Evaluation) -> None:
    text = comment_of(commented)
    folder = commented.files["gate"].parent
    linked = re.findall(r"^!\[[^\]]*\]\((\S+)\)$", text, re.MULTILINE)
    assert all(re.fullmatch(r"gate/[A-Za-z0-9_-]+\.webp", path) for path in linked)
    assert len({path.lower() for path in linked}) == len(linked) == MOST_GROUPS
    written = {f"gate/{path.name}" for path in (folder / "gate").iterdir()}
    assert written == set(linked)
    html = MarkdownIt("commonmark").enable("table").render(text)
    tags = set(re.findall(r"<(\w+)", html))
    assert not {"a", "script", "h2"} & tags
    assert html.count("<img") == len(linked)
    unfolded = text.replace("<details><summary>Names of these images</summary>", "")
    bare = re.sub(r"(`+).+?\1", "", unfolded.replace("</details>", ""))
    assert not re.search(r"@you|#12|!3|%4|:tada:|://|<script|^::", bare, re.MULTILINE)


def test_a_sheet_has_a_picture_for_each_image(commented: Evaluation) -> None:
    folder = commented.files["gate"].parent / "gate"
    wrong = commented.failures("new")
    count = min(MOST_IMAGES, int((wrong["shift"] == "www").sum()))
    with Image.open(folder / "www.webp") as sheet:
        pixels = np.asarray(sheet.convert("RGB")).astype(int)
    middles = pixels[8 + 72, 8 + 72 :: 152]
    assert sheet.width == 5 * 152 + 8
    assert count > 5
    keys = wrong[wrong["shift"] == "www"]["key"][:5]
    table = pq.read_table(commented.files["predictions"])
    rows = table["key"].to_pylist()
    levels = []
    for key in keys:
        number = rows.index(key) % 36
        levels.append(7 * number + GROUPS.index("www"))
    assert np.abs(middles - np.array(levels)[:, None]).max() <= 3


def test_changes_are_plain_counts(commented: Evaluation, earlier: Evaluation) -> None:
    text = comment_of(commented).partition("#### What changed")[2].partition("####")[0]
    before = pq.read_table(earlier.files["predictions"]).to_pandas()
    now = pq.read_table(commented.files["predictions"]).to_pandas()
    assert before["key"].tolist() == now["key"].tolist()
    now["was"] = before["right.new"].astype(bool)
    now["is"] = now["right.new"].astype(bool)
    now["lost"] = now["was"] & ~now["is"]
    now["won"] = now["is"] & ~now["was"]
    counts = now[["lost", "won"]].sum()
    assert f"{counts['lost']} newly wrong and {counts['won']} newly right" in text
    rows = table_rows(text)
    for row, group in zip(rows, commented.groups, strict=True):
        of_group = now[now["shift"] == group.name]
        by_class = of_group.groupby("label")[["was", "is"]].mean().mean()
        assert row[1:3] == [f"{100 * by_class[side]:.1f}" for side in ("was", "is")]
        lost = of_group["lost"].sum()
        won = of_group["won"].sum()
        assert row[-2:] == [f"{lost}", f"{won}"]


@given(st.integers(0, 10_000), st.floats(0.3, 0.95))
def test_changes_are_differences_of_class_averages(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    right = rng.random((3, 4, 12, 2)) < share
    present = rng.random(right.shape[:3]) < 0.9
    present[:, :, 0] = True
    changes = list(ClassLines(answered_of(right, present)).changes("old", "new"))
    assert [change.group for change in changes] == ["base", "shift_1", "shift_2"]
    means = np.empty((3, 2))
    for group, change in enumerate(changes):
        of_group = present[group]
        shares = [right[group, label, of_group[label]].mean(axis=0) for label in range(4)]
        means[group] = np.mean(shares, axis=0)
        now, before = means[group]
        assert_changed(change.share, before, now)
        if group:
            dropped = means[0] - means[group]
            assert change.drop is not None
            assert_changed(change.drop, dropped[1], dropped[0])
        was_right = right[group, ..., 1][of_group]
        is_right = right[group, ..., 0][of_group]
        assert change.images == of_group.sum()
        assert change.newly_wrong == (was_right & ~is_right).sum()
        assert change.newly_right == (is_right & ~was_right).sum()
    assert changes[0].drop is None


def assert_changed(changed: Changed, before: float, now: float) -> None:
    interval = changed.difference.interval(1.96)
    assert (changed.before, changed.now) == pytest.approx((before, now))
    assert interval.value == pytest.approx(now - before)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low <= interval.value <= interval.high
    assert interval.low < interval.high


def test_a_change_is_paired_by_image() -> None:
    """Two models that fail on the same images differ by less than their intervals alone say."""
    rng = np.random.default_rng(0)
    right = np.repeat(rng.random((2, 4, 50, 1)) < 0.7, 2, axis=3)
    right[..., 0] ^= rng.random(right.shape[:3]) < 0.02
    answers = answered_of(right, np.ones(right.shape[:3], bool))
    for change in ClassLines(answers).changes("old", "new"):
        comparison = change.share.difference
        assert isinstance(comparison, AverageComparison)
        paired = comparison.interval(1.96)
        alone = AverageComparison(comparison.first).interval(1.96)
        widths = [(each.high or 0) - (each.low or 0) for each in (paired, alone)]
        assert widths[0] < 0.5 * widths[1]


def test_results_of_the_dataset_stand_beside_those_of_now(
    models: dict[str, str], tmp_path: Path
) -> None:
    directory = build_colours(tmp_path / "colours")
    names = list(models.values())
    options: Any = {
        "gate": ["accuracy(base) >= 1"],
        "out": tmp_path / "out",
        "device": "cpu",
        "reference": False,
    }
    first = evaluate(directory, names[:1], into_card=True, **options)
    assert "What changed" not in comment_of(first)
    second = evaluate(directory, names[1:2], **options)
    text = comment_of(second).partition("#### What changed")[2]
    assert "Not paired" in text
    rows = table_rows(text)
    for row, group in zip(rows, second.groups, strict=True):
        assert row[0] == f"`{group.name}`"
        for cell, evaluated in zip(row[1:3], (first, second), strict=True):
            name = evaluated.models[0].name
            value = evaluated.results.rows.value("accuracy", model=name, group=group.name)
            assert cell.partition(" ")[0] == f"{100 * (value or 0):.1f}"


def test_a_model_without_stored_results_is_named(models: dict[str, str], tmp_path: Path) -> None:
    directory = build_colours(tmp_path / "colours")
    first, second, third, *_ = models.values()
    gate = ["accuracy(base) >= 1"]
    out = tmp_path / "out"
    evaluate(directory, [first, second], device="cpu", out=out, into_card=True)
    evaluation = evaluate(directory, third, device="cpu", gate=gate, out=out)
    text = comment_of(evaluation).partition("#### What changed")[2].partition("####")[0]
    [model] = evaluation.results.models
    assert f"stores no results of `{model.name}`" in text
    assert "`local-dir:./sharp`, `local-dir:./no_red`" in text


@pytest.mark.parametrize(
    ("outputs", "version", "reason"),
    [
        ("boxes", EVALUATED.version, "they measure ap50, and these accuracy."),
        ("names", EVALUATED.version - 1, "this version of Counterfoil does not read them."),
    ],
    ids=["another-measure", "earlier-form"],
)
def test_stored_results_that_cannot_be_compared_are_told(
    outputs: str,
    version: int,
    reason: str,
    models: dict[str, str],
    tmp_path: Path,
) -> None:
    directory = build_colours(tmp_path / "colours")
    model, *_ = models.values()
    options: Any = {"gate": ["accuracy(base) >= 1"], "out": tmp_path / "out", "device": "cpu"}
    evaluate(directory, model, into_card=True, **options)
    stored = directory / EVALUATED.path
    document = json.loads(stored.read_text())
    del document["sha256"]
    files = document.pop("files")
    document["models"][0]["outputs"] = outputs
    document["measures"][0]["name"] = "ap50"
    stored.write_bytes(sealed(document, files, version))
    text = comment_of(evaluate(directory, model, **options))
    assert f"the results that the dataset stores (evaluation/results.json): {reason}" in text


def test_a_comment_has_room_on_github() -> None:
    judged = []
    for number in range(600):
        verdict: Any = "fail" if number == 599 else "pass"
        text = f"drop({'x' * 300}{number}) <= 1"
        line = GateLine(text, "drop", "x", 0.01)
        judged.append(Judged(line, "m", "x", verdict))
    result = GateResult("d", ("m",), tuple(judged))
    parts = ["y" * 20_000, "z" * MOST_CHARACTERS, "last"]
    text = gate_markdown(result, parts)
    assert len(text) < MOST_CHARACTERS + 100
    assert "x599) <= 1" in text
    assert "more rows, in gate.xml" in text
    assert text.rstrip().endswith("a comment has a limited length.")
    two = replace(result, judged=result.judged[:2])
    short = gate_markdown(two, parts)
    assert parts[0] in short
    assert "last" in short
    assert "1 part left out" in short


def test_files_of_an_earlier_comment_go(source: Path, tmp_path: Path) -> None:
    models = {"new": model_of(0.9)}
    first = evaluate(source, models, out=tmp_path, gate=["accuracy(any) >= 1"], **OPTIONS)
    assert len(list((tmp_path / "gate").iterdir())) == MOST_GROUPS
    with Image.open(next((tmp_path / "gate").iterdir())) as sheet:
        assert sheet.format == "WEBP"
    assert first.files["gate"] == tmp_path / "gate.md"
    evaluate(source, models, out=tmp_path, **OPTIONS)
    assert not (tmp_path / "gate").exists()
    assert not (tmp_path / "gate.md").exists()
