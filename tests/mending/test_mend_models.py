"""Mending end to end: a real classifier and CLIP, on scenes where it is known what it fails on and
what mends that."""

from __future__ import annotations

import csv
import html
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from test_findings import misfits
from typer.testing import CliRunner

from counterfoil.building.build_dataset import build
from counterfoil.cli.main import app
from counterfoil.cli.mend import _print
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.documents import parse_document
from counterfoil.errors import CounterfoilWarning, RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.mending.document import FEWEST_LISTED, Mended
from counterfoil.mending.given import read_train_weights
from counterfoil.mending.mend_models import MendResult, mend, model_places
from counterfoil.mending.prepared import mend_source
from counterfoil.mining.audited import class_map_of
from counterfoil.mining.pools import weights_parquet
from counterfoil.models.classifiers import Classifier, load_classifier, of_timm
from counterfoil.models.classifiers.head import head_of
from counterfoil.models.mended import read_mended
from counterfoil.models.names import local_folder
from counterfoil.recipe import load_recipe
from counterfoil.recipe.layering import bundled_folder
from driven import given_up
from mending.scenes_to_mend import (
    GRID,
    IMAGES,
    LABELS,
    MODEL,
    NAMES,
    SPLITS,
    World,
    build_scenes,
    mend_scenes,
    mined_layer,
    png,
    scene,
)
from support.refusals import succeed
from write_schema import schema_text


def name_of(world: World, group: str = "contexts") -> str:
    """Return the dataset's name in a document, which has no path."""
    return f"./{world.built.name}:{group}"


def test_what_is_mended_gains_more_than_each_control(world: World, mended: MendResult) -> None:
    model = mended.mended.models[0]
    variant = model.variant(name_of(world))
    heldout = {
        comparison.against: comparison
        for comparison in variant.comparisons
        if comparison.set == "debug_heldout"
    }
    kinds = {"class_name", "random_contexts"}
    chosen = {kind: model.variant(f"{kind} beside {variant.name}").lam for kind in kinds}
    other = {f"{kind} at the same λ" for kind, lam in chosen.items() if lam != variant.lam}
    assert variant.lam and set(heldout) == {"lambda 0"} | kinds | other
    assert {kind: heldout[kind].lam for kind in kinds} == chosen and {
        heldout[name].lam for name in other
    } <= {variant.lam}
    for name in other:
        # What the control does at that λ is a point of its own curve.
        control = model.variant(f"{name.removesuffix(' at the same λ')} beside {variant.name}")
        point = next(point for point in control.curve if point.value == variant.lam)
        measured = variant.of_set("debug_heldout")
        assert measured is not None and measured.after is not None and point.heldout is not None
        assert heldout[name].difference == pytest.approx(measured.after - point.heldout)
    assert all(comparison.difference > 0.1 for comparison in heldout.values())
    inside = [comparison for comparison in variant.comparisons if comparison.set == "in_contexts"]
    assert len(inside) == len(heldout) and all(
        row.difference > 0.3 and (row.low or 0) > 0 for row in inside
    )
    assert variant.verdict is not None and "on held-out failures it gains more" in variant.verdict
    # Failures are all wrong before, and confirm rows are not only failures.
    before = {measured.set: measured.before for measured in variant.measured}
    assert before["debug_seed"] == before["debug_heldout"] == 0.0
    assert 0 < (before["in_contexts"] or 0) < 1


def test_arms_of_a_comparison_have_equal_numbers_a_class(world: World, mended: MendResult) -> None:
    model = mended.mended.models[0]
    name = name_of(world)
    compared = [
        model.variant(arm)
        for arm in (name, f"class_name beside {name}", f"random_contexts beside {name}")
    ]
    assert {variant.images for variant in compared} == {IMAGES} and compared[
        0
    ].offered == 2 * IMAGES
    assert [variant.of for variant in compared] == [None, name, name]


def test_every_set_of_rows_is_told_and_adds_up(mended: MendResult) -> None:
    document = mended.mended
    retrained = document.models[0].arms[0]
    rows = {measured.set: measured.rows for measured in retrained.measured}
    confirm = document.audited.confirm.rows
    assert rows["confirm"] == confirm and rows["test"] == SPLITS["test"][0]
    assert confirm + document.audited.discover.rows == SPLITS["validation"][0]
    assert sum(count for name, count in rows.items() if name.startswith("class:")) == confirm
    contexts = {name: count for name, count in rows.items() if name.startswith("context:")}
    assert sum(contexts.values()) == rows["in_contexts"] > 0
    assert {context.name: context.confirm for context in document.contexts} == {
        name.removeprefix("context:"): count for name, count in contexts.items()
    }


def test_few_rows_are_no_row_of_a_table(mended: MendResult) -> None:
    """One image that becomes wrong is no "−100.0" of a context."""
    model = mended.mended.models[0]
    few = [
        row
        for row in model.arms[0].measured
        if row.set.startswith("context:") and 0 < row.rows < FEWEST_LISTED
    ]
    many = [
        row
        for row in model.arms[0].measured
        if row.set.startswith("class:") and row.rows >= FEWEST_LISTED
    ]
    assert few and many and model.arms[0].few == len(few)
    with (mended.directory / "mend.csv").open() as file:
        listed = {line["set"] for line in csv.DictReader(file)}
    assert listed.isdisjoint(row.set for row in few) and listed.issuperset(row.set for row in many)
    page = (mended.directory / "report.html").read_text()
    captions = {context.name: context.caption for context in mended.mended.contexts}
    assert all(captions[row.set.removeprefix("context:")] not in page for row in few)
    assert all(f"<bdi>{NAMES[row.set.removeprefix('class:')]}</bdi>" in page for row in many)
    assert (
        f"leaves out {len(few)} contexts with fewer than {FEWEST_LISTED} images of the confirm half"
        in page
    )


def test_what_the_confirm_half_confirmed_is_judged_by_the_test_alone(
    world: World, mended: MendResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Images of confirmed findings, as `hard` has, would look good on the half that confirmed
    them."""
    audited = mended.mended.audited
    on = [{"name": "validation", "content": audited.on[0].content}]
    record = {
        "on": on,
        "discover_sha256": audited.discover.sha256,
        "finding": "sandal",
        "role": "hard",
    }
    built = build_scenes(tmp_path / "built", world.recipe, mined_layer(record))
    result = mend_scenes(world, tmp_path / "out", str(built), lambdas=GRID, save="none")
    model = result.mended.models[0]
    judged = model.variant("./built:contexts")
    other = mended.mended.models[0].variant(name_of(world))
    names = {measured.set for measured in judged.measured}
    assert judged.judged_by == "test" and names == {"test", "test_failures", "debug_seed"}
    assert {comparison.set for comparison in judged.comparisons} == {"test", "test_failures"}
    assert judged.lam == other.lam and judged.of_set("test") == other.of_set("test")
    assert all(
        model.variant(f"{what} beside {judged.name}").judged_by == "test"
        for what in ("class_name", "random_contexts")
    )
    assert model.arms[0].of_set("debug_heldout") is not None
    assert (
        judged.verdict is not None
        and "on test failures" in judged.verdict
        and "held-out" not in judged.verdict
    )
    page = result.files["report"].read_text()
    assert "test failures" in page and "The confirm half confirmed the failures" in page
    assert "test failures" not in mended.files["report"].read_text()
    _print(result)
    assert "test failures" in capsys.readouterr().out


def test_the_curve_that_is_told_is_the_one_that_chose(world: World, mended: MendResult) -> None:
    """`test_what_is_judged_chooses_nothing` shows that the curve is of discover rows alone."""
    variant = mended.mended.models[0].variant(name_of(world))
    allowed = [point for point in variant.curve if point.allowed]
    assert [point.value for point in variant.curve] == list(GRID)
    assert variant.within_bound and variant.lam in {point.value for point in allowed}
    worst = {point.value: point.worst_context or 0.0 for point in allowed}
    assert worst[variant.lam or 0.0] == max(worst.values())


def test_the_folder_is_the_model_that_was_measured(world: World, mended: MendResult) -> None:
    folder = mended.models[MODEL]
    loaded = load_classifier(f"local-dir:{folder}")
    about = json.loads((folder / "mended.json").read_text())
    assert (
        about["model"]["name"] == MODEL
        and about["datasets"][0]["content"] == open_dataset(world.built).content
    )
    assert (
        about["datasets"][0]["seed"] == 77
        and about["lambda"] == mended.mended.models[0].arms[1].lam
    )
    before = head_of(load_classifier(MODEL))
    after = head_of(loaded)
    assert not np.allclose(before.weight, after.weight)
    was = mended.mended.models[0].variant(name_of(world)).of_set("test")
    assert was is not None and was.after == accuracy_on_test(loaded, world)


def accuracy_on_test(classifier: Classifier, world: World) -> float:
    """Return the accuracy of the folder's own answers, image by image."""
    import torch

    test = mend_source(world.recipe, (), None, None, 0, None).test
    assert test is not None
    transform = classifier.transform()
    batch = torch.stack([transform(test.decoded(image)) for _, image in test.images()])
    answers = classifier.logits(batch, "cpu").argmax(dim=1).tolist()
    targets = class_map_of(load_recipe(world.recipe), classifier.name).targets
    return float(
        np.mean(
            [answer in targets[label] for answer, label in zip(answers, test.labels, strict=True)]
        )
    )


def test_the_mended_model_is_not_measured_on_what_it_learned_from(
    world: World, mended: MendResult, tmp_path: Path
) -> None:
    """Images of the train split are refused, also in other files; the test is measured."""
    import io

    from PIL import Image

    name = f"local-dir:{mended.models[MODEL]}"
    photos = tmp_path / "photos"
    for row in range(6):
        shown = scene("train", row)
        folder = photos / next(NAMES[id] for id, label in LABELS.items() if label == shown.label)
        folder.mkdir(parents=True, exist_ok=True)
        with Image.open(io.BytesIO(png(shown))) as picture:
            picture.save(folder / f"{row}.png", compress_level=1)
    for images, says in (
        ("source:train", "mended on"),
        (photos, "was fitted to 6 of the 6 images"),
    ):
        with pytest.raises(UserError, match=says):
            evaluate(images, [name], recipe=world.recipe, out=tmp_path / "out", device="cpu")
    assert evaluate(
        "source:test", [name], recipe=world.recipe, out=tmp_path / "out", device="cpu"
    ).scores


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(
    world: World, mended: MendResult, tmp_path: Path
) -> None:
    using = world.using
    out = tmp_path / "out"
    options: dict[str, Any] = {"effects": True, "save": "best"}
    with given_up(lambda stage: stage.name.endswith("heads") and stage.done == 2):
        mend_scenes(world, out, using, lambdas=GRID, **options)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / ".mend").iterdir()}
    assert times and not (tmp_path / "out" / "mend.json").exists()
    again = mend_scenes(world, out, using, lambdas=GRID, **options)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    for name in (
        "mend.json",
        "mend.csv",
        "report.html",
        "model/model.safetensors",
        "model/README.md",
    ):
        assert (again.directory / name).read_bytes() == (mended.directory / name).read_bytes(), name


def test_balanced_groups_by_truth_and_by_clip_stand_beside(mended: MendResult) -> None:
    model = mended.mended.models[0]
    assert [model.variant(name).role for name in ("dfr:clip", "dfr:place")] == ["rival", "bound"]
    truth = model.variant("dfr:place")
    assert truth.lam is None and [
        comparison.against for comparison in truth.comparisons if comparison.set == "test"
    ] == ["lambda 0"]
    assert model.saved not in ("dfr:clip", "dfr:place")


def test_a_head_of_balanced_groups_is_a_model_too(world: World, tmp_path: Path) -> None:
    """Its folder names the rows that it was fitted to, all of them from the discover half."""
    out = tmp_path / "out"
    result = mend_scenes(world, out, [str(world.built), "dfr:clip"], lambdas=[0.0], save="dfr:clip")
    note = read_mended(out / "model", "m")
    variant = result.mended.models[0].variant("dfr:clip")
    assert (
        note is not None
        and note.lam is None
        and note.rows == {"discover": variant.images}
        and note.datasets == ()
    )
    assert [split.name for split in note.on] == [split.name for split in result.mended.audited.on]
    card = (out / "model" / "README.md").read_text()
    assert "None" not in card and "drawn images of its" not in card and "balanced" in card
    page = (out / "report.html").read_text()
    row = page[page.index("balanced groups, assigned by CLIP") :].partition("</tr>")[0]
    assert row.count("<td>–</td>") == 1  # debug seed, which it learned from
    with pytest.raises(UserError, match="mended on"):
        evaluate(
            "source:validation",
            [f"local-dir:{out / 'model'}"],
            recipe=world.recipe,
            out=out / "e",
            device="cpu",
        )


def test_effects_end_at_the_whole_arm(world: World, mended: MendResult) -> None:
    variant = mended.mended.models[0].variant(name_of(world))
    assert [point.value for point in variant.by_k] == [1, 2]
    for points in (variant.by_k, variant.by_images):
        counts = [point.images for point in points]
        assert counts == sorted(counts) and counts[-1] == variant.images
        heldout = variant.of_set("debug_heldout")
        assert heldout is not None and points[-1].heldout == heldout.after


@pytest.mark.parametrize("path", [("recipe",), ("audited", "discover"), ("audited", "confirm")])
def test_a_document_with_another_text_for_a_hash_is_refused(
    mended: MendResult, path: tuple[str, ...]
) -> None:
    document = json.loads((mended.directory / "mend.json").read_text())
    parse_document(Mended, json.dumps(document), "mend.json")
    part = document
    for key in path:
        part = part[key]
    part["sha256"] = "\x1b[2Jx"
    with pytest.raises(UserError, match=rf"{'.'.join(path)}: sha256: expected 64 hex digits"):
        parse_document(Mended, json.dumps(document), "mend.json")


def test_the_table_has_a_line_for_every_number(mended: MendResult) -> None:
    with (mended.directory / "mend.csv").open() as file:
        lines = list(csv.DictReader(file))
    model = mended.mended.models[0]
    listed = [
        measured for variant in model.arms for measured in variant.measured if measured.listed
    ]
    assert len(lines) == len(listed) + sum(len(variant.comparisons) for variant in model.arms)
    line = next(
        line for line in lines if line["against"] == "class_name" and line["set"] == "debug_heldout"
    )
    assert line["model"] == MODEL and float(line["low"]) <= float(line["gain"]) <= float(
        line["high"]
    )
    assert json.loads((mended.directory / "mend.json").read_text()) == json.loads(
        json.dumps(mended.mended.to_json())
    )


def test_a_torch_module_is_mended_as_its_folder_is_and_a_function_is_not(
    world: World, mended: MendResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = load_classifier(MODEL)
    module = named.module
    state = {key: tensor.clone() for key, tensor in named.module.state_dict().items()}
    given: dict[str, Any] = {"lambdas": GRID, "device": "cpu", "transform": named.transform()}
    recipe = load_recipe(world.recipe)
    result = mend(
        {"mine": module}, recipe, str(world.built), tmp_path / "out", save="best", **given
    )
    model = result.mended.models[0]
    other = mended.mended.models[0]
    assert (model.name, model.folder, result.models) == ("python:mine", None, {})
    for variant in model.arms:
        assert (variant.lam, variant.measured) == (
            other.variant(variant.name).lam,
            other.variant(variant.name).measured,
        )
    assert model.saved == other.saved == name_of(world)
    loaded = head_of(load_classifier(f"local-dir:{mended.models[MODEL]}"))
    written = load_file(tmp_path / "out" / "model-head.safetensors")
    assert np.array_equal(result.heads["mine"].weight, written["weight"])
    assert np.allclose(written["weight"], loaded.weight, atol=1e-4)
    assert np.allclose(written["bias"], loaded.bias, atol=1e-4)
    assert all(torch.equal(tensor, state[key]) for key, tensor in module.state_dict().items())
    assert "keep your model" in repr(result) and not (tmp_path / "out" / "model").exists()
    page = result.files["report"].read_text()
    assert "its last layer alone is saved, in model-head.safetensors" in page
    assert "saved as a model" not in page
    _print(result)
    assert "*-head.safetensors of" in capsys.readouterr().out
    with pytest.raises(UserError, match="is a function: it has no last layer"):
        mend(
            {"mine": lambda batch: np.zeros((len(batch), 10))},
            recipe,
            str(world.built),
            tmp_path / "no",
        )


@pytest.mark.whole
def test_the_command_mends_a_module_of_ones_own_code_and_writes_its_head(
    world: World, mended: MendResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code_to_mend.py").write_text(
        "from counterfoil.models.classifiers import load_classifier\n"
        f"def made():\n    model = load_classifier({MODEL!r})\n    return model.module,"
        " model.transform()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = (
        f"mend --model python:code_to_mend:made --on {world.recipe} --with {world.built}"
    ).split()
    ran = succeed(
        *words,
        "--lambda",
        "0,0.5,2",
        "--save",
        "best",
        "--device",
        "cpu",
        "--out",
        "own",
    )
    head = load_file("own/model-head.safetensors")
    loaded = head_of(load_classifier(f"local-dir:{mended.models[MODEL]}"))
    assert np.allclose(head["weight"], loaded.weight, atol=1e-4) and np.allclose(
        head["bias"], loaded.bias, atol=1e-4
    )
    assert "*-head.safetensors of own" in ran.output
    page = (tmp_path / "own" / "report.html").read_text()
    assert (
        "its last layer alone is saved, in model-head.safetensors" in page
        and "saved as a model" not in page
    )


def test_weights_of_training_rows_mend_too(world: World, tmp_path: Path) -> None:
    whole = train_split(world)
    weights = {"weight": np.where(np.arange(len(whole)) % 3, 1.0, 2.0)}
    origin = {
        "train_content": whole.content,
        "mined": {"on": [{"name": "others", "content": "0" * 64}]},
    }
    rows = np.arange(len(whole))

    def write(keys: Any = whole.keys, **result: Any) -> None:
        table = weights_parquet(keys, weights, origin | result if result.get("mined", 1) else None)
        (tmp_path / "w.parquet").write_bytes(table)

    for wrong, says in (
        ({"mined": None}, "does not say which rows it was mined on"),
        ({"train_content": "1" * 64}, "its rows are not those of"),
        ({"keys": [f"other_{row}" for row in rows]}, "its rows are not those of"),
    ):
        write(**wrong)
        with pytest.raises(UserError, match=says):
            read_train_weights(str(tmp_path / "w.parquet"), whole, whole.keys)
    write()
    result = mend_scenes(
        world, tmp_path / "out", str(tmp_path / "w.parquet"), lambdas=GRID, per_class=20
    )
    variant = result.mended.models[0].arms[1]
    assert any("was mined on others" in note for note in result.mended.notes)
    assert (variant.role, variant.images) == ("upweighted", 0) and len(variant.curve) == len(GRID)
    assert result.mended.train.rows == 60
    retrained = result.mended.models[0].arms[0].of_set("test")
    assert retrained is not None and variant.curve[0].test == retrained.after  # λ = 0 is no weight
    assert variant.verdict is not None and ("is the head retrained alone" in variant.verdict) == (
        variant.lam == 0
    )
    assert (
        variant.lam == 0 or "other training rows would do the same is not known" in variant.verdict
    )


def train_split(world: World) -> LabelledImages:
    recipe = load_recipe(world.recipe)
    return labelled_split(recipe.source, "train", recipe.classes)


def test_models_of_one_run_are_compared_loaded_once_and_kept_apart(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs' folders are both called `model`; and no document has a path of this machine."""
    copies = [tmp_path / "run1" / "model", tmp_path / "run2" / "model"]
    for copy, model in zip(copies, (MODEL, "lab:lcnet_035"), strict=True):
        folder = local_folder(model)
        assert folder is not None
        shutil.copytree(folder, copy)
    models = [f"local-dir:{copy}" for copy in copies]
    loads = list[str]()
    load = of_timm.load

    def counted(name: str, *more: Any) -> Classifier:
        loads.append(name)
        return load(name, *more)

    monkeypatch.setattr(of_timm, "load", counted)
    out = tmp_path / "out"
    second_dataset = {models[1]: f"{world.built}:random_contexts"}
    options: dict[str, Any] = {
        "own": second_dataset,
        "lambdas": (0.0, 1.0),
        "save": "best",
        "device": "cpu",
    }
    result = mend(models, world.recipe, str(world.built), out, **options)
    # What was written is loaded again, which proves it.
    assert [name for name in loads if str(out) not in name] == models
    first_name, second_name = names = ("local-dir:./model", "local-dir:./model (2)")
    assert tuple(model.name for model in result.mended.models) == names
    collective = result.mended.collective
    assert collective is not None and collective.models == names
    (first, upper), (lower, second) = collective.overlap
    assert first == second == 1.0 and upper == lower and 0 <= (upper or 0) < 1
    rows = {measured.set: measured.rows for measured in result.mended.models[0].arms[0].measured}
    assert collective.failures[0] == rows["debug_seed"] + rows["debug_heldout"]  # of both halves
    arms = [(row.model, row.arm, row.own) for row in collective.kept]
    shared = name_of(world)
    assert arms == [
        (first_name, shared, False),
        (second_name, shared, False),
        (second_name, name_of(world, "random_contexts"), True),
    ]
    assert collective.kept[0].kept is None  # nothing is its own
    assert collective.kept[2].kept == 1.0
    folders = [result.models[model] for model in models]
    assert [folder.name for folder in folders] == ["local-dir_._model", "local-dir_._model_2"]
    hashes = [load_classifier(f"local-dir:{folder}").sha256 for folder in folders]
    assert hashes == [model.mended_sha256 for model in result.mended.models]
    assert hashes[0] != hashes[1]
    saved_files = [folder / name for folder in folders for name in ("mended.json", "README.md")]
    for path in (*result.files.values(), *saved_files):
        text = path.read_text()
        assert str(tmp_path) not in text and str(world.built.parent) not in text, path


def test_the_page_stands_alone_and_says_what_was_found(mended: MendResult) -> None:
    page = (mended.directory / "report.html").read_text()
    assert page.index("This is not shown to help: keep your model.") < page.index(
        "What each head gains"
    )
    variant = next(
        variant
        for variant in mended.mended.models[0].arms
        if variant.name == mended.mended.models[0].saved
    )
    assert variant.verdict is not None and variant.verdict in page
    assert "<script" not in page and "http" not in page.replace("http-equiv", "").replace(
        "http://www.w3.org", ""
    )
    headline = mended.mended.headline
    # no text of a page is cut at the length of a name
    assert len(headline) > 240 and html.escape(headline) in page
    assert "saved as a model" in page and "highest accuracy in the worst context" in page
    assert "<dt>drawn images</dt>" in page and "unchanged photographs" not in page
    for words in (
        "debug heldout",
        "retrained, λ = 0",
        "Data and method",
        "sandal",
        "for one draw of training rows",
    ):
        assert words in page


def test_another_run_in_the_same_folder_is_not_written_over(
    world: World, mended: MendResult
) -> None:
    other: dict[str, Any] = {"overrides": ["mine.seed=5"], "fit": "sgd", "seed": 3, "per_class": 7}
    other["lambdas"] = [0.0]  # asked for anew, it is no other run
    with pytest.raises(UserError, match="holds the result of mending") as refused:
        using = world.using[:2]
        mend("lab:lcnet_035", world.recipe, using, mended.directory, device="cpu", **other)
    (problem,) = refused.value.problems
    settings = ("models: ", "mine.seed: 0, not 5", "--fit: ", "--seed: ", "--per-")
    assert all(setting in problem for setting in settings)
    assert "--with: dfr:place too" in problem and "--epochs" not in problem


def test_a_mended_model_is_not_mended_again(
    world: World, mended: MendResult, tmp_path: Path
) -> None:
    again = f"local-dir:{mended.models[MODEL]}"
    with pytest.raises(UserError, match="was mended before") as refused:
        mend(again, world.recipe, str(world.built), tmp_path / "again", device="cpu")
    assert MODEL in (refused.value.hint or "")


def test_models_of_one_name_have_folders_of_their_own() -> None:
    assert model_places(["lab:a"]) == {"lab:a": "model"}
    names = ["local-dir:/x/model", "local-dir:/y/model", "a/b", "A_b"]
    assert len({folder.casefold() for folder in model_places(names).values()}) == len(names)


def test_the_command_prints_heads_beside_controls(
    world: World, mended: MendResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Print a result, and run the command in a copy of its folder, where nothing is fitted again."""
    _print(mended)
    shown = capsys.readouterr().out
    for text in (
        f"{name_of(world)}: This is not shown to help: keep your model.",
        "debug seed: failures of the discover half",
        "training images alone",
        "original",
        "retrained, λ = 0",
        "on held-out failures",
        "sandal",
        "with fewer than 10 rows",
        "report:",
        "model:",
    ):
        assert text in shown
    out = Path(shutil.copytree(mended.directory, tmp_path / "out"))
    words = (
        f"mend --model {MODEL} --on {world.recipe} --with {' '.join(world.using)}"
        f" --lambda 0,0.5,2 --effects --save best --device cpu --out {out} --json"
    ).split()
    assert json.loads(succeed(*words).stdout)["version"] == 1
    assert (out / "mend.json").read_bytes() == mended.files["document"].read_bytes()


def test_what_does_not_help_leaves_no_model_and_doubted_contexts_are_told(
    world: World, mended: MendResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLIP reads the first words alone, so every class has one caption and no image is nearest to
    its own."""
    long = f"prompts.base.object_caption='{'a photo of a thing ' * 40}{{class}}'"
    result = mend_scenes(world, tmp_path / "out", lambdas=[0.0], overrides=[long])
    (model,) = result.mended.models
    assert (model.saved, model.best, result.models) == (None, name_of(world), {})
    assert model.shown_first.lam == 0 and not (tmp_path / "out" / "model").exists()
    document = json.loads(result.files["document"].read_text())
    assert list(document)[:2] == ["version", "headline"]
    assert document["headline"] == "This does not help: keep your model."
    page = result.files["report"].read_text()
    assert page.index("This does not help: keep your model.") < page.index("λ = 0 was chosen")
    assert "lab:resnet10t</bdi>, mended" not in page and "saved as a model" not in page
    _print(result)
    shown = capsys.readouterr()
    assert shown.out.startswith("This does not help: keep your model.")
    assert "--save best" in shown.err
    first, *others = result.mended.notes
    assert first.startswith("Warning: CLIP does not know these classes: it matches 0.0 %")
    assert any("may show another context than CLIP says" in note for note in others)
    assert "<bdi>Warning: CLIP does not know these classes" in page
    assert not any("Warning" in note for note in mended.mended.notes)


def test_too_few_training_images_are_said_before_the_work_and_are_the_first_reason(
    world: World, tmp_path: Path
) -> None:
    using = f"{world.built}:contexts"
    with pytest.warns(CounterfoilWarning) as heard:
        result = mend_scenes(world, tmp_path / "out", using, lambdas=(0.0, 0.5), per_class=1)
    advice = next(
        str(warning.message) for warning in heard if "training images" in str(warning.message)
    )
    assert advice.startswith("The head is fitted to 3 training images, and about 750 are needed")
    arm = result.mended.models[0].shown_first
    assert not any(point.allowed for point in arm.curve) and arm.verdict is not None
    assert arm.verdict.startswith(
        "No λ is allowed: the head retrained on 3 training images alone loses"
    )
    assert "--per-class" in arm.verdict and arm.outcome != "learned nothing"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--model is missing"),
        (
            ["--model", "a", "--on", "b", "--with", "c", "--out", "d", "--lambda", "0,x"],
            "found 'x'",
        ),
        (
            ["--model", "a", "--on", "b", "--with", "c", "--out", "d", "--own", "a"],
            "expected MODEL=DATASET",
        ),
    ],
)
def test_the_command_refuses_in_words(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["mend", *words])
    assert isinstance(done.exception, UserError) and says in str(done.exception)


def test_corrupted_photographs_need_no_clip(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their shifts have no words, so nothing is dealt among contexts; contexts are refused as
    before."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    classes = [{"id": id, "name": NAMES[id], "source_label": label} for id, label in LABELS.items()]
    source = {
        "dataset": str(world.recipe.parent / "source"),
        "unit_column": "garment",
        "classes": classes,
    }
    recipe = tmp_path / "corrupted.yaml"
    layer = {"recipe": 1, "name": "corrupted", "license": "mit", "source": source}
    layer |= {
        "generator": {"kind": "corrupt", "split": "validation"},
        "samples": {"candidates": IMAGES},
    }
    recipe.write_text(json.dumps(layer | {"prompts": {"shifts": {"fog": {"corruption": "fog"}}}}))
    learned = ("source.validation_split=train", "generator.split=train")
    build(recipe, tmp_path / "corrupted", overrides=learned, device="cpu", workers=1)
    using = str(tmp_path / "corrupted")
    mended = mend(
        MODEL,
        recipe,
        using,
        tmp_path / "out",
        lambdas=GRID[:2],
        save="none",
        device="cpu",
    ).mended
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<dt>changed photographs</dt>" in page and "drawn image" not in page
    assert "class names" not in page and "as many unchanged photographs" in page
    assert "highest accuracy over all its images" in page and "worst context" not in page
    assert mended.contexts == () and [arm.role for arm in mended.models[0].arms] == [
        "retrained",
        "mended",
        "control",
    ]
    assert {arm.images for arm in mended.models[0].arms[1:]} == {IMAGES * len(LABELS)}
    # λ is the one of the best accuracy on the discover half, which all rows of it decide.
    for variant in mended.models[0].arms[1:]:
        allowed = {point.value: point.discover for point in variant.curve if point.allowed}
        assert variant.lam in allowed and allowed[variant.lam] == max(allowed.values())
    # Audited images are made from a split, which is then no test for them.
    build(recipe, tmp_path / "chosen", device="cpu", workers=1)
    given: dict[str, Any] = {
        "audited": [str(tmp_path / "chosen")],
        "lambdas": [0.0],
        "save": "none",
        "device": "cpu",
    }
    assert mend(MODEL, recipe, using, tmp_path / "by", **given).mended.test.name.endswith("test")
    with pytest.raises(UserError, match="--test validation: the audited images are made from it"):
        mend_source(recipe, (), "validation", None, 0, given["audited"])
    no_clip = ["screen.model=ViT-B-32", "screen.weights=openai"]
    with pytest.raises(RunFailure, match="ViT-B-32"):
        mend_scenes(world, tmp_path / "words", overrides=no_clip)


def test_the_document_fits_the_schema_that_is_shipped(mended: MendResult) -> None:
    text = (bundled_folder() / "mend.schema.json").read_text(encoding="utf-8")
    assert text == schema_text(Mended, "Counterfoil mended heads"), "run scripts/write_schema.py"
    schema = json.loads(text)
    document = json.loads((mended.directory / "mend.json").read_text())
    assert misfits(document, schema, schema) == []
    for changes in ({"surprise": 1}, {"headline": 2}, {"asked": {"using": []}}):
        assert misfits(document | changes, schema, schema)
