"""A second judge: asked about every image as it is stored, decides nothing, and its own errors are
counted once."""

from __future__ import annotations

import errno
import io
import json
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from garments import GARMENT_CLASSES, garment_folder
from markupsafe import escape
from PIL import Image

from counterfoil.building import judges
from counterfoil.building.build_dataset import BuildProgress, BuildResult
from counterfoil.building.judges import pin_judges
from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.data.open_source import open_source
from counterfoil.dataset.reading import read_dataset
from counterfoil.dataset.verification import verify
from counterfoil.documents import document_bytes, sha256_json
from counterfoil.errors import CounterfoilWarning, RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.generate.screen.doubts import ScreenDoubts
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.prediction.inference import logits_of
from counterfoil.progress import Stage, listening
from counterfoil.recipe import load_recipe
from counterfoil.recipe.keep.visible import visibility
from counterfoil.reviewing.calibrate_dataset import calibrate
from counterfoil.reviewing.recut_dataset import recut
from counterfoil.store.layout import What, user_cache
from counterfoil.store.lock import read_lock
from counterfoil.store.manifest import write_manifest
from counterfoil.store.rows import TableForm
from drawn_folders import draw_folder
from support.built_rows import table_rows
from tiny_builds import TINY, images, published, run_command, tiny

JUDGE = "lab:resnet10t"
COLUMNS = ("resnet10t_answer", "resnet10t_confidence", "resnet10t_right")
MEASURES = ("contrast", "black", "white")
OUTPUTS = {"bag": 8, "sandal": 5}
PLAIN = (
    GARMENT_CLASSES, "samples.candidates=3", "screen.keep_rejected=true", "prompts.shifts.pencil_sketch=null",
    "generator.steps=3",
)  # fmt: skip
WRONG = f"{{misclassified: {{models: ['{JUDGE}']}}}}"
JUDGED = (
    *PLAIN, f"screen.judge={JUDGE}", "screen.keep=[{visible: {}}, thresholds]",
    # One classifier for both: one set of columns.
    f"prompts.shifts.red.keep=[{{visible: {{}}}}, thresholds, {WRONG}]",
)  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return garment_folder(tmp_path_factory.mktemp("source") / "garments", images=6)


@pytest.fixture(scope="module")
def judged(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("judged") / "dataset"
    tiny(out, *JUDGED, f"source.dataset={source}")
    return out


@pytest.fixture(scope="module")
def plain(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the same images without a judge. Read only."""
    out = tmp_path_factory.mktemp("plain") / "dataset"
    tiny(out, *PLAIN, f"source.dataset={source}")
    return out


def rows_of(directory: Path, what: What = "candidates", *more: str) -> list[dict[str, Any]]:
    columns = ["key", "shift", "class_id", *more]
    if what != "data":
        columns.append("reason")
    return table_rows(directory, *columns, what=what, added=True)


def second_clip(folder: Path) -> Path:
    """Save the lab's CLIP as a folder `second`, with one number of its weights changed."""
    from safetensors.torch import load_file, save_file

    second = folder / "second"
    shutil.copytree(LAB_WEIGHTS / "clip", second)
    weights = load_file(second / "open_clip_model.safetensors")
    weights["logit_scale"] = weights["logit_scale"] * 0.9
    save_file(weights, second / "open_clip_model.safetensors")
    return second


def pin_of(directory: Path, judge: str = JUDGE) -> dict[str, Any]:
    lock = read_lock(directory)
    assert lock is not None
    return lock.inputs["judges"][judge]


def answers_to(pictures: list[Image.Image]) -> np.ndarray:
    import torch

    classifier = load_classifier(JUDGE)
    transform = classifier.transform()
    return (
        logits_of(classifier, torch.stack([transform(picture) for picture in pictures]), "cpu")
        .argmax(1)
        .numpy()
    )


def test_every_row_tells_what_it_says_of_the_stored_image(judged: Path) -> None:
    assert tuple(TableForm.of(load_recipe(judged)).added) == (*MEASURES, *COLUMNS)
    stored = [row for what in ("data", "rejected") for row in rows_of(judged, what, "image")]
    assert len(stored) == 3 * 2 * 3
    pictures = [Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB") for row in stored]
    for row, picture, answer in zip(stored, pictures, answers_to(pictures), strict=True):
        assert row["resnet10t_answer"] == answer
        assert row["resnet10t_right"] == (answer == OUTPUTS[row["class_id"]])
        assert 0 < row["resnet10t_confidence"] <= 1
        assert {name: row[name] for name in MEASURES} == visibility(np.asarray(picture))


def test_it_decides_nothing(judged: Path, plain: Path) -> None:
    assert images(plain) == images(judged)
    reasons = {row["key"]: row["reason"] for row in rows_of(judged) if row["shift"] != "red"}
    assert reasons == {row["key"]: row["reason"] for row in rows_of(plain) if row["key"] in reasons}
    assert {row["reason"] for row in rows_of(judged) if row["shift"] == "red"} <= {
        "accepted",
        "answered_right",
    }


def test_its_errors_on_validation_images_are_in_its_pin(judged: Path, source: Path) -> None:
    expected: dict[str, Counter[str]] = {}
    for name in OUTPUTS:
        pictures = [
            Image.open(path).convert("RGB")
            for path in sorted((source / "validation" / name).iterdir())
        ]
        answers = [
            next((cls for cls, output in OUTPUTS.items() if output == answer), "(other)")
            for answer in answers_to(pictures)
        ]
        expected[name] = Counter(answers)
    assert pin_of(judged)["validation"] == expected
    assert sum(sum(counts.values()) for counts in expected.values()) == 12


def test_it_is_whole_and_what_is_changed_is_seen(judged: Path, tmp_path: Path) -> None:
    assert verify(judged).problems == ()
    shutil.copytree(judged, tmp_path / "copy")
    lock = json.loads((judged / "lock.json").read_text())
    lock["inputs"]["judges"][JUDGE]["validation"]["bag"] = {"bag": 200}
    (tmp_path / "copy" / "lock.json").write_text(json.dumps(lock))
    assert any(problem.path == "lock.json" for problem in verify(tmp_path / "copy").problems)


def test_without_its_source_it_goes_on_and_is_made_again(
    judged: Path, source: Path, tmp_path: Path
) -> None:
    """Resumed and repeated builds read the counts from the lock, not from the source."""
    before = published(judged)
    hidden = source.with_name("hidden")
    shutil.copytree(judged, tmp_path / "begun")
    for name in ("manifest.json", "receipts/red-00000.json"):
        (tmp_path / "begun" / name).unlink()
    source.rename(hidden)
    shutil.rmtree(user_cache() / "predictions")
    try:
        assert tiny(tmp_path / "begun", *JUDGED, f"source.dataset={source}").shards_made == 1
        regenerate(judged, tmp_path / "again", device="cpu", workers=1)
    finally:
        hidden.rename(source)
    assert published(tmp_path / "begun") == before
    assert published(tmp_path / "again") == before


def test_a_source_that_is_not_at_hand_is_a_word(tmp_path: Path) -> None:
    """Check it with a second CLIP, which answers with the dataset's own classes."""
    judge = f"open_clip:local-dir:{second_clip(tmp_path)}"
    portable = "open_clip:local-dir:./second"
    settings = (
        *PLAIN,
        f"screen.judge={judge}",
        "samples.candidates=1",
        "generator.steps=1",
        f"source.dataset={tmp_path / 'gone'}",
    )
    result = tiny(tmp_path / "out", *settings)
    assert pin_of(tmp_path / "out", portable)["validation"] is None
    assert {row["second_answer"] for row in rows_of(tmp_path / "out")} <= {0, 1}
    assert (
        len(result.notes) == 1
        and "plain disagreement" in result.notes[0]
        and "gone" in result.notes[0]
    )
    assert verify(tmp_path / "out").problems == ()
    card = (tmp_path / "out" / "README.md").read_text()
    assert "**plain disagreement**" in card and "Rogan" not in card
    garment_folder(tmp_path / "gone")  # it is at hand now, and a dataset stays what it is
    assert tiny(tmp_path / "out", *settings).shards_made == 0
    assert pin_of(tmp_path / "out", portable)["validation"] is None


def test_a_cut_is_a_build_and_needs_no_image(judged: Path, source: Path, tmp_path: Path) -> None:
    """Cut by the stored contrast and by the second judge's stored answers, which exist under every
    shift."""
    contrasts = sorted(row["contrast"] for row in rows_of(judged))
    half = contrasts[len(contrasts) // 2]
    keep = f"[{{visible: {{contrast: {half}}}}}, thresholds, {WRONG}]"
    (tmp_path / "cut.yaml").write_text(
        f"screen: {{keep: {keep}}}\nprompts: {{shifts: {{red: {{keep: null}}}}}}\n"
    )
    recut(judged, tmp_path / "cut.yaml", tmp_path / "cut")
    settings = (*JUDGED[:-2], f"screen.keep={keep}", f"source.dataset={source}")
    tiny(tmp_path / "fresh", *settings)
    assert published(tmp_path / "cut") == published(tmp_path / "fresh")
    reasons = Counter(row["reason"] for row in rows_of(tmp_path / "cut"))
    assert reasons["low_contrast"] == sum(contrast < half for contrast in contrasts) > 0
    assert any(
        row["reason"] == "low_contrast" and row["shift"] == "base"
        for row in rows_of(tmp_path / "cut")
    )


def test_what_was_not_measured_is_no_cut(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.yaml").write_text("screen: {keep: [{visible: {contrast: 5}}, thresholds]}\n")
    with pytest.raises(
        UserError, match="contrast was not measured on the images of base, in_the_snow, red"
    ):
        recut(plain, tmp_path / "cut.yaml", tmp_path / "cut")
    (tmp_path / "judge.yaml").write_text(f"screen: {{judge: {JUDGE}}}\n")
    with pytest.raises(UserError, match=r"screen\.judge .*changes the scores"):
        recut(plain, tmp_path / "judge.yaml", tmp_path / "cut")


def test_card_and_evaluation_tell_how_many_labels_are_false(judged: Path) -> None:
    checks = evaluate(judged, [JUDGE], min_images_per_class=1).label_checks
    assert checks is not None and checks.judge == JUDGE and checks.validated_on == 12
    accepted = list(rows_of(judged, "data"))
    for shift in ("base", "in_the_snow", "red"):
        correct = [row["resnet10t_right"] for row in accepted if row["shift"] == shift]
        judge = checks.of(shift).judge
        assert (
            (judge.images, judge.disagreed) == (len(correct), correct.count(False))
            if judge
            else not correct
        )
        if shift == "red" and judge is not None:  # chosen by its own failures
            assert judge.label_error is None and judge.disagreed == judge.images
        for class_id, of_class in checks.of(shift).classes.items():
            right = [
                row["resnet10t_right"]
                for row in accepted
                if (row["shift"], row["class_id"]) == (shift, class_id)
            ]
            assert (of_class.images, of_class.disagreed) == (len(right), right.count(False))
    card = (judged / "README.md").read_text()
    base = checks.of("base").judge
    assert base is not None
    section = card.split("## Are the labels true?")[1].split("\n## ")[0]
    line = next(line for line in section.splitlines() if line.startswith("| `base` "))
    assert (
        f"| {100 * base.disagreement.value:.1f} (" in line
        and f"({base.disagreed} of {base.images})" in line
    )
    assert "12 validation images" in card and "assumes the same error rate here" in section
    assert "disagrees by construction" in card


@pytest.mark.parametrize(
    ("judge", "message"),
    [("predictions:./answers.csv", "screen.judge.*recorded predictions"), ("lab:resnet10", "screen.judge.*resnet10t"),
     ("open_clip:lab:clap", "screen.judge.*clip"), ("open_clip:lab:clip", "screen.judge.*the"
         " screening model")],
)  # fmt: skip
def test_one_that_cannot_judge_is_reported_before_anything_is_made(
    judge: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        lab = ("source.dataset=lab:wardrobe", "source.classes=[bag, sandal]")
        tiny(tmp_path / "out", *PLAIN, f"screen.judge={judge}", *lab)
    assert not (tmp_path / "out" / "lock.json").exists()


def test_a_strangers_lock_that_pins_no_counts_is_refused_though_its_hashes_agree(
    judged: Path, tmp_path: Path
) -> None:
    """Forge the lock together with its hash, the receipts and the manifest."""
    shutil.copytree(judged, tmp_path / "forged")
    lock = json.loads((judged / "lock.json").read_text())
    lock["inputs"]["judges"][JUDGE]["validation"] = {"bag": {"boot": 5}}
    lock["hashes"]["inputs"] = sha256_json(lock["inputs"])
    (tmp_path / "forged" / "lock.json").write_bytes(document_bytes(lock))
    for path in (tmp_path / "forged" / "receipts").iterdir():
        receipt = json.loads(path.read_text())
        path.write_bytes(document_bytes(receipt | {"hashes": lock["hashes"]}))
    write_manifest(tmp_path / "forged", {})
    with pytest.raises(RunFailure, match=r"lock\.json: does not pin"):
        evaluate(tmp_path / "forged", [JUDGE])
    with pytest.raises(RunFailure, match=r"lock\.json: does not pin"):
        regenerate(tmp_path / "forged", tmp_path / "again", device="cpu", workers=1)
    assert "lock.json" in {problem.path for problem in verify(tmp_path / "forged").problems}


def test_the_screens_weights_by_another_name_are_no_second_judge(tmp_path: Path) -> None:
    shutil.copytree(LAB_WEIGHTS / "clip", tmp_path / "copy")
    recipe = load_recipe("wardrobe-mini", [f"screen.judge=open_clip:local-dir:{tmp_path / 'copy'}"])
    with pytest.raises(UserError, match="under another name"):
        pin_judges(recipe)
    other = load_recipe(
        "wardrobe-mini", [f"screen.judge=open_clip:local-dir:{second_clip(tmp_path)}"]
    )
    assert list(pin_judges(other)) == ["open_clip:local-dir:./second"]


def test_a_source_that_fails_in_a_librarys_words_is_a_word(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raise the error of a failing disk, because a test has no failing disk."""
    recipe = load_recipe(
        "wardrobe-mini", [GARMENT_CLASSES, "tokens=null", f"source.dataset={source}"]
    )

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", str(source / "validation"))

    monkeypatch.setattr(judges, "labelled_split", fails)
    counts, why = judges.validation_answers(recipe, JUDGE, open_source(recipe.source).pin, "cpu")
    assert counts is None and why is not None and "Stale file handle" in why and str(source) in why

    def breaks(*_: Any, **__: Any) -> None:
        raise KeyError("labels")

    monkeypatch.setattr(judges, "labelled_split", breaks)
    with pytest.raises(KeyError, match="labels"):  # an error of the program is no such source
        judges.validation_answers(recipe, JUDGE, open_source(recipe.source).pin, "cpu")


# Own classes that CLIP does not know: reported before the first image, and wherever the dataset is
# described.


CLASSES = (
    "source.classes=[{id: ladder, name: ladder, source_label: 0}, {id: mug, name: mug,"
    " source_label: 1},"
    " {id: star, name: star, source_label: 2}]"
)
ONE_SHIFT = ("prompts.shifts.red=null", "prompts.shifts.pencil_sketch=null")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_folder(tmp_path_factory.mktemp("drawn") / "shapes")


def changes(folder: Path) -> list[str]:
    source = [f"source.dataset={folder}", "source.unit_column=null", CLASSES]
    screen = (
        "screen={model: lab:clip, object_threshold: {percentile: 5}, shift_threshold: -1,"
        " keep_rejected: true}"
    )
    return [*source, *ONE_SHIFT, screen, "samples={candidates: 1, seed: 0, noise: paired}"]


@pytest.fixture(scope="module")
def doubted(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[object], BuildResult]:
    out = tmp_path_factory.mktemp("shapes") / "dataset"
    heard: list[object] = []
    with listening(heard.append), warnings.catch_warnings():
        warnings.simplefilter("always", CounterfoilWarning)
        warnings.showwarning = lambda message, *_: heard.append(str(message))  # type: ignore[assignment]
        return out, heard, tiny(out, *changes(folder))


Doubted = tuple[Path, list[object], BuildResult]


def test_it_is_reported_before_the_first_image(doubted: Doubted) -> None:
    out, heard, result = doubted
    # Reading the source's files comes first where they were never read.
    heard = [event for event in heard if not isinstance(event, Stage)]
    doubts = result.screen_doubts
    assert isinstance(doubts, ScreenDoubts) and heard[0] == "\n".join(doubts.lines())
    after = [event for event in heard if not isinstance(event, str)]
    assert after and all(isinstance(event, BuildProgress) for event in after)
    assert doubts.near_chance
    assert {cls.class_id for cls in doubts.classes} == {"ladder", "mug", "star"}
    assert all(
        cls.least_threshold is not None and cls.least_threshold < 0 for cls in doubts.classes
    )
    stored = json.loads((out / "thresholds.json").read_bytes())["known"]
    assert stored["n"] == 36
    assert stored["right"] / 36 == doubts.accuracy


def test_the_card_and_the_description_for_machines_warn(doubted: Doubted) -> None:
    out, _, result = doubted
    assert result.screen_doubts is not None
    card = (out / "README.md").read_text()
    warning = card.index("> **Warning.** CLIP does not know these classes")
    assert warning < card.index("## Load it")
    assert "cannot tell 'ladder' from 'mug'" in card[warning : card.index("## Load it")]
    screening = card[card.index("**Screening.**") : card.index("## Uses and limits")]
    for class_name in ("ladder", "mug", "star"):
        assert f"- class '{class_name}': " in screening
    limits = json.loads((out / "croissant.json").read_bytes())["rai:dataLimitations"]
    assert any(result.screen_doubts.headline in limit for limit in limits)


def test_the_command_warns_people_and_machines(folder: Path, doubted: Doubted) -> None:
    out = doubted[0]
    settings = [word for change in (*TINY, *changes(folder)) for word in ("--set", change)]
    done = run_command(
        ["build", "wardrobe-mini", "--out", str(out), "--device", "cpu", *settings, "--json"]
    )
    assert done.returncode == 0, done.stderr
    assert "Warning: CLIP does not know these classes: it matches 38.9 %" in done.stderr
    assert "screen.model" in done.stderr
    machines = json.loads(done.stdout)["screen_doubts"]
    assert machines["near_chance"] is True
    assert machines["warning"].startswith("CLIP does not know these classes")
    assert {machine["class_id"] for machine in machines["classes"]} == {"ladder", "mug", "star"}


def test_what_was_measured_is_kept_and_not_measured_again(
    folder: Path, doubted: Doubted, tmp_path: Path
) -> None:
    out = shutil.copytree(doubted[0], tmp_path / "dataset")
    before = published(out)
    # An answer of another day stays, because nothing is measured again.
    document = json.loads((out / "thresholds.json").read_bytes())
    document["known"]["classes"]["ladder"]["margin"] = -0.75
    (out / "thresholds.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    edited = (out / "thresholds.json").read_bytes()
    assert edited != before["thresholds.json"]
    result = tiny(out, *changes(folder))
    assert result.shards_made == 0
    assert (out / "thresholds.json").read_bytes() == edited
    assert result.screen_doubts is not None
    assert result.screen_doubts.classes[0].margin == -0.75


def test_a_directory_begun_before_goes_on_with_its_bytes(
    folder: Path, doubted: Doubted, tmp_path: Path
) -> None:
    out = shutil.copytree(doubted[0], tmp_path / "dataset")
    lock = (out / "lock.json").read_bytes()
    document = json.loads((out / "thresholds.json").read_bytes())
    del document["known"]
    without = (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()
    (out / "thresholds.json").write_bytes(without)
    receipt = min((out / "receipts").rglob("*.json"))
    receipt.unlink()
    (out / "manifest.json").unlink()
    result = tiny(out, *changes(folder))
    assert result.shards_made == 1
    assert (out / "lock.json").read_bytes() == lock
    assert (out / "thresholds.json").read_bytes() == without
    assert receipt.exists()
    assert not read_dataset(out, "thresholds", "receipts").faults


def test_a_cut_carries_it(doubted: Doubted, tmp_path: Path) -> None:
    cut = tmp_path / "cut.yaml"
    cut.write_text(json.dumps({"prompts": {"shifts": {"in_the_snow": {"threshold": 0.2}}}}))
    result = recut(doubted[0], cut, tmp_path / "cut", device="cpu")
    assert result.screen_doubts == doubted[2].screen_doubts
    known = [
        json.loads((path / "thresholds.json").read_bytes())["known"]
        for path in (doubted[0], tmp_path / "cut")
    ]
    assert known[0] == known[1]


def test_thresholds_are_chosen_under_the_same_warning(doubted: Doubted, tmp_path: Path) -> None:
    doubts = doubted[2].screen_doubts
    assert doubts is not None
    page = tmp_path / "page.html"
    assert calibrate(doubted[0], page).screen_doubts == doubts
    shown = page.read_text()
    assert "<strong>Warning.</strong> CLIP does not know these classes" in shown
    assert str(escape(doubts.meaning)) in shown


def test_other_classes_in_the_file_are_no_part_of_the_dataset(
    doubted: Doubted, tmp_path: Path
) -> None:
    out = shutil.copytree(doubted[0], tmp_path / "dataset")
    document = json.loads((out / "thresholds.json").read_bytes())
    document["known"]["classes"]["ladder"]["taken_for"] = "<script>"
    (out / "thresholds.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    standing = read_dataset(out, "thresholds")
    assert any("thresholds.json" in fault.path for fault in standing.faults)
    assert standing.read_thresholds is not None
    assert standing.read_thresholds.known is None
