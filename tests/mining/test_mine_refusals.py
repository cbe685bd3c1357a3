"""Bad input of a whole run: a message that says what is wrong, or a reason for that class; never a
silent finding."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from mined_examples import SANDAL, T_SHIRT, answer, on_the_beach, recipe_sets, save_split, scenes

from counterfoil.errors import RunFailure, UserError
from counterfoil.lab.world import Scene
from counterfoil.mining.mine_recipe import MineResult, mine
from drawn_folders import draw_folder
from support.refusals import succeed

AUDITED = scenes(0, 80)
TRAIN = scenes(300, 10)
BROKEN = (3, 17)
KEYS = [f"validation_{row:08d}" for row in range(len(AUDITED))]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "data"
    save_split(folder, "validation", AUDITED, BROKEN)
    save_split(folder, "train", TRAIN)
    return folder


def of_sandals(fails: Callable[[Scene], bool]) -> Callable[[Scene], bool]:
    return lambda scene: scene.label == SANDAL and fails(scene)


def mined(world: Path, out: Path, target: str, *sets: str, **more: Any) -> MineResult:
    overrides = [*recipe_sets(world), *sets]
    return mine(
        "wardrobe-mini",
        out,
        overrides=overrides,
        target=target,
        device="cpu",
        workers=1,
        **more,
    )


@pytest.fixture(scope="module")
def result(world: Path, tmp_path_factory: pytest.TempPathFactory) -> MineResult:
    target = answer(world.parent / "all.csv", AUDITED, lambda scene: scene.label == T_SHIRT)
    return mined(world, tmp_path_factory.mktemp("mined"), target)


def test_classes_without_an_error_or_with_nothing_else_have_a_reason(result: MineResult) -> None:
    reasons = {cls.name: (cls.reason, cls.direction, cls.rate) for cls in result.findings.classes}
    assert reasons == {"t-shirt": ("all wrong", None, 1.0), "sandal": ("no errors", None, 0.0)}
    assert result.findings.findings == ()
    assert "recipe" not in result.files


def test_fewer_errors_than_a_direction_needs_is_a_reason(world: Path, tmp_path: Path) -> None:
    """One error is in one fold, which leaves the other fold without errors."""
    lonely = next(scene.seed for scene in AUDITED[20:] if scene.label == SANDAL)
    target = answer(tmp_path / "one.csv", AUDITED, lambda scene: scene.seed == lonely)
    result = mined(world, tmp_path / "out", target, "mine.settings.fewest_errors=2")
    reason = {cls.name: cls.reason for cls in result.findings.classes}["sandal"]
    assert reason in ("1 error, at least 2 are needed", "no errors")  # in this half or in the other


def test_images_that_nobody_can_decode_are_left_out_and_counted(result: MineResult) -> None:
    findings = result.findings
    assert findings.unreadable == len(BROKEN)
    assert sum(cls.rows for cls in findings.classes) == len(AUDITED) - len(BROKEN)
    assert findings.halves is not None
    assert findings.halves.discover.rows + findings.halves.confirm.rows == len(AUDITED) - len(
        BROKEN
    )
    assert "2 more could not be read" in result.files["report"].read_text()


def test_classes_that_clip_does_not_know_are_told_as_a_build_tells_them(tmp_path: Path) -> None:
    """Mine shapes, which the lab's CLIP has no words for. `build` warns of the same folder."""
    folder = draw_folder(tmp_path / "shapes", per_class=12, splits=("validation",))
    classes = (
        "source.classes=[{id: a, name: ladder, source_label: 0}, {id: b, name: mug,"
        " source_label: 1}]"
    )
    lines = [f"validation_{row:08d},{'ab'[row % 2]}" for row in range(24)]
    (tmp_path / "answers.csv").write_text("\n".join(["key,class_id", *lines]) + "\n")
    words = [
        word
        for change in (
            *recipe_sets(folder),
            classes,
            "mine.others=[]",
            "mine.settings.fewest_errors=3",
        )
        for word in ("--set", change)
    ]
    target = [
        "--target",
        f"predictions:{tmp_path / 'answers.csv'}",
        "--out",
        str(tmp_path / "mined"),
        "--json",
    ]
    done = succeed("mine", "wardrobe-mini", *target, "--device", "cpu", *words)
    assert "Warning: CLIP does not know these classes: it matches " in done.stderr
    assert "of 24 audited images" in done.stderr and "screen.model" in done.stderr
    document = json.loads(done.stdout)
    assert document["doubts"][0].startswith("CLIP does not know these classes")
    assert all(finding["words_untrusted"] for finding in document["findings"])
    page = (tmp_path / "mined" / "report.html").read_text()
    assert '<a class="warn" href="#doubts"><bdi>CLIP does not know these classes' in page


def test_classes_that_clip_knows_are_told_of_without_a_warning(result: MineResult) -> None:
    assert result.findings.doubts == ()
    assert "Warning:" not in result.files["report"].read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda lines: lines[:-2],
            r"no answer to 2 of 80 images: validation_00000078, validation_00000079",
        ),
        (lambda lines: [*lines, lines[30]], r"more than one answer to validation_00000029"),
        (
            lambda lines: [*lines, *(f"test_{row:08d},05" for row in range(7))],
            r"answers 7 images that are not of .*/validation: test_00000000, .* and 2 more",
        ),
        (
            lambda lines: [*lines, "validation_00000080,00"],
            r"answers 1 images that are not of .*: validation_00000080",
        ),
        (
            lambda lines: ["key,label", *(f"{key},spoon" for key in KEYS)],
            r"2 classes are never answered",
        ),
        (
            lambda lines: ["key,spoon,fork", *(f"{key},1,0" for key in KEYS)],
            r"2 of 2 classes have no output",
        ),
    ],
    ids=["missing", "double", "unknown", "beyond", "labels", "scores"],
)
def test_a_file_of_predictions_that_is_not_of_these_images_is_refused(
    world: Path, change: Callable[[list[str]], list[str]], message: str, tmp_path: Path
) -> None:
    target = answer(tmp_path / "answers.csv", AUDITED, of_sandals(on_the_beach))
    lines = (tmp_path / "answers.csv").read_text().splitlines()
    (tmp_path / "answers.csv").write_text("\n".join(change(lines)) + "\n")
    with pytest.raises(UserError, match=message):
        mined(world, tmp_path / "out", target)
    assert not (tmp_path / "out" / "findings.json").exists()


def test_answers_to_rows_of_other_classes_are_no_strangers(world: Path, tmp_path: Path) -> None:
    """Predictions for a whole split serve a recipe of some of its classes."""
    target = answer(tmp_path / "answers.csv", AUDITED, of_sandals(on_the_beach))
    text = (tmp_path / "answers.csv").read_text().replace("class_id", "t-shirt,sandal")
    for label in (T_SHIRT, SANDAL):
        text = text.replace(f",{label:02d}\n", ",0.9,0.1\n" if label == T_SHIRT else ",0.1,0.9\n")
    (tmp_path / "answers.csv").write_text(text)
    result = mined(
        world,
        tmp_path / "out",
        target,
        "source.classes=[{id: '05', name: sandal, source_label: 5}]",
    )
    assert result.findings.classes[0].rows == sum(scene.label == SANDAL for scene in AUDITED) - sum(
        AUDITED[row].label == SANDAL for row in BROKEN
    )


def test_row_numbers_are_of_one_split(world: Path, tmp_path: Path) -> None:
    save_split(tmp_path / "data", "validation", AUDITED[:20])
    save_split(tmp_path / "data", "test", AUDITED[20:40])
    (tmp_path / "answers.csv").write_text(
        "row,class_id\n" + "".join(f"{row},05\n" for row in range(20))
    )
    with pytest.raises(UserError, match="identifies images by row, but 2 splits are audited"):
        mined(
            tmp_path / "data",
            tmp_path / "out",
            f"predictions:{tmp_path / 'answers.csv'}",
            on=["validation", "test"],
        )


def test_a_target_of_other_classes_is_refused(world: Path, tmp_path: Path) -> None:
    classes = (
        "source.classes=[{id: a, name: spoon, source_label: 0}, {id: b, name: fork,"
        " source_label: 5}]"
    )
    with pytest.raises(UserError, match="2 of 2 classes have no output of their name"):
        mined(world, tmp_path / "out", "lab:resnet10t", classes)


def test_captions_of_an_unknown_class_are_refused(world: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        'reference: a photo of a {noun}\ntemplates: ["a photo of a {noun} in the snow"]\n'
        "by_name: {sandle: {reference: a photo of a shoe}}\n"
    )
    with pytest.raises(
        UserError, match=r"sandle: expected the name or category of a class.*did you mean 'sandal'"
    ):
        mined(
            world,
            tmp_path / "out",
            "lab:resnet10t",
            f"mine.settings.captions={tmp_path / 'own.yaml'}",
        )


@pytest.mark.parametrize(
    ("split", "message"),
    [("train", "is the split that classifiers learn from"), ("test", 'Unknown split "test"')],
)
def test_a_split_that_cannot_be_audited_is_refused(
    world: Path, split: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        mined(world, tmp_path / "out", "lab:resnet10t", on=[split])


def test_a_folder_beside_a_split_that_is_missing_is_named(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos-corrupt").mkdir()
    (tmp_path / "validation").mkdir()
    with pytest.raises(UserError, match=r"no split 'photos-corrupt', but a folder .*") as raised:
        mined(world, tmp_path / "out", "lab:resnet10t", on=["photos-corrupt"])
    assert "Write ./photos-corrupt for the folder" in str(raised.value)
    with pytest.raises(
        UserError, match=r"\./photos-corrupt' is neither a split of the source nor a built dataset"
    ):
        mined(world, tmp_path / "out", "lab:resnet10t", on=["./photos-corrupt"])
    with pytest.raises(UserError, match="is the split that classifiers learn from"):
        mined(world, tmp_path / "out", "lab:resnet10t", on=["train", "validation"])


@pytest.mark.parametrize(
    ("undecodable", "columns", "more", "kind", "message"),
    [
        ((), {"note": [*"abcd"]}, {}, UserError, "no column 'label'"),
        ((), {"label": [-1] * 4}, {}, UserError, "no label matches a class"),
        (
            (),
            {"label": [-1, -1, -1, 5]},
            {},
            UserError,
            r"1 images have a class and can be decoded, but the discover half has only [01] of them",
        ),
        (range(4), {"label": [0, 5, 0, 5]}, {}, RunFailure, "no image can be decoded"),
        ((), {}, {"weights": True}, UserError, "has no split 'train', whose rows have weights"),
    ],
    ids=["no labels", "other labels", "too few", "no image", "no train split"],
)
def test_images_that_cannot_be_audited_are_refused(
    undecodable: Sequence[int],
    columns: dict[str, Any],
    more: dict[str, Any],
    kind: type[Exception],
    message: str,
    tmp_path: Path,
) -> None:
    save_split(tmp_path / "data", "validation", AUDITED[:4], undecodable, **columns)
    with pytest.raises(kind, match=message):
        mined(tmp_path / "data", tmp_path / "out", "lab:resnet10t", **more)


def test_a_folder_that_holds_findings_of_other_images_is_left_as_it_is(
    result: MineResult, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in result.directory.iterdir() if path.is_file()}
    save_split(tmp_path / "data", "validation", AUDITED[:60])
    target = answer(tmp_path / "all.csv", AUDITED[:60], lambda scene: scene.label == T_SHIRT)
    with pytest.raises(UserError, match="holds findings of another target and images"):
        mined(tmp_path / "data", result.directory, target)
    assert before == {
        path.name: path.read_bytes() for path in result.directory.iterdir() if path.is_file()
    }
