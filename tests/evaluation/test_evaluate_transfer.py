"""How often other models are wrong where a judge was wrong: by caption, beside the base, and by
kinship."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from colour_kinds import ColourModule, as_tensor
from colour_world import CANDIDATES, COLOURS, NAMES, SIZE, SWAPPED
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import with_public_names
from counterfoil.evaluation.tasks.classes.measures.transfer import (
    architecture_family,
    is_known,
    relation_of,
)
from counterfoil.report.results import ResultRow, ResultRows, Results
from counterfoil.report.transfer import (
    Transfer,
    TransferModel,
    found_words,
    kept_words,
    transfer_tables,
)
from counterfoil.stats import Estimate
from counterfoil.store.manifest import content_of_receipts, verify_files
from counterfoil.store.reading import read_receipts
from counterfoil.store.sealed_folder import read_results
from mined_colours import JUDGE, PICKED, build_mined, mined
from support.estimates import interval_of
from support.measured import measured as numbers
from support.pages import Page
from support.refusals import refuses, succeed
from support.reports import evaluation_html
from support.tables import csv_rows
from tiny_builds import tiny

WRONG = SWAPPED - 1  # of a class: the screen drops the first
BASE = CANDIDATES - 2
PLAIN = "prompts.shifts.swap={kind: colour}"


@pytest.fixture(scope="module")
def picked(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset whose rule keeps what `sharp` gets wrong, under a shift that was not mined.
    Read-only."""
    return build_mined(
        tmp_path_factory.mktemp("picked") / "colours", models["sharp"], PLAIN, PICKED
    )


@pytest.fixture(scope="module")
def measured(picked: Path, models: dict[str, str]) -> Evaluation:
    # `before` answers the previous colour: it is right only on images painted as the next class.
    given = {
        "before": ColourModule((1, 2, 0)),
        "sharp": models["sharp"],
        "only_blue": models["only_blue"],
    }
    return numbers(picked, given, transform={"before": as_tensor})


@dataclass(frozen=True)
class Score:
    """Kinship of a model to a judge, its top-1 and top-3 rows under a shift, and those of the
    base."""

    relation: str
    images: int | None
    base_images: int | None
    first: ResultRow
    third: ResultRow | None
    base: float | None
    base_third: float | None

    @property
    def rate(self) -> Estimate:
        assert self.first.estimate is not None
        return self.first.estimate


def scores_of(results: Results, transfer: Transfer, shift: str = "") -> dict[str, Score]:
    scores = {}
    for model in transfer.models:
        key = {"model": model.name, "group": shift, "against": transfer.judge}
        first, third = (results.rows.one("transfer", at=rule, **key) for rule in ("top1", "top3"))
        base, base_third = (
            results.rows.one("transfer_base", at=rule, **key) for rule in ("top1", "top3")
        )
        if first is not None and base is not None:
            third_base = base_third.value if base_third else None
            scores[model.name] = Score(
                model.relation, first.n, base.n, first, third, base.value, third_base
            )
    return scores


def test_rates_are_over_what_the_judge_got_wrong_with_the_base_beside(measured: Evaluation) -> None:
    [transfer] = measured.transfer
    assert (transfer.judge, transfer.family, transfer.scored) == (JUDGE, "resnet", True)
    assert (transfer.captions, transfer.images) == (3, 3 * WRONG)
    [shift] = transfer.shifts
    assert (shift.name, shift.at_least, shift.candidates, shift.accepted) == (
        "swap",
        1,
        3 * CANDIDATES,
        3 * WRONG,
    )
    scores = scores_of(measured.results, transfer)
    rates = {name: (score.rate.value, score.base) for name, score in scores.items()}
    # `only_blue` is right on images of blue only, on either side.
    assert rates == {
        "sharp": (1, 0),
        "before": (0, 1),
        "only_blue": (pytest.approx(2 / 3), pytest.approx(2 / 3)),
    }
    assert {score.base_images for score in scores.values()} == {3 * BASE}
    assert {name: score.relation for name, score in scores.items()} == {
        "sharp": "judge", "only_blue": "same architecture", "before": "other"
    }  # fmt: skip
    itself, before, blue = (scores[name].rate for name in ("sharp", "before", "only_blue"))
    assert (itself.low, itself.high) == (None, None), "nothing was estimated"
    assert before.high is not None and before.high > 0.3, "three captions agree"
    low, _, high = interval_of(blue)
    assert 0 < low < 0.05 and 0.99 < high < 1, "three captions, of which one is right"
    assert all(score.third is None for score in scores.values()), (
        "three outputs leave nothing to get wrong"
    )


def test_a_dataset_without_such_a_rule_has_nothing_of_it(evaluation: Evaluation) -> None:
    assert evaluation.transfer == () and "transfer" not in evaluation.to_json()
    assert "transfer" not in evaluation.files
    assert "ransfer" not in evaluation.files["report"].read_text()


def test_a_judge_that_is_not_scored_is_known_by_what_it_recorded(
    picked: Path, models: dict[str, str]
) -> None:
    result = numbers(picked, [models["no_blue"]])
    [transfer] = result.transfer
    assert not transfer.scored
    judge, other = transfer.models
    assert (judge.name, judge.relation, other.relation) == (JUDGE, "judge", "same architecture")
    score = scores_of(result.results, transfer)[JUDGE]
    assert (score.rate, score.base) == (Estimate(1.0), None)


def test_classes_near_chance_on_the_base_are_in_no_rate(
    picked: Path, models: dict[str, str]
) -> None:
    given = [models[name] for name in ("sharp", "no_red", "only_blue")]
    result = numbers(picked, given)
    assert [cls.name for cls in result.near_chance_classes] == ["red"]
    [transfer] = result.transfer
    assert (transfer.captions, transfer.images, transfer.classes_near_chance) == (
        2,
        2 * WRONG,
        ("red",),
    )
    assert scores_of(result.results, transfer)[models["no_red"]].base == 0, (
        "of red it is wrong about every image"
    )
    assert "Not counted: red, near chance on the base." in kept_words(transfer)
    assert "1 model of its architecture" in found_words(transfer, result.results)
    [table] = transfer_tables(transfer, result.results)
    assert [(row.cells[0].text, row.cells[0].below) for row in table.rows] == [
        ("sharp", ""), ("no_red", ""), ("only_blue", "near chance")
    ]  # fmt: skip


def test_the_first_three_answers_count_where_a_model_ranks_enough(
    picked: Path, measured: Evaluation, tmp_path: Path
) -> None:
    assert measured.task is not None
    names = ("red", "green", "blue", "mauve", "teal")
    table = pq.read_table(pa.BufferReader(measured.task.predictions(None))).to_pylist()
    lines = ["key," + ",".join(names)]
    for row in table:
        # The label is first on the base; otherwise second for red and last for the others.
        rank = 0 if row["shift"] == "base" else 1 if row["label"] == 0 else 4
        others = [other for other in range(5) if other != row["label"]]
        order = [*others[:rank], row["label"], *others[rank:]]
        lines.append(
            f"{row['key']}," + ",".join(str((5 - order.index(output)) / 15) for output in range(5))
        )
    answers = tmp_path / "answers.csv"
    answers.write_text("\n".join(lines) + "\n")
    result = numbers(picked, [f"predictions:{answers}"])
    assert str(tmp_path) not in json.dumps(with_public_names(result.results).to_json()), (
        "a folder of this machine"
    )
    [transfer] = result.transfer
    score = scores_of(result.results, transfer)[f"predictions:{answers}"]
    assert score.relation == "other" and (score.rate.value, score.base) == (1, 0)
    assert score.third is not None and (score.third.value, score.base_third) == (
        pytest.approx(2 / 3),
        0,
    )


def test_images_beside_the_dataset_are_reported_where_they_are_at_hand(
    picked: Path, models: dict[str, str], tmp_path: Path
) -> None:
    for name, colour in zip(NAMES, COLOURS, strict=True):
        (tmp_path / "natural" / name).mkdir(parents=True)
        Image.new("RGB", (SIZE, SIZE), colour).save(tmp_path / "natural" / name / "one.png")
    given = [models["only_blue"], models["sharp"]]
    result = numbers(picked, given, beside={"natural": tmp_path / "natural"})
    key = {"model": models["only_blue"], "against": result.transfer[0].judge, "at": "top1 natural"}
    assert result.results.rows.value("transfer_beside", **key) == pytest.approx(2 / 3)
    assert result.task is not None
    _, text = result.task.all_tables(result.results)["transfer"]
    assert "beside.natural.top1" in text.splitlines()[0]
    Page(evaluation_html(result.results))  # every tag closes


def test_a_built_dataset_of_two_judges_agrees_with_a_count_of_its_rows(tmp_path: Path) -> None:
    judges = ("lab:resnet10t", "lab:lcnet_035")
    keep = f"screen.keep=[thresholds, {{misclassified: {{models: [{', '.join(judges)}]}}}}]"
    dataset = tmp_path / "d"
    tiny(
        dataset,
        keep,
        "prompts.shifts.pencil_sketch=null",
        "samples.candidates=4",
        "screen.store_embeddings=false",
    )
    scored = [*judges, "lab:resnet14t", "lab:mobilenetv3_small_050", "lab:vit_tiny_patch8"]
    result = numbers(dataset, scored)
    assert result.task is not None
    rows = [
        row
        for file in sorted((dataset / "data").rglob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    table = pq.read_table(pa.BufferReader(result.task.predictions(None))).to_pylist()
    answers = {row["key"]: row for row in table}
    assert [transfer.judge for transfer in result.transfer] == list(judges)
    for transfer, column in zip(
        result.transfer, ("resnet10t_right", "lcnet_035_right"), strict=True
    ):
        failures = [row for row in rows if row[column] is False]
        assert 0 < len(failures) == transfer.images
        assert transfer.captions == len({(row["shift"], row["class_id"]) for row in failures})
        for shift in ("", "red", "in_the_snow"):
            counted = [row for row in failures if shift in ("", row["shift"])]
            scores = scores_of(result.results, transfer, shift)
            assert set(scores) == (set(scored) if counted else set())
            for model, score in scores.items():
                wrong = [row for row in counted if not answers[row["key"]][f"right.{model}"]]
                assert (score.first.count, score.images) == (len(wrong), len(counted))
                assert score.rate.value == pytest.approx(len(wrong) / len(counted))
                assert score.third is not None and score.third.count <= score.first.count
        itself = scores_of(result.results, transfer)[transfer.judge]
        assert itself.rate.value == 1, "the build's answers are those that are measured here"
    relations = {
        model: [scores_of(result.results, transfer)[model].relation for transfer in result.transfer]
        for model in scored
    }
    assert relations == {
        "lab:resnet10t": ["judge", "other"],
        "lab:lcnet_035": ["other", "judge"],
        "lab:resnet14t": ["same family", "other"],
        "lab:mobilenetv3_small_050": ["other", "same family"],
        "lab:vit_tiny_patch8": ["other", "other"],
    }


def test_tables_page_and_results_tell_it(models: dict[str, str], tmp_path: Path) -> None:
    dataset = build_mined(tmp_path / "d", models["sharp"], mined(), PICKED)
    names = [models["sharp"], models["only_blue"]]
    words = ["evaluate", str(dataset), "--no-reference", "--into-card", "--models", *names]
    done = succeed(*words, "--out", str(tmp_path / "o"))
    assert "transfer:" in done.stdout and "by construction" in done.stdout and "66.7" in done.stdout
    rows = csv_rows(tmp_path / "o" / "transfer.csv")
    assert [(row["relation"], row["by_construction"], row["rate.top1"]) for row in rows] == [
        ("judge", "1", "100.000"), ("same architecture", "0", "66.667")
    ]  # fmt: skip
    page = (tmp_path / "o" / "report.html").read_text()
    Page(page)  # every tag closes
    assert (
        "by construction" in page
        and "same architecture, other weights" in page
        and "in Figure 4 of Wiles et al. 2022" in page
    )
    text = (dataset / "evaluation" / "results.json").read_text()
    stored = read_results(dataset, content_of_receipts(read_receipts(dataset)))
    assert stored is not None
    [shown] = stored.transfer
    rates = [score.rate.value for score in scores_of(stored, shown).values()]
    assert rates == [1, pytest.approx(2 / 3, abs=1e-6)]
    assert str(Path(models["sharp"].removeprefix("local-dir:")).parent) not in text
    assert (dataset / "evaluation" / "transfer.csv").read_text().count("\n") == 3
    card = (dataset / "README.md").read_text()
    assert "66.7 (3.7 to 99.9)" in card and "by construction" in card
    verify_files(dataset)


def test_a_page_of_many_judges_models_and_shifts_holds(measured: Evaluation) -> None:
    [transfer] = measured.transfer
    hostile = "<script>alert(1)</script>" * 3
    rows: list[ResultRow] = []
    many: list[Transfer] = []
    for number in range(7):
        judge = f"{hostile}{number}"
        names = [f"{hostile}{model}" for model in range(18)]
        shifts = tuple(replace(transfer.shifts[0], name=f"shift_{shift}") for shift in range(60))
        kin = tuple(TransferModel(name, hostile, "other") for name in names)
        many.append(replace(transfer, judge=judge, models=kin, shifts=shifts))
        for group in ("", *(shift.name for shift in shifts)):
            key = {"group": group, "against": judge, "at": "top1", "n": 9, "units": 3}
            rows += [
                ResultRow("transfer", model=name, value=0.5, low=0.1, high=0.9, **key)
                for name in names
            ]
    page = evaluation_html(replace(measured.results, transfer=tuple(many), rows=ResultRows(rows)))
    Page(page)  # every tag closes
    assert "<script>alert" not in page
    assert "more shifts, in transfer.csv" in page and "and 1 more, in transfer.csv" in page


@pytest.mark.parametrize(
    ("architecture", "family"),
    [
        ("resnet10t", "resnet"),
        ("resnet50.a1_in1k", "resnet"),
        ("resnetv2_101x1_bit", "resnet"),
        ("wide_resnet50_2", "resnet"),
        ("legacy_seresnext26_32x4d", "resnet"),
        ("ResNetForImageClassification", "resnet"),
        ("RN50", "resnet"),
        ("vit_tiny_patch16", "vit"),
        ("deit3_small_patch16_224", "vit"),
        ("ViT-B-32-quickgelu", "vit"),
        ("ViTForImageClassification", "vit"),
        ("convnext_atto", "convnext"),
        ("convnextv2_tiny.fcmae", "convnext"),
        ("ConvNextV2ForImageClassification", "convnext"),
        ("mobilenetv3_small_050", "mobilenet"),
        ("tf_mobilenetv3_large_100", "mobilenet"),
        ("lcnet_035", "mobilenet"),
        ("tf_efficientnetv2_s", "efficientnet"),
        ("swinv2_tiny_window8_256", "swin"),
        ("densenet121", "densenet"),
        ("maxvit_tiny_tf_224", "maxvit"),
        ("mobilevit_s", "mobilevit"),
    ],
)
def test_a_name_tells_its_family(architecture: str, family: str) -> None:
    assert architecture_family(architecture, "somebody") == family


def test_every_architecture_of_the_library_has_a_family() -> None:
    import timm

    names = timm.list_models()
    families = {name: architecture_family(name) for name in names}
    assert all(families.values())
    assert 20 < len(set(families.values())) < len(names) / 4, (
        "neither all in one nor each by itself"
    )


@pytest.mark.parametrize("untold", ["", "predictions", "open_clip", "<lambda>"])
def test_what_tells_no_architecture_is_of_its_models_own_family(untold: str) -> None:
    assert not is_known(untold)
    assert architecture_family(untold, "predictions:a.csv") == "predictions:a.csv"


def test_kinship_is_known_by_names_and_sizes() -> None:
    judge = ("resnet10t", "aa", (400, 10))
    assert relation_of("resnet10t.tag", "bb", (400, 10), *judge) == "same architecture"
    assert relation_of("resnet10t", "bb", (900, 10), *judge) == "same family", (
        "a wider one is no other initialisation"
    )
    assert relation_of("resnet10t", "bb", (399, 7), *judge) == "same architecture", (
        "another head tells nothing"
    )
    assert (
        relation_of("resnet10t", "bb", (400, 10), "resnet10t", "aa", (None, None))
        == "same architecture"
    )
    assert relation_of("resnet14t", "bb", (400, 10), *judge) == "same family"
    assert relation_of("vit_tiny", "bb", (400, 10), *judge) == "other"
    assert relation_of("predictions", "bb", (None, 10), "predictions", "aa", (None, 10)) == "other"


def test_images_that_answers_over_all_outputs_chose_are_not_scored_over_the_classes_alone(
    picked: Path,
    models: dict[str, str],
) -> None:
    with refuses("unfit-option", "outputs", "were chosen by what classifiers answered"):
        numbers(picked, [models["sharp"]], outputs="classes")
