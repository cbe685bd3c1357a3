"""Mined shifts are measured over every candidate that passed the screen, not over those that a rule
kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from colour_world import CANDIDATES, SWAPPED, build_colours
from counterfoil.errors import RunFailure
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.report import terminal_lines
from counterfoil.recipe.schema_mine import LONGEST
from counterfoil.report.findings import (
    MOST_FINDINGS,
    MOST_SENTENCES,
    counted_words,
    finding_sentences,
)
from counterfoil.report.results import ResultRows, results_from
from counterfoil.report.words import format_interval
from counterfoil.stats import Estimate
from counterfoil.store.manifest import content_of_receipts, verify_files
from counterfoil.store.reading import read_receipts
from counterfoil.store.sealed_folder import read_results
from loopback_hub import LoopbackHub, client
from mined_colours import ALL_STORED, JUDGE, PICKED, RECORD, build_mined, mined, reads_right
from support.estimates import interval_of
from support.measured import measured as numbers
from support.pages import Page
from support.refusals import refuses, succeed
from support.reports import evaluation_html
from support.tables import csv_rows, rewrite, with_value
from tiny_builds import tiny

SCREENED = CANDIDATES - 2  # of a class: the screen drops the first and the last
WRONG = SWAPPED - 1  # of these, painted as another class
# With these models no class is near chance on the base; rates would leave it out.
SEVERAL = ("sharp", "no_red", "small", "no_green", "no_blue")


@pytest.fixture(scope="module")
def picked(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset whose rule keeps what `sharp` gets wrong and stores the other images.
    Read-only."""
    return build_mined(
        tmp_path_factory.mktemp("picked") / "colours", models["sharp"], PICKED, ALL_STORED
    )


@pytest.fixture(scope="module")
def bare(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build `picked` with images of kept candidates only; the judge is recorded as right once more
    than it is."""
    judged = lambda sample: reads_right(sample) or (sample.label, sample.index) == (0, 1)  # noqa: E731
    return build_mined(
        tmp_path_factory.mktemp("bare") / "colours", models["sharp"], PICKED, judged=judged
    )


@pytest.fixture(scope="module")
def measured(
    picked: Path, models: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Evaluation:
    names = [models[name] for name in SEVERAL]
    out = tmp_path_factory.mktemp("out")
    return evaluate(picked, names, out=out, device="cpu", reference=False)


@pytest.fixture(scope="module")
def unseen(bare: Path, models: dict[str, str]) -> Evaluation:
    return numbers(bare, [models[name] for name in ("no_red", "sharp", *SEVERAL[2:])])


def findings_csv(evaluation: Evaluation) -> list[dict[str, str]]:
    assert evaluation.task is not None
    return csv_rows(evaluation.task.all_tables(evaluation.results)["findings"][1])


@dataclass(frozen=True)
class Score:
    """Facts and rows of a model under the only finding."""

    measured_on: str | None
    target: bool
    classes: int
    images: int | None
    failures: int
    base_images: int | None
    base_failures: int | None
    rate: float | None
    base_rate: float | None
    difference: Estimate | None
    note: str


def scores_of(evaluation: Evaluation) -> dict[str, Score]:
    [finding] = evaluation.findings
    scores = {}
    for model in finding.models:
        key = {"model": model.name, "group": finding.shift}
        rate, base = (
            evaluation.results.rows.one(name, **key)
            for name in ("failure_rate", "base_failure_rate")
        )
        assert rate is not None
        scores[model.name] = Score(
            model.measured_on,
            model.target,
            model.classes,
            rate.n,
            model.failures,
            base.n if base else None,
            model.base_failures,
            rate.value,
            base.value if base else None,
            evaluation.results.rows.estimate("failure_difference", **key),
            rate.note,
        )
    return scores


def score_of(evaluation: Evaluation, model: str) -> Score:
    return scores_of(evaluation)[model]


def screened_rows(dataset: Path, shift: str = "swap") -> list[dict[str, Any]]:
    """Read the candidates of a shift that passed the screen, with Arrow alone."""
    files = sorted((dataset / "candidates").rglob("*.parquet"))
    rows = [
        row for file in files for row in pq.read_table(file).to_pylist() if row["shift"] == shift
    ]
    return [row for row in rows if not row["reason"].startswith("low_")]


@pytest.mark.parametrize("format", ["parquet", "webdataset"])
def test_rates_are_over_all_that_passed_the_screen_for_every_model(
    format: str, measured: Evaluation, models: dict[str, str], tmp_path: Path
) -> None:
    if format == "webdataset":
        tars = build_mined(
            tmp_path / "tars", models["sharp"], PICKED, ALL_STORED, "output.format=webdataset"
        )
        measured = numbers(tars, [models[name] for name in SEVERAL])
    [finding] = measured.findings
    assert (finding.candidates, finding.screened, finding.accepted) == (
        3 * CANDIDATES,
        3 * SCREENED,
        3 * WRONG,
    )
    assert (finding.shift, finding.words, finding.judges) == ("swap", "swapped things", (JUDGE,))
    sharp = score_of(measured, models["sharp"])
    assert (sharp.images, sharp.failures, sharp.base_images, sharp.base_failures) == (30, 9, 30, 0)
    assert (sharp.rate, sharp.base_rate) == (pytest.approx(0.3), 0.0)
    low, _, high = interval_of(sharp.difference)
    assert low < 0.3 < high
    # It is always wrong on red; of the others, only on blue painted red.
    no_red = score_of(measured, models["no_red"])
    assert no_red.rate == pytest.approx((1 + WRONG / SCREENED + WRONG / SCREENED) / 3)
    assert no_red.base_rate == pytest.approx(1 / 3)
    assert {score.measured_on for score in scores_of(measured).values()} == {"images"}
    few = measured.score(models["sharp"], "swap")
    assert few.accuracy is not None and few.drop is None, "three survivors a class are no drop"


def test_a_built_dataset_agrees_with_a_count_of_its_candidates(tmp_path: Path) -> None:
    judge = "lab:resnet10t"
    rules = f"[thresholds, {{misclassified: {{models: ['{judge}']}}}}]"
    shift = (
        f"{{kind: mined, keep: {rules}, mined_from: {{words: red things, target: {{name:"
        f" '{judge}'}}}}}}"
    )
    classes = (
        "source.classes=[{id: '00', name: t-shirt, source_label: 0}, {id: '05', name:"
        " sandal,"
        " source_label: 5}]"
    )
    few = (
        classes,
        "prompts.shifts.in_the_snow=null",
        "prompts.shifts.pencil_sketch=null",
        "samples.candidates=6",
    )
    dataset = tmp_path / "d"
    drawn = ("generator.size=null", "generator.guidance=3.0")
    tiny(dataset, *few, *drawn, f"prompts.shifts.red={shift}", "screen.store_embeddings=false")
    rows = screened_rows(dataset, "red")
    by_class = {
        row["class_id"]: [other for other in rows if other["class_id"] == row["class_id"]]
        for row in rows
    }
    assert all(len(cell) == 6 for cell in by_class.values())
    shares = [
        sum(not row["resnet10t_right"] for row in cell) / len(cell) for cell in by_class.values()
    ]
    assert 0 < sum(shares) < 2, "neither all is wrong nor nothing, else it tells nothing apart"
    result = numbers(dataset, [judge, "lab:lcnet_035"])
    score = score_of(result, judge)
    assert (score.measured_on, score.target) == ("recorded", True), "known by its weights"
    assert score.rate == pytest.approx(sum(shares) / 2)
    assert score.failures == sum(not row["resnet10t_right"] for row in rows)
    assert score.base_rate == pytest.approx(
        1 - (result.results.rows.value("top1", model=judge, group="base") or 0)
    )
    assert score_of(result, "lab:lcnet_035").rate is None


def test_without_the_images_only_the_judge_is_reported_by_its_recorded_answers(
    bare: Path, unseen: Evaluation, models: dict[str, str]
) -> None:
    rows = screened_rows(bare)
    failures = sum(not row["judge_right"] for row in rows)
    assert {row["reason"] for row in rows} == {"accepted", "answered_right"}
    sharp = score_of(unseen, models["sharp"])
    assert (sharp.measured_on, sharp.images, sharp.failures) == ("recorded", len(rows), failures)
    assert (failures, sharp.rate) == (3 * WRONG - 1, pytest.approx(failures / len(rows)))
    assert (
        sharp.base_rate == 0
        and sharp.difference
        and sharp.difference.value == pytest.approx(sharp.rate)
    )
    other = score_of(unseen, models["no_red"])
    assert (other.measured_on, other.rate, other.base_rate, other.difference) == (
        None,
        None,
        None,
        None,
    )
    assert other.note and other.note.startswith(
        f"cannot be measured: a rule that asks {JUDGE} kept failures only"
    )


def test_a_judge_that_is_not_scored_has_its_recorded_rate_and_no_base(
    bare: Path, models: dict[str, str]
) -> None:
    result = numbers(bare, [models[name] for name in SEVERAL[1:]])
    judge = score_of(result, JUDGE)
    assert (judge.measured_on, judge.failures, judge.images) == (
        "recorded",
        3 * WRONG - 1,
        3 * SCREENED,
    )
    assert (judge.base_failures, judge.base_rate, judge.difference) == (None, None, None)
    assert judge.note and "not scored here" in judge.note
    assert score_of(result, models["no_blue"]).rate is None


@pytest.fixture(scope="module")
def unjudged(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """Evaluate the same candidates without a rule that asks a classifier."""
    dataset = build_mined(tmp_path_factory.mktemp("unjudged") / "d", models["sharp"])
    return numbers(dataset, [models[name] for name in SEVERAL])


def test_without_a_pick_accepted_images_are_what_is_measured(unjudged: Evaluation) -> None:
    """Without a rule that asks a classifier, the difference is the drop, with its interval."""
    [finding] = unjudged.findings
    assert (finding.screened, finding.accepted, finding.judges) == (3 * SCREENED, 3 * SCREENED, ())
    for model, score in scores_of(unjudged).items():
        plain = unjudged.score(model, "swap")
        assert plain.accuracy is not None and plain.drop_base is not None
        assert (score.rate, score.base_rate) == (1 - plain.accuracy, 1 - plain.drop_base)
        assert score.difference == plain.drop


def test_a_pick_changes_no_finding(measured: Evaluation, unjudged: Evaluation) -> None:
    """Rates and intervals are equal, because both draw pairs together."""
    assert scores_of(measured) == scores_of(unjudged)
    assert measured.scores != unjudged.scores


def test_classes_with_few_such_candidates_are_left_out(
    picked: Path, models: dict[str, str]
) -> None:
    result = numbers(picked, [models["sharp"]], min_images_per_class=SCREENED + 1)
    score = score_of(result, models["sharp"])
    assert (score.rate, score.classes) == (None, 0)
    assert (
        score.note
        == f"cannot be measured: no class has {SCREENED + 1} such candidates and as many base"
        " images"
    )


def test_classes_near_chance_on_the_base_are_in_no_rate(
    picked: Path, models: dict[str, str]
) -> None:
    result = numbers(picked, [models["no_red"], models["only_blue"]])
    assert [model.near_chance for model in result.models] == [False, True]
    [finding] = result.findings
    assert finding.near_chance == ("red",)
    # It is always wrong on red: with that class, a third of its base would fail.
    score = score_of(result, models["no_red"])
    assert (score.classes, score.base_failures, score.base_rate) == (2, 0, 0.0)
    assert score.difference is not None and score.difference.value == pytest.approx(
        WRONG / SCREENED
    )
    assert "Left out of every rate: red, which is near chance on the base." in counted_words(
        finding
    )
    assert any(
        "(near chance)" in sentence for sentence in finding_sentences(result.results, finding)
    )
    [row] = [row for row in findings_csv(result) if row["model"] == models["only_blue"]]
    assert (row["near_chance"], row["classes_near_chance"]) == ("1", "red")


def test_a_file_of_predictions_is_not_asked_for_what_it_has_not_seen(
    picked: Path, measured: Evaluation, tmp_path: Path
) -> None:
    table = pq.read_table(measured.files["predictions"])
    names = ("red", "green", "blue")
    answers = tmp_path / "answers.csv"
    lines = ["key,label", *(f"{row['key']},{names[row['label']]}" for row in table.to_pylist())]
    answers.write_text("\n".join(lines) + "\n")
    result = numbers(picked, [f"predictions:{answers}"])
    score = score_of(result, f"predictions:{answers}")
    assert score.rate is None and "a file of predictions has no answers" in score.note


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (("prompts.shifts.swap.threshold={percentile: 5}",), "the shift's threshold is open"),
        ((), "no candidate passed the screen"),
    ],
)
def test_a_shift_of_which_nothing_passed_says_why(
    changes: Sequence[str], says: str, models: dict[str, str], tmp_path: Path
) -> None:
    screen = lambda sample: sample.shift == "base"  # noqa: E731
    dataset = build_mined(tmp_path / "d", models["sharp"], PICKED, *changes, screen=screen)
    [score] = scores_of(numbers(dataset, [models["sharp"]])).values()
    assert score.rate is None and says in score.note


def test_the_table_and_the_json_hold_the_findings(
    measured: Evaluation, models: dict[str, str]
) -> None:
    rows = csv_rows(measured.files["findings"])
    assert [row["model"] for row in rows] == [models[name] for name in SEVERAL]
    sharp = rows[0]
    assert (sharp["shift"], sharp["words"], sharp["role"], sharp["class_ids"]) == (
        "swap", "swapped things", "hard", "00 01 02",
    )  # fmt: skip
    assert (sharp["candidates"], sharp["screened"], sharp["accepted"]) == ("36", "30", "9")
    assert (sharp["n_images"], sharp["failures"], sharp["rate"], sharp["base_rate"]) == (
        "30",
        "9",
        "30.000",
        "0.000",
    )
    assert (
        float(sharp["difference_low"])
        < float(sharp["difference"])
        < float(sharp["difference_high"])
    )
    document = json.loads(json.dumps(measured.to_json()))
    assert document["findings"][0]["models"][0]["failures"] == 9
    rates = [row["value"] for row in document["rows"] if row["measure"] == "failure_rate"]
    assert rates[0] == pytest.approx(0.3)


def test_what_is_not_measured_is_an_empty_cell(unseen: Evaluation, models: dict[str, str]) -> None:
    [row] = [row for row in findings_csv(unseen) if row["model"] == models["no_red"]]
    names = ("measured_on", "n_images", "failures", "rate", "base_rate", "difference")
    assert [row[name] for name in names] == [""] * len(names)
    assert row["note"].startswith("cannot be measured")


def test_a_dataset_without_mined_shifts_has_no_word_of_findings(evaluation: Evaluation) -> None:
    assert evaluation.findings == ()
    assert "findings" not in evaluation.to_json() and "findings" not in evaluation.files
    assert "finding" not in evaluation.files["report"].read_text().lower()
    assert not (evaluation.files["report"].parent / "findings.csv").exists()
    shown = " ".join(map(str, terminal_lines(evaluation.results)))
    assert "mined shifts" not in shown and "findings" not in shown


def test_other_tables_are_as_they_are_without_the_kind(
    evaluation: Evaluation, models: dict[str, str], tmp_path: Path
) -> None:
    dataset = build_colours(tmp_path / "mined", mined())
    shown = numbers(dataset, list(models.values()), reference=None)
    assert shown.findings and shown.task is not None
    assert shown.models == evaluation.models
    assert [score.drop for score in shown.scores] == [score.drop for score in evaluation.scores]
    for name in ("results", "robustness", "classes", "shifts"):
        text = shown.task.all_tables(shown.results)[name][1]
        assert text.replace(",mined,", ",colour,") == evaluation.files[name].read_text(), name
    assert shown.task.predictions(None) == evaluation.files["predictions"].read_bytes()


def section(page: str) -> str:
    return page.partition(">Findings</h2>")[2].partition("<h2")[0]


def test_the_report_tells_each_in_a_sentence(measured: Evaluation, unseen: Evaluation) -> None:
    page = measured.files["report"].read_text()
    Page(page)  # every tag closes
    shown = Page(section(page)).spaced
    assert "swapped things (hard)" in shown and "30 of 36 candidates passed the screen" in shown
    assert f"a keep rule kept only failures of {JUDGE}, 9 images." in shown
    difference = score_of(measured, measured.models[0].name).difference
    numbers = "30.0 % wrong (9 of 30), 0.0 % of the base (0 of 30); difference 30.0 points"
    assert f"sharp: {numbers} ({format_interval(difference)})." in shown
    assert (
        "chosen because a classifier failed" in shown and "do not estimate drops elsewhere" in shown
    )
    less = section(evaluation_html(unseen.results))
    assert (
        "no_red, small, no_green, no_blue: cannot be measured: " in less
        and "; as recorded in the build." in less
    )


def test_the_terminal_shows_rates_beside_the_drops(
    picked: Path, models: dict[str, str], tmp_path: Path
) -> None:
    names = [models["sharp"], models["no_red"]]
    words = ["evaluate", str(picked), "--no-reference", "--out", str(tmp_path)]
    done = succeed(*words, "--models", *names)
    assert "swapped things (hard)" in done.stdout and "30.0, base 0.0" in done.stdout
    assert f"findings:    {tmp_path / 'findings.csv'}" in done.stdout


HOSTILE = "<script>alert(1)</script> [red]&amp;\x1b[31m\u202e | `x`\n" + "long " * 200


def test_words_of_a_stranger_are_text_of_bounded_length(
    models: dict[str, str], tmp_path: Path
) -> None:
    record = {
        "words": HOSTILE,
        "role": ["x"],
        "target": {"name": HOSTILE, "sha256": 7},
        "q": "NaN",
        "classes": {"a": 1},
    }
    dataset = build_mined(tmp_path / "d", models["sharp"], mined(record))
    out = tmp_path / "out"
    words = ["evaluate", str(dataset), "--no-reference", "--out", str(out)]
    done = succeed(*words, "--models", models["sharp"])
    [finding] = results_from((out / "results.json").read_bytes(), "results.json").findings
    assert finding.words and len(finding.words) == LONGEST and finding.words.isprintable()
    assert (finding.role, finding.models[0].target) == (None, False)
    page = (out / "report.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in section(page)
    assert (
        "\x1b" not in page
        and "\u202e" not in page
        and "\x1b" not in (out / "findings.csv").read_text()
    )
    assert "\x1b[31m" not in done.stdout
    assert "[red]" in done.stdout, "no mark-up of the terminal either"


def test_a_mined_shift_needs_no_record(models: dict[str, str], tmp_path: Path) -> None:
    dataset = build_mined(tmp_path / "d", models["sharp"], mined(None))
    result = numbers(dataset, [models["sharp"]])
    assert result.findings[0].words is None
    assert "></span>swap</h3>" in section(evaluation_html(result.results))


def test_a_page_of_very_many_findings_is_bounded(measured: Evaluation) -> None:
    [finding] = measured.findings
    names = [f"model-{number}" for number in range(30)]
    shown = tuple(replace(finding.models[0], name=name) for name in names)
    findings = tuple(
        replace(finding, shift=f"swap_{number}", words=f"{RECORD['words']} {number}", models=shown)
        for number in range(200)
    )
    rates = [
        row
        for row in measured.results.rows
        if row.measure.startswith(("failure_", "base_failure_"))
    ]
    rows = [
        replace(row, model=name, group=copy.shift)
        for row in rates
        if row.model == finding.models[0].name
        for name in names
        for copy in findings
    ]
    page = evaluation_html(replace(measured.results, findings=findings, rows=ResultRows(rows)))
    assert section(page).count("<h3") == MOST_FINDINGS
    assert section(page).count("% wrong") == MOST_FINDINGS * MOST_SENTENCES
    assert "The list shows the 40 of 200 findings" in page and "and 22 more models" in page


def test_where_drawing_stops_at_failures_it_is_said(models: dict[str, str], tmp_path: Path) -> None:
    quota = f"prompts.shifts.swap.samples={{accepted: 3, at_most: {CANDIDATES}}}"
    dataset = build_mined(tmp_path / "d", models["sharp"], PICKED, ALL_STORED, quota)
    result = numbers(dataset, [models["sharp"]], min_images_per_class=1)
    [finding] = result.findings
    assert (finding.quota, finding.screened, finding.models[0].failures) == (3, 9, 9)
    page = evaluation_html(result.results)
    assert "drawn until 3 per class were kept" in section(page)
    assert "too high by about one part in N" in page


def test_the_results_in_a_dataset_hold_the_findings(models: dict[str, str], tmp_path: Path) -> None:
    dataset = build_mined(tmp_path / "d", models["sharp"], PICKED, ALL_STORED)
    names = [models["sharp"], models["no_red"]]
    result = evaluate(dataset, names, device="cpu", into_card=True, reference=False)
    assert verify_files(dataset) == []
    stored = read_results(dataset, content_of_receipts(read_receipts(dataset)))
    assert stored is not None
    rate = stored.rows.value(
        "failure_rate", model="local-dir:./sharp", group=stored.findings[0].shift
    )
    assert rate == pytest.approx(0.3)
    rows = csv_rows(dataset / "evaluation" / "findings.csv")
    assert [row["model"] for row in rows] == ["local-dir:./sharp", "local-dir:./no_red"]
    assert "## Mined shifts" in (dataset / "README.md").read_text()
    assert result.files["card"] == dataset / "evaluation"


@pytest.fixture
def stranger(picked: Path, tmp_path: Path) -> Path:
    return shutil.copytree(picked, tmp_path / "stranger")


def forge(dataset: Path, folder: str, change: Callable[[pa.Table], pa.Table]) -> None:
    rewrite(dataset / folder / "swap", change, min((dataset / "receipts").glob("swap-*.json")))


def twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(1, 1)])


@pytest.mark.parametrize("folder", ["candidates", "rejected"])
def test_tables_that_are_not_their_receipts_are_refused(
    folder: str, stranger: Path, models: dict[str, str]
) -> None:
    rewrite(stranger / folder / "swap", lambda table: table.slice(1))
    with pytest.raises(RunFailure, match=rf"{folder}/swap/.* is not the file in its receipt"):
        numbers(stranger, [models["sharp"]])
    min((stranger / folder / "swap").iterdir()).unlink()
    with pytest.raises(RunFailure, match=rf"{folder}/swap/.* is missing"):
        numbers(stranger, [models["sharp"]])


# Row 1 is accepted, row 5 answered right, row 0 dropped by the screen.
FORGED: dict[str, tuple[str, Callable[[pa.Table], pa.Table], str]] = {
    "another key": ("candidates", with_value("key", 5, "x"), "not a sample of its shard"),
    "another index": ("candidates", with_value("index", 5, 999), "not a sample of its shard"),
    "twice": ("candidates", twice, "more than once"),
    "another reason": (
        "candidates",
        with_value("reason", 5, "odd"),
        "do not match the counts in its receipts",
    ),
    "accepted in word": (
        "candidates",
        with_value("reason", 5, "accepted"),
        "is accepted in candidates but missing in data",
    ),
    "accepted in deed": (
        "candidates",
        with_value("reason", 1, "answered_right"),
        "rejected does not hold the image of each",
    ),
    "an image less": (
        "rejected",
        lambda table: table.slice(0, table.num_rows - 2),
        "rejected does not hold the image of each",
    ),
    "an image twice": (
        "rejected",
        lambda table: pa.concat_tables([table, table]),
        "rejected does not hold the image of each",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_rows_are_reported_and_never_counted(
    case: str, stranger: Path, models: dict[str, str]
) -> None:
    folder, change, shown = FORGED[case]
    forge(stranger, folder, change)
    with pytest.raises(RunFailure, match=shown):
        numbers(stranger, [models["sharp"]])


def test_an_image_that_candidates_do_not_accept_is_reported(
    models: dict[str, str], tmp_path: Path
) -> None:
    dataset = build_mined(tmp_path / "bare", models["sharp"], PICKED)
    forge(dataset, "candidates", with_value("reason", 1, "answered_right"))
    with refuses("altered-dataset", None, "which the candidates of swap reject", kind=RunFailure):
        numbers(dataset, [models["sharp"]])


def test_an_image_that_cannot_be_decoded_is_left_out(
    stranger: Path, models: dict[str, str]
) -> None:
    def broken(table: pa.Table) -> pa.Table:
        index = table["reason"].to_pylist().index("answered_right")
        return with_value("image", index, {**table["image"][index].as_py(), "bytes": b"no image"})(
            table
        )

    forge(stranger, "rejected", broken)
    result = numbers(stranger, [models["sharp"]])
    [finding] = result.findings
    [rate] = result.results.rows.where("failure_rate")
    assert (finding.screened, rate.n, finding.models[0].failures) == (30, 29, 9)


def test_of_a_dataset_on_the_hub_candidates_are_fetched_where_they_are_counted(
    picked: Path,
    models: dict[str, str],
    loopback: LoopbackHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = client(loopback)
    api.create_repo("someone/mined", repo_type="dataset")
    mine = [".counterfoil/*"]
    api.upload_folder(
        repo_id="someone/mined", repo_type="dataset", folder_path=picked, ignore_patterns=mine
    )
    resolved = f"{loopback.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", loopback.endpoint)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", resolved)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = numbers("someone/mined", [models["sharp"]])
    [model] = result.findings[0].models
    [rate] = result.results.rows.where("failure_rate")
    assert (model.measured_on, rate.n, model.failures) == ("images", 30, 9)
    fetched = {
        path.name for path in (tmp_path / "hub").glob("datasets--*/snapshots/*/candidates/*")
    }
    assert fetched == {"swap"}, "and nothing of shifts that were not mined"
