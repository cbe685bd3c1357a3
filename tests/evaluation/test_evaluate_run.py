"""A whole evaluation finds the planted truth, resumes by content, and reports all mistakes at
once."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colour_world import CANDIDATES, SIZE, SWAPPED, build_colours, png_of, save_colour_model
from counterfoil.cli.main import app
from counterfoil.cli.options import repeat_flags
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.results import Evaluation
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.plan.layout import Sample
from counterfoil.progress import Stage, listening
from counterfoil.store.directory_lock import writing_lock
from counterfoil.store.manifest import verify_files
from counterfoil.store.replacement import replacement_folder
from results_examples import top1
from support.estimates import interval_of
from support.measured import measured
from support.refusals import succeed
from support.reports import evaluation_html
from support.tables import csv_rows


def test_the_planted_drops_are_found(evaluation: Evaluation, models: dict[str, str]) -> None:
    swapped = SWAPPED / CANDIDATES
    for name in models.values():
        dusk = evaluation.score(name, "dusk")
        assert dusk.drop is not None
        assert dusk.drop.value == 0
    sharp = evaluation.score(models["sharp"], "swap")
    assert (sharp.drop_base, sharp.accuracy) == (1.0, pytest.approx(1 - swapped))
    # It never answers red: it is wrong on red, and of swapped green and blue on blue painted red.
    no_red = evaluation.score(models["no_red"], "swap")
    assert no_red.drop_base == pytest.approx(2 / 3)
    assert no_red.drop is not None
    low, value, high = interval_of(no_red.drop)
    assert low <= value <= high
    # The model that always answers blue is right by chance only: averages leave it out.
    drops = [evaluation.score(models[name], "swap").drop for name in models if name != "only_blue"]
    impact = evaluation.number("impact", group="swap")
    assert impact is not None
    assert impact.value == pytest.approx(sum(drop.value for drop in drops if drop) / len(drops))


def test_a_number_is_found_by_what_names_it_and_no_slip_is_none(
    evaluation: Evaluation, models: dict[str, str]
) -> None:
    impact = evaluation.number("impact", group="swap")
    assert impact is not None and evaluation.number("impact", group="swap", model="") == impact
    for slip, says in (
        (
            {"measure": "impcat", "group": "swap"},
            "no number has the measure 'impcat'; did you mean 'impact'? [unclear-number]",
        ),
        (
            {"measure": "impact", "group": "swpa"},
            "no number has the group 'swpa'; did you mean 'swap'",
        ),
        ({"measure": "drop", "modle": "x"}, "no number has the modle 'x'"),
        (
            {"measure": "drop", "group": "swap", "class_id": ""},
            f"Name which: model='{models['sharp']}'",
        ),
    ):
        with pytest.raises(UserError) as refused:
            evaluation.number(**slip)
        assert says in str(refused.value)


def test_pairs_equal_everything_when_every_candidate_is_accepted(evaluation: Evaluation) -> None:
    for score in evaluation.scores:
        assert score.pairs == score.images == 3 * CANDIDATES
        assert score.pairs_drop == score.drop


def test_pairs_only_leaves_the_screens_choice_out(tmp_path: Path, models: dict[str, str]) -> None:
    # The screen keeps mostly swapped images: the plain drop grows, and all pairs are swapped.
    def keep(sample: Sample) -> bool:
        if sample.shift == "base":
            return sample.index < 10
        return sample.index < SWAPPED or sample.index >= 10

    dataset = build_colours(tmp_path / "d", keep=keep)
    score = measured(dataset, [models["sharp"]]).score(models["sharp"], "swap")
    assert score.drop is not None and score.pairs_drop is not None
    assert score.drop.value == pytest.approx(SWAPPED / (SWAPPED + 2))
    assert (score.pairs, score.pairs_drop.value) == (3 * SWAPPED, pytest.approx(1.0))


def test_independent_noise_has_no_pairs(tmp_path: Path, models: dict[str, str]) -> None:
    dataset = build_colours(tmp_path / "d", "samples.noise=independent")
    score = measured(dataset, [models["sharp"]]).score(models["sharp"], "swap")
    assert (score.pairs, score.pairs_drop) == (0, None)
    assert score.drop is not None
    assert score.drop.value == pytest.approx(SWAPPED / CANDIDATES)


def test_classes_with_few_images_are_left_out_on_both_sides(
    tmp_path: Path, models: dict[str, str]
) -> None:
    def keep(sample: Sample) -> bool:
        return not (sample.shift == "swap" and sample.label == 0 and sample.index >= 4)

    dataset = build_colours(tmp_path / "d", keep=keep)
    # With models that see green, so that it is not near chance on the base.
    result = measured(dataset, list(models.values()))
    assert result.task is not None
    swap = next(shift for shift in result.shifts if shift.name == "swap")
    assert [(cls.class_id, cls.base_images, cls.shift_images) for cls in swap.left_out] == [
        ("00", CANDIDATES, 4)
    ]
    assert (swap.classes, swap.accepted, swap.candidates) == (2, 28, 36)
    # Over the surviving classes green and blue, the base accuracy of a model blind to green is a
    # half.
    assert result.score(models["no_green"], "swap").drop_base == pytest.approx(0.5)
    assert result.score(models["no_green"], "dusk").drop_base == pytest.approx(2 / 3)
    row = next(
        row
        for row in csv_rows(result.task.all_tables(result.results)["classes"][1])
        if (row["shift"], row["class_id"]) == ("swap", "00")
    )
    assert (row["measured"], row["n_images"], row["drop"], row["drop_low"]) == ("0", "4", "", "")
    everything = measured(dataset, [models["no_green"]], min_images_per_class=13)
    assert everything.score(models["no_green"], "swap").drop is None
    assert evaluation_html(everything.results)


def test_parquet_and_webdataset_score_the_same(
    tmp_path: Path, models: dict[str, str], evaluation: Evaluation
) -> None:
    tars = build_colours(tmp_path / "tars", "output.format=webdataset")
    result = measured(tars, list(models.values()), batch_size=7)
    assert result.scores == evaluation.scores
    assert result.models == evaluation.models


def test_the_tables_hold_the_results(evaluation: Evaluation, models: dict[str, str]) -> None:
    results = csv_rows(evaluation.files["results"])
    timm = [
        "model",
        "img_size",
        "top1",
        "top1_err",
        "top5",
        "top5_err",
        "param_count",
        "crop_pct",
        "interpolation",
    ]
    assert list(results[0])[:9] == timm
    assert results[0]["model"] == models["sharp"]
    assert (results[0]["top1"], results[0]["top1_err"], results[0]["img_size"]) == (
        "100.000",
        "0.000",
        "32",
    )
    assert results[0]["accuracy.swap"] == "66.667"
    assert results[0]["drop.swap"] == "33.333"
    robustness = csv_rows(evaluation.files["robustness"])
    assert len(robustness) == len(models) * 2
    for row in robustness:
        assert float(row["drop"]) == pytest.approx(
            float(row["drop_base"]) - float(row["accuracy"]), abs=2e-3
        )
        assert float(row["drop_low"]) <= float(row["drop"]) <= float(row["drop_high"])
    shifts = {row["shift"]: row for row in csv_rows(evaluation.files["shifts"])}
    assert list(shifts) == ["base", "dusk", "swap"]
    assert float(shifts["dusk"]["slope"]) == pytest.approx(1.0)
    assert shifts["base"]["yield"] == "100.000"


def test_the_classes_table_holds_each_classs_own_drop(
    evaluation: Evaluation, models: dict[str, str]
) -> None:
    rows = {(row["shift"], row["class_id"]): row for row in csv_rows(evaluation.files["classes"])}
    assert len(rows) == 2 * 3
    for row in rows.values():
        drops = [float(row[f"drop.{name}"]) for name in models.values()]
        sound = [drop for name, drop in zip(models, drops, strict=True) if name != "only_blue"]
        assert float(row["drop"]) == pytest.approx(sum(sound) / 5, abs=2e-3)
        assert float(row["drop"]) == pytest.approx(
            float(row["base_accuracy"]) - float(row["accuracy"]), abs=2e-3
        )
        assert float(row["drop_low"]) <= float(row["drop"]) <= float(row["drop_high"])
    red = rows["swap", "00"]
    assert (red["class"], red["kind"], red["measured"], red["n_images"]) == (
        "red",
        "colour",
        "1",
        "12",
    )
    assert float(red[f"drop.{models['sharp']}"]) == pytest.approx(
        100 * SWAPPED / CANDIDATES, abs=1e-3
    )
    # A model that never answers red is as wrong on red as before.
    assert red[f"drop.{models['no_red']}"] == "0.000"
    # A model's drop is the mean of its classes'.
    for name in models.values():
        mean = (
            sum(float(rows["swap", class_id][f"drop.{name}"]) for class_id in ("00", "01", "02"))
            / 3
        )
        drop = evaluation.score(name, "swap").drop
        assert drop is not None
        assert mean == pytest.approx(100 * drop.value, abs=2e-3)


def test_numbers_without_files_are_those_of_an_evaluation(
    dataset: Path, models: dict[str, str], evaluation: Evaluation
) -> None:
    alone = measured(dataset, list(models.values()), reference=None)
    assert (alone.results, alone.notes) == (evaluation.results, evaluation.notes)


def test_a_slope_needs_five_models(
    dataset: Path, models: dict[str, str], evaluation: Evaluation
) -> None:
    assert all(evaluation.number("slope", group=shift.name) for shift in evaluation.shifts)
    four = measured(dataset, list(models.values())[:5])
    assert sum(not model.near_chance for model in four.models) == 4, (
        "one of the five is near chance"
    )
    assert not four.results.rows.where("slope")
    assert four.task is not None
    tables = four.task.all_tables(four.results)
    assert {row["slope"] for row in csv_rows(tables["shifts"][1])} == {""}


def test_the_recipes_own_models_are_the_default(tmp_path: Path) -> None:
    classes = ", ".join(
        f"{{id: '{n}', name: {c}, source_label: {n}}}" for n, c in enumerate(CLASSES) if n >= 7
    )
    dataset = build_colours(
        tmp_path / "d", "evaluate.models=['lab:lcnet_035']", f"source.classes=[{classes}]"
    )
    assert [model.name for model in measured(dataset).models] == ["lab:lcnet_035"]


def test_an_unreadable_image_is_named_and_left_out(tmp_path: Path, models: dict[str, str]) -> None:
    def image(sample: Sample) -> bytes:
        return b"\x89PNG cut short" if sample.key == "swap_01_000003" else png_of(sample)

    dataset = build_colours(tmp_path / "d", image=image)
    for _ in range(2):  # from the images, then from the cache
        result = measured(dataset, [models["sharp"]])
        assert result.unreadable == ("swap_01_000003",)
        swap = next(shift for shift in result.shifts if shift.name == "swap")
        assert (swap.unreadable, swap.accepted, swap.images) == (1, 36, 35)
        expected = (2 * (1 - SWAPPED / 12) + (1 - (SWAPPED - 1) / 11)) / 3
        assert result.score(models["sharp"], "swap").accuracy == pytest.approx(expected)
    page = evaluate(dataset, [models["sharp"]], device="cpu", reference=False).files["report"]
    assert "swap_01_000003" in page.read_text()
    assert verify_files(dataset) == [], "an evaluated dataset is still whole"


def images_read(dataset: Path, names: list[str], **options) -> int:
    """Count the images that a run decodes to score them; the cache has the rest."""
    shown: list[Stage] = []
    with listening(shown.append):
        evaluate(dataset, names, device="cpu", reference=False, **options)
    not_scoring = ("measuring", "pictures of failures")
    return sum(
        {stage.name: stage.done for stage in shown if stage.name not in not_scoring}.values()
    )


def test_a_second_run_reads_no_image_and_gives_the_same_bytes(
    tmp_path: Path, models: dict[str, str]
) -> None:
    dataset = build_colours(tmp_path / "d")
    n = 3 * 3 * CANDIDATES
    single = [models["sharp"]]
    both = [models["sharp"], models["no_red"]]
    assert images_read(dataset, single) == n
    assert images_read(dataset, single) == 0
    # A run over more models starts with the first new one.
    assert images_read(dataset, both, out=tmp_path / "first") == n
    assert images_read(dataset, both, out=tmp_path / "second", batch_size=5) == 0
    everything = [file for file in (tmp_path / "first").rglob("*") if file.is_file()]
    written = [file for file in everything if file.name != "index.html"]  # it names its folder
    assert any(file.parent.name == "failures" for file in written)
    for file in written:
        assert (
            file.read_bytes()
            == (tmp_path / "second" / file.relative_to(tmp_path / "first")).read_bytes()
        )


def test_other_content_under_the_same_names_is_scored_anew(tmp_path: Path) -> None:
    dataset = build_colours(tmp_path / "d")
    folder = tmp_path / "model"
    name = f"local-dir:{save_colour_model(folder)}"
    first = measured(dataset, [name])
    shutil.rmtree(folder)
    save_colour_model(folder, blind=(0,))
    second = measured(dataset, [name])
    assert (top1(first).value, top1(second).value) == (1.0, pytest.approx(2 / 3))
    entries = list((dataset / ".counterfoil" / "predictions").iterdir())
    assert len(entries) == 2
    # Other images in the same place are other data.
    shutil.rmtree(tmp_path / "d")
    build_colours(tmp_path / "other", "samples.seed=9", keep=lambda sample: sample.label != 2)
    (tmp_path / "other").rename(tmp_path / "d")
    (tmp_path / "d" / ".counterfoil" / "predictions").mkdir(parents=True)
    assert top1(measured(dataset, [name])).value == pytest.approx(0.5)


def test_a_damaged_cache_entry_is_made_again(tmp_path: Path, models: dict[str, str]) -> None:
    dataset = build_colours(tmp_path / "d")
    first = measured(dataset, [models["sharp"]])
    entry = min((dataset / ".counterfoil" / "predictions").iterdir())
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    assert measured(dataset, [models["sharp"]]).scores == first.scores
    assert entry.read_bytes() == whole


def test_a_half_done_recut_is_settled_before_anything_is_scored(
    dataset: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(dataset, tmp_path / "copy"))
    # Killed while entries moved: the receipts are gone, and part of the new data is not moved yet.
    new = replacement_folder(copy)
    shutil.copytree(dataset, new, ignore=shutil.ignore_patterns(".counterfoil"))
    journal = {"new": sorted(path.name for path in new.iterdir()), "gone": []}
    (new.parent / "swap.json").write_text(json.dumps(journal))
    shutil.rmtree(copy / "receipts")
    shutil.rmtree(copy / "data")
    (copy / "manifest.json").unlink()
    assert open_dataset(copy).content == open_dataset(dataset).content
    assert verify_files(copy) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_dataset_is_scored_from_the_users_cache(
    tmp_path: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = build_colours(tmp_path / "d")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dataset.chmod(0o555)
    try:
        result = evaluate(dataset, [models["sharp"]], device="cpu")
    finally:
        dataset.chmod(0o755)
    assert result.files["report"].is_relative_to(tmp_path / "cache")


def hub_cache(root: Path, dataset: Path, name: str) -> Path:
    """Make a Hub cache, as huggingface_hub lays it out, that holds `name`."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = root / f"datasets--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    return shutil.copytree(dataset, repository / "snapshots" / commit)


def test_a_published_dataset_is_scored_and_its_snapshot_left_alone(
    dataset: Path,
    evaluation: Evaluation,
    models: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = hub_cache(tmp_path / "hub", dataset, "someone/colours")
    before = sorted(snapshot.rglob("*"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = list(models.values())
    result = evaluate("someone/colours", names, device="cpu", reference=False)
    assert result.scores == evaluation.scores
    assert result.files["report"].is_relative_to(tmp_path / "cache")
    assert sorted(snapshot.rglob("*")) == before


def test_a_cache_that_cannot_be_written_is_refused_before_a_model_looks(
    dataset: Path, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use a folder below a file, which root cannot write either."""
    hub_cache(tmp_path / "hub", dataset, "someone/colours")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    heard: list[object] = []
    with (
        listening(heard.append),
        pytest.raises(UserError, match=r"file/cache.*: cannot write here") as refused,
    ):
        evaluate("someone/colours", list(models.values()), out=tmp_path / "report", device="cpu")
    assert "XDG_CACHE_HOME" in (refused.value.hint or "")
    assert not heard and not (tmp_path / "report").exists()
    with pytest.raises(RunFailure, match="not in the local cache"):
        measured("someone/else", list(models.values()))


@pytest.mark.parametrize(
    "given",
    [
        "d --models a b c --json",
        "--models a --models b --models c --json d",
        "-m a b -m c --json d",
        "d --models=a b c --json",
        "--json --models a b c -- d",
    ],
)
def test_models_follow_one_flag_or_several(given: str) -> None:
    words = repeat_flags(given.split(), {"--models": "--models", "-m": "--models"})
    models = [words[index + 1] for index, word in enumerate(words) if word in ("--models", "-m")]
    rest = [
        word
        for index, word in enumerate(words)
        if word[:2] != "--" and words[index - 1] != "--models"
    ]
    assert models == ["a", "b", "c"]
    assert rest == ["d"]


def test_a_run_prints_the_drops_and_where_the_report_is(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    names = [models["sharp"], models["no_red"]]
    words = ["evaluate", str(dataset), "--no-reference", "--out", str(tmp_path)]
    result = succeed(*words, "--models", *names)
    assert "33.3" in result.stdout and "swap" in result.stdout
    assert str(tmp_path / "report.html") in result.stdout


def test_a_folder_that_is_made_for_far_larger_images_gets_a_hint(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    large = f"local-dir:{save_colour_model(tmp_path / 'large', size=4 * SIZE)}"
    words = ["evaluate", str(dataset), "--no-reference", "--out", str(tmp_path / "out")]
    words += ["--models", models["sharp"], large]
    shown = CliRunner().invoke(app, words).stdout
    hints = [line for line in shown.splitlines() if "enlarged" in line]
    assert len(hints) == 1 and hints[0].startswith("large sees these images enlarged 4 times")
    assert f"set input_size to [3, {SIZE}, {SIZE}]" in hints[0]
    assert "large sees these images" in (tmp_path / "out" / "report.html").read_text()


def test_a_list_of_models_is_a_file_beside_names(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    listed = tmp_path / "models.txt"
    listed.write_text(f"# two\n{models['sharp']}\n{models['no_red']}  # blind to red\n")
    words = ["evaluate", str(dataset), "--no-reference", "--json", "--out", str(tmp_path / "out")]
    result = succeed(*words, "--models", str(listed), models["no_blue"])
    document = json.loads(result.stdout)  # which is all that stdout holds
    assert [model["name"] for model in document["models"]] == [
        models[name] for name in ("sharp", "no_red", "no_blue")
    ]
    assert document["files"]["classes"] == str(tmp_path / "out" / "classes.csv")
    assert not any("class_id" in row for row in document["rows"])
    drops = [row for row in document["rows"] if row["measure"] == "drop"]
    of_sharp = next(row for row in drops if row["group"] == "swap")
    assert of_sharp["value"] == pytest.approx(1 / 3, abs=1e-6)


def test_a_mistake_reaches_the_caller_as_an_error_for_people(dataset: Path) -> None:
    result = CliRunner().invoke(app, ["evaluate", str(dataset), "--models", "resnet81"])
    assert isinstance(result.exception, UserError)
    missing = CliRunner().invoke(app, ["evaluate", str(dataset), "--models"])
    assert missing.exit_code == 2


def test_two_evaluations_into_one_folder_write_one_after_the_other(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    release = threading.Event()
    locked = threading.Event()
    out.mkdir()

    def hold() -> None:
        with writing_lock(out):
            locked.set()
            release.wait(60)
            (out / "results.json").write_text("of the other")

    other = threading.Thread(target=hold)
    other.start()
    locked.wait(60)
    messages = []

    def hear(event: object) -> None:
        if isinstance(event, Stage) and event.lost is not None:
            messages.append(event.lost)
            release.set()

    with listening(hear):
        result = evaluate(dataset, [models["sharp"]], out=out, device="cpu", reference=False)
    other.join()
    assert messages == [
        f"Waiting for another process (process id {os.getpid()}), which is writing to {out}."
    ]
    assert json.loads((out / "results.json").read_bytes())["content"] == result.results.content
