"""`evaluate --into-card`: results become part of the dataset, whole or not at all, and only of the
data they are of."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlcroissant
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

import warm
from colour_world import build_colours, png_of
from content_reference import content_of_files
from counterfoil.dataset.closing import close_again
from counterfoil.dataset.reading import read_dataset
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from counterfoil.plan.layout import Sample
from counterfoil.progress import listening
from counterfoil.store import sealed_folder
from counterfoil.store.manifest import verify_files
from counterfoil.store.sealed_folder import read_results
from support.estimates import interval_of
from support.files import copy_of, published
from support.refusals import refuses, succeed
from tiny_builds import command

REPO = "someone/colours"
NAMES = ("sharp", "no_red", "no_green", "no_blue", "only_blue", "small")


@pytest.fixture(
    scope="module", params=["parquet", pytest.param("webdataset", marks=pytest.mark.whole)]
)
def stored(
    request: pytest.FixtureRequest, models: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Evaluation]:
    """Build a dataset that holds its results; return both. Read-only."""
    directory = build_colours(
        tmp_path_factory.mktemp("stored") / "colours", f"output.format={request.param}"
    )
    return directory, evaluate(
        directory, list(models.values()), device="cpu", into_card=True, repo=REPO
    )


@pytest.fixture(scope="module")
def replaced(
    stored: tuple[Path, Evaluation],
    models: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Return the dataset with results of another model, without its name. Read-only."""
    copy = copy_of(stored[0], tmp_path_factory.mktemp("replaced") / "place")
    evaluate(copy, models["no_red"], device="cpu", into_card=True, reference=False)
    return copy


def results_of(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "evaluation" / "results.json").read_bytes())


def section(directory: Path) -> str:
    return (
        (directory / "README.md")
        .read_text()
        .partition("\n## What fails\n")[2]
        .partition("\n## ")[0]
    )


def test_the_card_says_that_a_person_gave_the_order_of_a_model_s_outputs(
    models: dict[str, str], tmp_path: Path
) -> None:
    directory = build_colours(tmp_path / "colours")
    model = models["sharp"]
    options: Any = {"device": "cpu", "into_card": True, "reference": False}
    evaluate(directory, [model], class_order={model: "position"}, **options)
    assert "The outputs of `local-dir:./sharp` were matched by position" in section(directory)


def test_the_dataset_is_whole_and_holds_what_was_measured(stored: tuple[Path, Evaluation]) -> None:
    directory, evaluation = stored
    assert verify_files(directory) == []
    document = results_of(directory)
    assert document["content"] == evaluation.results.content == content_of_files(directory)
    assert (document["seed"], document["min_images_per_class"]) == (0, 5)
    assert [model["name"] for model in document["models"]] == [
        f"local-dir:./{name}" for name in NAMES
    ]
    for model, measured in zip(document["models"], evaluation.models, strict=True):
        assert (model["sha256"], model["near_chance"]) == (measured.sha256, measured.near_chance)
        assert model["chance"] == pytest.approx(1 / 3, abs=1e-6)
    assert [group["name"] for group in document["groups"]] == ["base", "dusk", "swap"]
    assert document["reference"]["split"] == "lab:wardrobe:validation"
    stored_rows = read_results(directory, evaluation.results.content)
    assert stored_rows is not None
    public = dict(
        zip(
            (model.name for model in evaluation.models),
            (entry["name"] for entry in document["models"]),
            strict=True,
        )
    )
    for name in ("accuracy", "top1", "drop", "impact", "slope", "validation_gap"):
        rows = evaluation.results.rows.where(name, class_id="")
        assert rows
        for row in rows:
            stored_row = stored_rows.rows.one(
                name, model=public.get(row.model, ""), group=row.group
            )
            assert stored_row is not None
            for end in ("value", "low", "high"):
                assert getattr(stored_row, end) == pytest.approx(getattr(row, end), abs=1e-6)


def tables(shown: str) -> list[list[list[str]]]:
    """Return the rows of each table."""
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in shown.splitlines()
        if line.startswith("|")
    ]
    heads = [at - 1 for at, row in enumerate(rows) if set("".join(row)) <= {":", "-"}]
    return [rows[start:end] for start, end in zip(heads, [*heads[1:], len(rows)], strict=True)]


def test_the_card_shows_the_largest_drops_first_and_folds_the_rest(
    stored: tuple[Path, Evaluation],
) -> None:
    directory, evaluation = stored
    shown = section(directory)
    visible, _, folded = shown.partition("<details>")
    assert visible.strip().startswith("> **Warning.** The base differs from the input dataset: ")
    opening = (directory / "README.md").read_text().partition("\n## ")[0]
    assert (
        "\n> **Warning.** The base differs from the input dataset. " in opening
        and "[What fails](#what-fails)" in opening
    )
    [summary] = tables(visible)
    drops, models, *_ = tables(folded)
    assert summary[0] == ["Model", "Accuracy on base", "Mean drop", "Loses most under", "Next most"]
    assert models[0][:4] == ["Model", "Validation", "Gap to base", "Accuracy on base"]
    base = evaluation.results.base_number(evaluation.models[0].name)
    assert base and base.low is not None
    accuracy = f"100.0 % ({100 * base.low:.1f} to 100.0)"
    assert [models[2][0], models[2][3]] == summary[2][:2] == ["`local-dir:./sharp`", accuracy]
    assert [row[0] for row in summary[2:]] == [row[0] for row in models[2:]]
    [near] = [row for row in models if "near chance" in row[0]]
    assert near[0] == "`local-dir:./only_blue` (near chance)" and "1 of 6 models" in visible
    assert drops[0] == [
        "Shift",
        "All models",
        "Relative drop",
        "Slope",
        "Classes",
        *(row[0] for row in models[2 : 2 + len(NAMES)]),
    ]
    assert [row[0] for row in drops[2:]] == ["`swap`", "`dusk`"], (
        "every third image of swap is another class"
    )
    name = evaluation.models[0].name
    by_shift = {shift: evaluation.score(name, shift).drop for shift in ("swap", "dusk")}
    drop = by_shift["swap"]
    low, value, high = interval_of(drop)
    assert by_shift["dusk"]
    interval = f"({100 * low:.1f} to {100 * high:.1f})"
    assert drops[2][4:6] == ["3", f"{100 * value:.1f} points of 100.0 % {interval}"]
    mean = (value + by_shift["dusk"].value) / 2
    assert summary[2][2:4] == [f"{100 * mean:.1f}", f"swap: {100 * value:.1f} {interval}"]
    assert summary[2][4].startswith("dusk: ")
    assert "at least 5 images" in folded


def test_what_is_not_folded_of_a_card_is_short(stored: tuple[Path, Evaluation]) -> None:
    text = (stored[0] / "README.md").read_text().partition("\n---\n")[2]
    for folded in (r"^```.*?^```$", r"<details>.*?</details>"):
        text = re.sub(folded, "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"\S*\w\S*", text)) <= 900


def test_croissant_lists_the_results(stored: tuple[Path, Evaluation]) -> None:
    dataset = mlcroissant.Dataset(jsonld=str(stored[0] / "croissant.json"))
    assert "evaluation/results.json" in [file.id for file in dataset.metadata.file_objects]
    assert not dataset.metadata.ctx.issues.errors


def test_nothing_tells_of_this_machine(
    stored: tuple[Path, Evaluation], models: dict[str, str]
) -> None:
    folders = {str(stored[0].parent), str(Path(models["sharp"].removeprefix("local-dir:")).parent)}
    for path, content in published(stored[0]).items():
        for folder in folders:
            assert folder.encode() not in content, path


def test_entries_for_the_hub_read_back(stored: tuple[Path, Evaluation]) -> None:
    directory, evaluation = stored
    folder = directory / "evaluation" / "eval_results"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"local-dir-.-{name}.yaml" for name in NAMES
    )
    for model, name in zip(evaluation.models, NAMES, strict=True):
        entries = parse_eval_result_entries(
            yaml.safe_load((folder / f"local-dir-.-{name}.yaml").read_text())
        )
        assert [(entry.dataset_id, entry.task_id) for entry in entries] == [
            (REPO, task) for task in ("base", "dusk", "swap")
        ]
        top1 = evaluation.number("top1", model=model.name, group="base")
        base = evaluation.results.base_number(model.name)
        assert top1 and entries[0].value == pytest.approx(100 * top1.value, abs=1e-3)
        assert base and entries[0].notes
        assert f"averaged over 3 classes {100 * base.value:.1f}" in entries[0].notes
        assert ("near chance" in entries[0].notes) == model.near_chance
        assert "on validation images of the source: gap to the base" in entries[0].notes
        for entry, shift in zip(entries[1:], ("dusk", "swap"), strict=True):
            score = evaluation.score(model.name, shift)
            assert score.top1 and score.top1.low is not None and score.drop and entry.notes
            assert entry.value == pytest.approx(100 * score.top1.value, abs=1e-3)
            assert f"95 % interval {100 * score.top1.low:.1f} to" in entry.notes
            assert f"{100 * score.drop.value:.1f} points" in entry.notes
            assert entry.date is None


def test_entries_go_beside_the_tables_where_the_dataset_has_a_name(
    dataset: Path, evaluation: Evaluation, models: dict[str, str], tmp_path: Path
) -> None:
    before = published(dataset)
    assert "entries" not in evaluation.files
    assert not (evaluation.files["report"].parent / "eval_results").exists()
    options: Any = {"out": tmp_path, "device": "cpu", "reference": False}
    named = evaluate(dataset, models["sharp"], repo=REPO, **options)
    (file,) = named.files["entries"].iterdir()
    assert parse_eval_result_entries(yaml.safe_load(file.read_text()))[0].dataset_id == REPO
    with refuses("invalid-option", "repo"):
        evaluate(dataset, models["sharp"], repo="colours", **options)
    assert published(dataset) == before, "without --into-card the dataset stays as it is"


def test_the_same_evaluation_gives_the_same_bytes(
    stored: tuple[Path, Evaluation], models: dict[str, str], tmp_path: Path
) -> None:
    copy = copy_of(stored[0], tmp_path / "again")
    evaluate(copy, list(models.values()), device="cpu", into_card=True, repo=REPO)
    assert published(copy) == published(stored[0])


def test_other_models_take_the_place_of_the_first(replaced: Path) -> None:
    assert verify_files(replaced) == []
    assert [model["name"] for model in results_of(replaced)["models"]] == ["local-dir:./no_red"]
    assert not (replaced / "evaluation" / "eval_results").exists(), (
        "nobody said what the dataset is called"
    )
    assert "no_blue" not in section(replaced)


def test_a_dataset_that_is_closed_again_keeps_its_results(
    stored: tuple[Path, Evaluation], tmp_path: Path
) -> None:
    copy = copy_of(stored[0], tmp_path / "closed")
    close_again(copy)
    assert published(copy) == published(stored[0])


def grey(sample: Sample) -> bytes:
    return png_of(sample) + b"\0"  # after the end of a PNG: other bytes, the same pixels


@pytest.mark.parametrize(
    "damage", ["results.json", "classes.csv", "eval_results/local-dir-.-sharp.yaml", "data"]
)
def test_results_that_do_not_hold_are_removed_and_not_shown(
    stored: tuple[Path, Evaluation], damage: str, tmp_path: Path
) -> None:
    directory = stored[0]
    copy = copy_of(directory, tmp_path / "damaged")
    if damage == "data":
        format = "webdataset" if (directory / "_info.json").exists() else "parquet"
        (copy / "receipts" / "swap-00000.json").unlink()
        build_colours(copy, f"output.format={format}", image=grey)
    else:
        file = copy / "evaluation" / damage
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    close_again(copy)
    assert not (copy / "evaluation").exists()
    assert section(copy) == ""
    assert "evaluation/" not in (copy / "croissant.json").read_text()
    assert verify_files(copy) == []


@pytest.mark.parametrize(
    "odd", [{"models": 7}, {"rows": [{"measure": "drop", "value": "much"}]}, {"more": 1}]
)
def test_sealed_results_of_another_form_are_reported_in_a_sentence(
    stored: tuple[Path, Evaluation], odd: dict[str, Any], tmp_path: Path
) -> None:
    copy = copy_of(stored[0], tmp_path / "odd")
    document = results_of(copy) | odd
    files = {
        path: hashlib.sha256((copy / "evaluation" / path).read_bytes()).hexdigest()
        for path in document["files"]
    }
    rest = {
        name: value
        for name, value in document.items()
        if name not in ("sha256", "files", "version")
    }
    content = sealed_folder.sealed(rest, files, document["version"])
    (copy / "evaluation" / "results.json").write_bytes(content)
    close_again(copy)
    shown = section(copy)
    assert "are not shown: evaluation/results.json is not a results document" in shown
    assert "|" not in shown and verify_files(copy) == []


# Ends the process, as a kill does, before its n-th rename to a path that holds a text.
KILLED = """
import json, os, sys
left = int(sys.argv[3])
def hook(event, arguments):
    global left
    if event == "os.rename" and sys.argv[2] in str(arguments[1]):
        if left == 0:
            os._exit(9)
        left -= 1
sys.addaudithook(hook)
from counterfoil.evaluation import evaluate
evaluate(sys.argv[1], json.loads(sys.argv[4]), device="cpu", into_card=True, repo=sys.argv[5])
"""


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("place/evaluation/", 3),
        ("place/manifest.json", 0),
        *(
            pytest.param(path, 0, marks=pytest.mark.whole)
            for path in ("place/evaluation/", "place/README.md", "place/croissant.json")
        ),
    ],
)
def test_a_killed_run_leaves_the_dataset_as_it_was(
    stored: tuple[Path, Evaluation],
    replaced: Path,
    path: str,
    count: int,
    models: dict[str, str],
    tmp_path: Path,
) -> None:
    directory = stored[0]
    if (directory / "_info.json").exists():
        pytest.skip("closing knows no format")
    # With results of another model, so that every file is rewritten.
    target = copy_of(replaced, tmp_path / "place")
    before = published(target)
    names = json.dumps(list(models.values()))
    words = [sys.executable, "-c", KILLED, str(target), path, str(count), names, REPO]
    _, environment = command()
    done = warm.run(words, environment)
    assert done.returncode == 9, done.stderr
    assert published(target) != before, "it was at work"
    assert read_dataset(target, "receipts").finished()
    assert published(target) == before and verify_files(target) == []
    evaluate(target, list(models.values()), device="cpu", into_card=True, repo=REPO)
    assert published(target) == published(directory)


def test_what_cannot_hold_results_is_refused_before_a_model_is_scored(
    stored: tuple[Path, Evaluation], models: dict[str, str], tmp_path: Path
) -> None:
    def run(source: str | Path) -> None:
        def hear(says: object) -> None:
            raise AssertionError(f"scored: {says}")

        with listening(hear):
            evaluate(source, models["sharp"], device="cpu", into_card=True)

    with refuses("unfit-option", None, "is a published dataset") as refused:
        run("someone/colours@v1")
    assert "hf download someone/colours@v1" not in str(refused.value.hint)
    assert "--revision v1" in str(refused.value.hint)
    with pytest.raises(UserError, match=r"\[unknown-dataset\]"):
        run(tmp_path / "nothing")
    unfinished = copy_of(stored[0], tmp_path / "unfinished")
    (unfinished / "receipts" / "swap-00000.json").unlink()
    with pytest.raises(UserError, match="not finished"):
        run(unfinished)
    changed = copy_of(stored[0], tmp_path / "changed")
    file = min((changed / "data" / "dusk").iterdir())
    shutil.copy(min((changed / "data" / "base").iterdir()), file)
    before = published(changed)
    with pytest.raises(RunFailure, match="not the file in its receipt"):
        run(changed)
    assert published(changed) == before


def test_the_command_stores_and_says_what_is_missing(
    models: dict[str, str], tmp_path: Path
) -> None:
    directory = build_colours(tmp_path / "colours")
    arguments = ["evaluate", str(directory), "--models", models["sharp"], "--into-card"]
    arguments.append("--no-reference")
    done = succeed(*arguments)
    assert str(directory / "evaluation") in done.stdout
    assert "--repo USER/NAME" in done.stderr
    named = succeed(*arguments, "--repo", REPO, "--json")
    files: Mapping[str, str] = json.loads(named.stdout)["files"]
    assert files["card"] == str(directory / "evaluation")
    assert "--repo" not in named.stderr
    assert verify_files(directory) == []


def test_entries_name_the_tasks_of_the_benchmark(models: dict[str, str], tmp_path: Path) -> None:
    """Adding a framework to a built dataset and removing it again renders no image."""
    directory = build_colours(tmp_path / "colours", f"publish.repo={REPO}")
    # The recipe names the repository, so that no option is needed.
    evaluate(directory, models["sharp"], device="cpu", into_card=True, reference=False)
    assert not (directory / "eval.yaml").exists()
    build_colours(directory, f"publish={{repo: {REPO}, evaluation_framework: math-arena}}")
    close_again(directory)
    tasks = yaml.safe_load((directory / "eval.yaml").read_bytes())["tasks"]
    (file,) = (directory / "evaluation" / "eval_results").iterdir()
    entries = yaml.safe_load(file.read_text())
    assert (
        [task["id"] for task in tasks]
        == [row["dataset"]["task_id"] for row in entries]
        == ["base", "dusk", "swap"]
    )
    # Required keys of an entry, and the optional keys that these entries have: eval_results.yaml in
    # huggingface/hub-docs at 242f4a1eeb867daf4ac3f44026a5df4a68908a3d.
    for entry in entries:
        assert {"dataset", "value"} <= entry.keys() <= {"dataset", "value", "notes"} and entry[
            "dataset"
        ]["id"] == REPO
        assert isinstance(entry["value"], float) and 0 <= entry["value"] <= 100
    assert verify_files(directory) == []
    (directory / "eval.yaml").write_text("name: mine\n")
    build_colours(directory)
    close_again(directory)
    assert (directory / "eval.yaml").read_text() == "name: mine\n", (
        "without the key it is a person's own"
    )
    (directory / "eval.yaml").unlink()
    close_again(directory)
    assert not (directory / "eval.yaml").exists() and verify_files(directory) == [], (
        "and may be deleted by hand"
    )


def test_the_document_that_tells_of_its_tables_is_written_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(
        sealed_folder, "write_atomically", lambda path, content: order.append(path.name)
    )
    sealed_folder.EVALUATED.write(tmp_path, {"a.csv": b"", "results.json": b"{}", "z.csv": b""})
    assert order[0] == "results.json" and sorted(order) == ["a.csv", "results.json", "z.csv"]
