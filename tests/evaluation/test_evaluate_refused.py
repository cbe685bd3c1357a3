"""What evaluate refuses, and in which words: datasets, models, lists, and files that strangers
made."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import timm
from PIL import Image
from typer.testing import CliRunner

from colour_world import build_colours, png_of, save_colour_model
from counterfoil.cli.main import app
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.scored_models import named_models
from counterfoil.models.classifiers.of_python import classifier_of
from counterfoil.models.names import usable_name
from counterfoil.models.trials import largest_tensor_bytes
from counterfoil.plan.layout import Sample
from counterfoil.prediction import passes
from counterfoil.store.manifest import verify_files, write_manifest
from support.files import Payload, write
from support.measured import measured
from support.refusals import problems_of, refuses
from support.tables import rewrite, with_value


def test_problems_of_all_models_are_reported_together(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    four = save_colour_model(tmp_path / "four", outputs=4)
    problems = problems_of(
        measured,
        dataset,
        [models["sharp"], "resnet81", f"local-dir:{four}", "resnet18.a1_in1k"],
        device="cpu",
    )
    assert len(problems) == 3
    assert "resnet81" in problems[0]
    assert "4 outputs" in problems[1]
    assert "1,000 outputs" in problems[2]


def configured(model: Path, **values: object) -> str:
    """Change the input format of a saved model; return its name."""
    file = model / "config.json"
    document = json.loads(file.read_text())
    document["pretrained_cfg"] |= values
    file.write_text(json.dumps(document))
    return f"local-dir:{model}"


def test_inputs_that_no_image_can_have_are_reported_together_before_anything_is_decoded(
    dataset: Path, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "open", None)
    forms: dict[str, object] = {
        "input_size": [3, 100_000, 100_000],
        "std": [0, 0, 0],
        "interpolation": "sinc",
        "crop_pct": 1e-9,
    }
    names = [
        configured(save_colour_model(tmp_path / key), **{key: value})
        for key, value in forms.items()
    ]
    names.append(configured(save_colour_model(tmp_path / "zero"), input_size=[3, 0, 0], mean=[1]))
    problems = problems_of(measured, dataset, [models["sharp"], *names], device="cpu")
    for key, name in zip([*forms, "input_size", "mean"], [*names, names[-1]], strict=True):
        assert any(
            name in problem and f"pretrained_cfg.{key}: found" in problem for problem in problems
        )


@pytest.mark.parametrize(("size", "batch"), [(4096, 100_000), (4096, 1_500)])
def test_batches_beyond_memory_are_refused_before_an_image_is_decoded(
    dataset: Path,
    models: dict[str, str],
    tmp_path: Path,
    size: int,
    batch: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the kernel would kill the run. The second batch fits, but not the largest tensor of
    the model."""
    name = configured(save_colour_model(tmp_path / "large"), input_size=[3, size, size])
    if batch == 1_500:
        monkeypatch.setattr(passes, "free_bytes", lambda device="cpu": 700 * 10**9)
    with pytest.raises(
        RunFailure, match=rf"4,096 x 4,096 pixels: batches of {batch} need [\d,.]+ GB"
    ) as caught:
        measured(dataset, [models["sharp"], name], batch_size=batch)
    assert "--batch-size" in str(caught.value) and "other 1 are kept" in str(caught.value)
    assert measured(dataset, [models["sharp"]]).models


def test_a_module_that_python_hands_over_has_the_same_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its inner tensors count, though only the classifier holds the module."""
    module: Any = timm.create_model("test_resnet", num_classes=3).eval()
    _, classifier = classifier_of("python:mine", module, None, Image.new("RGB", (32, 32)))
    assert classifier.module is None and classifier.input_size is not None
    batches = passes.batch_bytes(classifier, 8)
    largest = largest_tensor_bytes(module, (8, *classifier.input_size))
    assert largest > 8 * math.prod(classifier.input_size) * 4, "of a layer, not of the input"
    for free, fits in ((batches + 2 * largest, True), (batches + 2 * largest - 1, False)):
        monkeypatch.setattr(passes, "free_bytes", lambda device="cpu", free=free: free)
        with (
            contextlib.nullcontext()
            if fits
            else pytest.raises(RunFailure, match="batches of 8 need")
        ):
            passes._refuse_vast_batch(classifier, 8, "cpu")


def test_no_base_image_is_a_users_mistake(tmp_path: Path, models: dict[str, str]) -> None:
    dataset = build_colours(tmp_path / "d", keep=lambda sample: sample.shift != "base")
    with refuses("nothing-to-measure", dataset, "base image"):
        measured(dataset, [models["sharp"]])


def test_an_unreadable_base_is_a_failure(tmp_path: Path, models: dict[str, str]) -> None:
    def image(sample: Sample) -> bytes:
        return b"broken" if sample.shift == "base" else png_of(sample)

    dataset = build_colours(tmp_path / "d", image=image)
    with refuses("nothing-to-measure", dataset, "no base image", kind=RunFailure):
        measured(dataset, [models["sharp"]])


def test_zero_models_is_a_users_mistake(dataset: Path) -> None:
    with refuses("missing-model"):
        measured(dataset)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "toaster"}, "toaster"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"min_images_per_class": 0}, "min_images_per_class is 0"),
    ],
)
def test_an_option_out_of_range_is_a_users_mistake(
    dataset: Path, models: dict[str, str], options: dict, says: str
) -> None:
    given: dict[str, Any] = {"device": "cpu", **options}
    with pytest.raises(UserError, match=says):
        evaluate(dataset, [models["sharp"]], **given)


def test_a_report_may_not_land_among_the_datasets_files(
    tmp_path: Path, models: dict[str, str]
) -> None:
    dataset = build_colours(tmp_path / "d")
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(UserError, match="lies inside the dataset"):
        evaluate(dataset, [models["sharp"]], device="cpu", out=dataset / "report")
    with refuses("existing-output", file):
        evaluate(dataset, [models["sharp"]], device="cpu", out=file)
    assert file.read_text() == "kept"
    assert verify_files(dataset) == []


def test_what_is_no_dataset_is_a_users_mistake(tmp_path: Path, dataset: Path) -> None:
    with refuses("unknown-dataset"):
        measured(tmp_path / "nowhere", ["resnet18"])
    with refuses("unknown-images", tmp_path, "recipe.yaml"):
        measured(tmp_path, ["resnet18"])
    with pytest.raises(UserError, match="is a file"):
        measured(dataset / "manifest.json", ["resnet18"])
    unfinished = shutil.copytree(dataset, tmp_path / "unfinished")
    (unfinished / "manifest.json").unlink()
    with pytest.raises(UserError, match="is not finished"):
        measured(unfinished, ["resnet18"])


def names(*words: str | Path) -> list[str]:
    models, problems = named_models(words)
    assert problems.lines == []
    return list(models)


def test_a_list_holds_a_name_a_line_with_comments_and_blank_lines(tmp_path: Path) -> None:
    text = (
        "\ufeff# the paper's models\r\nresnet50.a1_in1k  # a comment\r\n\r\n "
        " lab:vit_tiny_patch8\r\n#resnet18\r\n"
    )
    file = write(tmp_path / "models.txt", text)
    models, problems = named_models([str(file)])
    assert problems.lines == []
    assert list(models.items()) == [
        ("resnet50.a1_in1k", f"{file}, line 2"),
        ("lab:vit_tiny_patch8", f"{file}, line 4"),
    ]


def test_names_and_lists_mix_in_order_and_each_model_counts_once(tmp_path: Path) -> None:
    file = write(tmp_path / "m.txt", "b\na\n")
    assert names("a", str(file), "c", f"@{file}", "c") == ["a", "b", "c"]


def test_which_words_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "resnet18", "x\n")
    write(tmp_path / "sweep", "y\n")
    write(tmp_path / "lab:z", "z\n")
    # An existing file is a list, unless a model has its name; `@` and a Path always mean the file.
    assert names("resnet18", "sweep", "lab:z") == ["resnet18", "y", "lab:z"]
    assert names("@resnet18") == names(Path("resnet18")) == ["x"]
    (tmp_path / "vit").mkdir()
    assert names("vit") == ["vit"]


def test_a_folder_with_spaces_and_commas_is_one_name(tmp_path: Path) -> None:
    for name in (
        "local-dir:/my models/a, b",
        "transformers:./a; b",
        "predictions:my answers, new.csv",
    ):
        assert names(write(tmp_path / "m.txt", f"{name}\n")) == [name]
    assert names("open_clip:lab:clip", "predictions:a.txt") == [
        "open_clip:lab:clip",
        "predictions:a.txt",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "lists no model"),
        (b"# only this\n\n", "lists no model"),
        (b"resnet18 resnet50\n", "line 1: found 'resnet18 resnet50', expected one name per line"),
        (b"ok\nresnet18, resnet50\n", "line 2: found 'resnet18, resnet50', expected one name"),
        (b"- resnet18\n", "line 1: found '- resnet18', expected one name"),
        (b"@other.txt\n", "line 1: found '@other.txt', but a list cannot name another"),
        (b"a\x00b\n", "line 1: found 'a\\x00b', expected one name of printable"),
        (b"\x80\x81\xff", "is not a list of models, expected plain text"),
        (b"x" * 1_000_001, "expected at most 1,000,000"),
    ],
)
def test_what_is_wrong_with_a_list_is_reported(tmp_path: Path, content: bytes, says: str) -> None:
    _, problems = named_models([str(write(tmp_path / "m.txt", content))])
    (problem,) = problems.lines
    assert says in problem


def test_a_missing_list_is_no_model_name(tmp_path: Path) -> None:
    for word in (str(tmp_path / "none.txt"), f"@{tmp_path / 'none'}"):
        models, problems = named_models([word])
        assert models == {} and problems.lines[0].code == "model-list"


def test_bad_lines_and_unknown_models_are_reported_together_with_their_lines(
    dataset: Path, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "m.txt", "resnet81\nresnet18 resnet34\nlab:resnet10\nresnet18.a1_in1k\n"
    )
    problems = problems_of(measured, dataset, ["nothing.txt", str(file)], device="cpu")
    shown = "\n".join(problems)
    assert len(problems) == 5
    for piece in (
        "nothing.txt",
        "line 1: ",
        "did you mean",
        "line 2: ",
        "line 3: ",
        "line 4: ",
        "1,000 outputs",
    ):
        assert piece in shown


def test_a_list_is_scored_like_the_names_in_it(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    names = [models["sharp"], models["no_red"]]
    file = write(tmp_path / "m.txt", "\n".join(names))
    listed = measured(dataset, file)
    named = measured(dataset, names)
    assert listed.scores == named.scores
    assert measured(dataset, names[0]).models[0].name == names[0]


def test_a_recipes_own_models_are_never_read_from_files(
    tmp_path: Path, models: dict[str, str]
) -> None:
    file = write(tmp_path / "m.txt", models["sharp"])
    dataset = build_colours(tmp_path / "d", f"evaluate.models=['@{file}']")
    with pytest.raises(UserError, match="model '@"):
        measured(dataset)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return build_colours(tmp_path / "stranger")


def with_models(dataset: Path, *names: str) -> None:
    recipe = dataset / "recipe.yaml"
    text = recipe.read_text()
    assert "models: []" in text
    recipe.write_text(text.replace("models: []", f"models: {json.dumps(names)}"))
    write_manifest(dataset, {})  # a stranger seals the dataset too


def bring_pickle(folder: Path, path: Path) -> None:
    """Save the folder of a timm model whose weights are a pickle that runs code."""
    save_colour_model(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(path)))


@pytest.mark.parametrize(
    "name", ["local-dir:./evil", "local-dir:evil", "./evil", "evil", "hf-hub:stranger/evil"]
)
def test_code_that_a_dataset_brings_never_runs(
    dataset: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # otherwise its client waits for the Hub
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    bring_pickle(dataset / "evil", tmp_path / "ran")
    with_models(dataset, name)
    monkeypatch.chdir(dataset)  # where a relative name leads to it
    with pytest.raises(CounterfoilError):
        measured(dataset)
    assert not (tmp_path / "ran").exists()


def test_the_person_at_the_keyboard_may_name_a_folder_and_its_pickle_does_not_run_either(
    dataset: Path, tmp_path: Path, models: dict[str, str]
) -> None:
    bring_pickle(tmp_path / "evil", tmp_path / "ran")
    with pytest.raises(CounterfoilError):
        measured(dataset, [f"local-dir:{tmp_path / 'evil'}"])
    assert not (tmp_path / "ran").exists()
    assert measured(dataset, [models["sharp"]]).models


@pytest.mark.parametrize(
    "name", ["local-dir:./mine", "transformers:./mine", "open_clip:local-dir:./mine"]
)
def test_a_folder_in_its_recipe_is_one_of_another_machine(dataset: Path, name: str) -> None:
    with_models(dataset, name)
    with pytest.raises(
        UserError, match=rf"'{name}': is a folder on the machine that built the dataset"
    ):
        measured(dataset)


def test_a_file_in_its_recipe_is_not_opened(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answers.csv").write_text("key,label\n")
    monkeypatch.chdir(tmp_path)
    with_models(dataset, "predictions:answers.csv")
    with pytest.raises(UserError, match="is a folder on the machine that built the dataset"):
        measured(dataset)


def shard(dataset: Path) -> Path:
    return min((dataset / "data" / "swap").iterdir())


def test_data_that_is_not_its_receipts_is_refused(dataset: Path, models: dict[str, str]) -> None:
    rewrite(dataset / "data" / "swap", lambda table: table.slice(1))
    with pytest.raises(RunFailure, match=r"swap/.* is not the file in its receipt"):
        measured(dataset, [models["sharp"]])
    shard(dataset).unlink()
    with pytest.raises(RunFailure, match=r"swap/.* is missing"):
        measured(dataset, [models["sharp"]])


def test_a_table_in_no_receipt_is_refused(dataset: Path, models: dict[str, str]) -> None:
    (dataset / "data" / "swap" / "more.parquet").write_bytes(shard(dataset).read_bytes())
    with pytest.raises(RunFailure, match=r"more\.parquet: is in no receipt"):
        measured(dataset, [models["sharp"]])


FORGED: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "no label": (with_value("label", 0, None), "label is empty in a row"),
    "label": (with_value("label", 0, 7), "not a sample of its shard"),
    "shift": (with_value("shift", 0, "noon"), "not a sample of its shard"),
    "key": (with_value("key", 0, "x"), "not a sample of its shard: key 'x'"),
    "other class": (with_value("label", 0, 1), "not a sample of its shard"),
    "twice": (lambda table: pa.concat_tables([table, table.slice(0, 1)]), "more than once"),
}


@pytest.mark.parametrize("case", FORGED)
def test_rows_with_a_forged_receipt_must_be_the_recipes(
    dataset: Path, models: dict[str, str], case: str
) -> None:
    change, expected = FORGED[case]
    rewrite(dataset / "data" / "swap", change, min((dataset / "receipts").glob("swap-*.json")))
    with pytest.raises(CounterfoilError, match=expected):
        measured(dataset, [models["sharp"]])


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_links_and_pipes_are_refused(
    dataset: Path, tmp_path: Path, models: dict[str, str], kind: str
) -> None:
    (tmp_path / "secret").mkdir()
    match kind:
        case "link":
            content = shard(dataset).read_bytes()
            (tmp_path / "secret" / "file").write_bytes(content)
            shard_path = shard(dataset)
            shard_path.unlink()
            shard_path.symlink_to(tmp_path / "secret" / "file")
        case "pipe":
            shard_path = shard(dataset)
            shard_path.unlink()
            os.mkfifo(shard_path)
        case "folder":
            (dataset / "data").rename(tmp_path / "secret" / "data")
            (dataset / "data").symlink_to(tmp_path / "secret" / "data")
    with pytest.raises(RunFailure, match="expected a regular file of the dataset"):
        measured(dataset, [models["sharp"]])


@pytest.mark.parametrize("name", ["my.pth", "folder/model.safetensors", "MY.PT", "./x.ckpt"])
def test_a_file_of_weights_is_answered_before_the_dataset_is_opened(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["evaluate", "nowhere", "--models", name])
    assert isinstance(ran.exception, UserError) and "name local-dir:my-model" in str(ran.exception)
    for models in (name, Path(name), ["lab:resnet10t", name], {"mine": name}):
        with pytest.raises(UserError, match="is a file of weights"):
            evaluate("nowhere", models)


def test_weights_in_a_saved_folder_are_answered_with_the_folders_name(tmp_path: Path) -> None:
    for kind, config in (
        ("local-dir", '{"architecture": "resnet10t"}'),
        ("transformers", '{"architectures": ["A"]}'),
    ):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.json").write_text(config)
        with pytest.raises(
            UserError, match=re.escape(f"Name its folder: {kind}:{tmp_path / kind}")
        ):
            usable_name(str(tmp_path / kind / "model.safetensors"))


def test_a_file_of_onnx_is_taken_and_other_names_stay() -> None:
    assert (
        usable_name("out/net.onnx") == "onnx:out/net.onnx"
        and usable_name(Path("net.ONNX")) == "onnx:net.ONNX"
    )
    for name in (
        "resnet50.a1_in1k",
        "onnx:net.onnx",
        "models.txt",
        "@models.pth",
        "hf-hub:user/net.onnx",
    ):
        assert usable_name(name) == name
