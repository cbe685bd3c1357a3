"""What a recipe lacks is known by names alone: folders, caches, settings and omissions, each as one
line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from PIL import Image
from typer.testing import CliRunner

from counterfoil.cli.main import app
from counterfoil.plan.estimate import KNOWN_CLIPS
from counterfoil.recipe import load_recipe
from counterfoil.starting.init_recipe import init
from counterfoil.starting.lacking import Lack, list_lacking
from counterfoil.starting.source_rows import sampled_pictures
from drawn_folders import draw_folder
from support.images import encoded
from support.refusals import succeed

HUB = ["generator.model=stable-diffusion-v1-5/stable-diffusion-v1-5"]
CLIP = ["screen.model=ViT-B-32", "screen.weights=laion2b_s34b_b79k"]


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache of the Hub's client, which may ask the Hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def of(*overrides: str) -> dict[str, Lack]:
    return {lack.key: lack for lack in list_lacking(load_recipe("wardrobe-mini", overrides))}


def snapshot(caches: Path, repository: str, file: str) -> None:
    directory = caches / repository / "snapshots" / ("0" * 40)
    directory.mkdir(parents=True)
    (directory / file).write_bytes(b"x")


def test_the_labs_recipe_needs_nothing() -> None:
    assert not [lack for lack in of().values() if lack.weight != "optional"]


def test_a_model_that_is_not_in_the_cache_is_reported_with_its_size(caches: Path) -> None:
    lacks = of(*HUB, *CLIP)
    assert lacks["generator.model"].line.endswith(
        "is not on this machine yet and will be downloaded (about 5.5 GB)"
    )
    assert lacks["generator.model"].line.startswith(
        "needs: generator.model: stable-diffusion-v1-5/"
    )
    assert "0.6 GB" in lacks["screen.model"].text
    snapshot(caches, "models--stable-diffusion-v1-5--stable-diffusion-v1-5", "unet.safetensors")
    snapshot(
        caches, "models--laion--CLIP-ViT-B-32-laion2B-s34B-b79K", "open_clip_pytorch_model.bin"
    )
    assert not {"generator.model", "screen.model"} & set(of(*HUB, *CLIP))


def test_a_revision_is_no_part_of_a_repositorys_name(caches: Path) -> None:
    judge = "screen.judge=hf-hub:someone/judge@v2"
    assert of(judge)["screen.judge"].weight == "fetched"
    snapshot(caches, "models--someone--judge", "model.safetensors")
    assert "screen.judge" not in of(judge)


def test_a_dataset_of_the_hub_is_at_hand_once_it_was_fetched(caches: Path) -> None:
    photos = "source.dataset=someone/photos"
    assert of(photos)["source.dataset"].weight == "fetched"
    snapshot(caches, "datasets--someone--photos", "train.parquet")
    assert "source.dataset" not in of(photos)
    long = of(f"source.dataset=owner/{'x' * 5000}")["source.dataset"]
    assert "not on this machine" in long.text


def test_an_unknown_models_size_is_not_made_up() -> None:
    text = of("generator.model=someone/diffusion")["generator.model"].text
    assert text == "someone/diffusion is not on this machine yet and will be downloaded"


def test_offline_what_is_not_here_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    lacks = of(*HUB)
    assert (
        lacks["generator.model"].weight == "missing"
        and "HF_HUB_OFFLINE" in lacks["generator.model"].text
    )


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("generator.model=./nowhere", "generator.model"),
        ("screen.model=local-dir:./nowhere", "screen.model"),
        ("tokens.path=./nowhere", "tokens.path"),
        ("source.dataset=./nowhere", "source.dataset"),
        ("generator.model=lab:nothing", "generator.model"),
    ],
)
def test_a_folder_that_is_not_there_cannot_be_built_with(override: str, key: str) -> None:
    assert of(override)[key].weight == "missing"


@pytest.mark.parametrize("name", ["two words", "\x85", "a/b/c"])
def test_a_name_that_no_repository_can_have_is_reported(name: str) -> None:
    lacks = list_lacking(load_recipe("sd35-medium", [f"generator.model={json.dumps(name)}"]))
    assert any(lack.weight == "missing" and "Repo id" in lack.text for lack in lacks)


def test_a_source_is_missed_only_where_something_is_taken_from_it() -> None:
    by_value = of(
        "source.dataset=./nowhere", "screen.object_threshold={value: 0.2, percentile: null}"
    )
    assert by_value["source.dataset"].weight == "optional"


def test_what_is_left_out_is_reported() -> None:
    lacks = of(
        "evaluate.models=[]",
        "source.validation_split=train",
        "screen.shift_threshold={percentile: 20}",
    )
    assert "no model is named" in lacks["evaluate.models"].text
    assert "percentiles of train, the training images" in lacks["source.validation_split"].text
    assert (
        "no image of it is kept until you choose one with counterfoil calibrate"
        in lacks["screen.shift_threshold"].text
    )
    # Nothing is screened where rows are corrupted, so that no threshold is taken of anything.
    one_split = load_recipe(
        "wardrobe-corrupt", ["source.validation_split=train", "generator.split=train"]
    )
    assert "source.validation_split" not in {lack.key for lack in list_lacking(one_split)}
    bare = of("prompts.shifts.red.caption=null")
    assert "red is not screened" in bare["screen.shift_threshold"].text
    assert not of("screen.keep_rejected=true").keys() & {"screen.keep_rejected", "evaluate.models"}


def test_models_to_evaluate_are_one_line() -> None:
    lacks = of(
        "evaluate.models=[resnet18.a1_in1k, resnet50.a1_in1k, local-dir:./nowhere, lab:resnet10t]"
    )
    assert lacks["evaluate.models"].weight == "optional"
    assert "resnet18.a1_in1k, resnet50.a1_in1k, local-dir:" in lacks["evaluate.models"].text
    assert "lab:" not in lacks["evaluate.models"].text


@pytest.mark.parametrize("kind", ["onnx:", "predictions:"])
def test_a_file_that_is_not_there_is_reported(kind: str, tmp_path: Path) -> None:
    """Check that a missing file of a model is reported like a folder, and an existing one is
    not."""
    present = tmp_path / "present.file"
    present.write_bytes(b"x")
    lacks = of(
        f"evaluate.models=[{kind}{present}, {kind}{tmp_path}/absent.file, {kind}absent.file]"
    )
    text = lacks["evaluate.models"].text
    assert lacks["evaluate.models"].weight == "optional"
    assert "present.file" not in text and text.count("absent.file") == 2
    judge = of(f"screen.judge=onnx:{tmp_path}/absent.onnx")["screen.judge"]
    assert (judge.weight, judge.text) == ("missing", f"there is no file {tmp_path}/absent.onnx")


def test_a_judge_is_one_line_and_of_its_own_key() -> None:
    def keys(*overrides: str) -> list[str]:
        recipe = load_recipe("wardrobe-mini", ["evaluate.models=[]", *overrides])
        return [lack.key for lack in list_lacking(recipe) if "resnet50" in lack.text]

    picked = "prompts.shifts.red.keep=[thresholds, {misclassified: {models: [resnet50.a1_in1k]}}]"
    assert keys("screen.judge=resnet50.a1_in1k") == ["screen.judge"]
    assert keys("screen.judge=null", picked) == ["screen.keep"]
    assert keys("screen.judge=resnet50.a1_in1k", picked) == ["screen.keep"]


def test_the_repositories_of_known_clips_are_open_clips_own() -> None:
    from open_clip.pretrained import get_pretrained_cfg

    for (architecture, tag), clip in KNOWN_CLIPS.items():
        config: dict[str, Any] = get_pretrained_cfg(architecture, tag)
        assert config["hf_hub"].rstrip("/") == clip.repository


SCALE = "each CLIP has a scale of its own"


def test_numbers_of_another_clip_are_noted() -> None:
    published = ["screen.model=ViT-H-14", "screen.weights=laion2b_s32b_b79k"]
    newer = ["screen.model=PE-Core-L-14-336", "screen.weights=meta"]
    texts = {}
    for name, overrides in {"lab": [], "published": published, "newer": newer}.items():
        lacks = list_lacking(load_recipe("wardrobe-mini", overrides))
        texts[name] = [lack.line for lack in lacks if SCALE in lack.text]
    assert (texts["lab"], texts["published"]) == ([], [])
    (line,) = texts["newer"]
    assert line.startswith(
        "note: screen.shift_threshold: thresholds are given as numbers for in_the"
    )
    assert "Unless they were chosen with PE-Core-L-14-336" in line
    open_thresholds = list_lacking(load_recipe("pets-pe-core"))
    assert not any(SCALE in lack.text for lack in open_thresholds)
    assert any(
        "until you choose one with counterfoil calibrate" in lack.text for lack in open_thresholds
    )


def test_models_that_rules_ask_are_fetched_or_missed(caches: Path, tmp_path: Path) -> None:
    def asking(rule: str) -> Lack:
        return of(f"screen.keep=[thresholds, {{{rule}}}]")["screen.keep"]

    owl = "detected: {model: 'transformers:google/owl'}"
    assert (asking(owl).weight, asking(owl).text[:10]) == ("fetched", "google/owl")
    assert asking("question: {model: 'transformers:./nowhere'}").weight == "missing"
    snapshot(caches, "models--google--owl", "model.safetensors")
    served = "{question: {model: vlm, base_url: 'http://localhost/v1'}}"
    keep = f"screen.keep=[thresholds, {{{owl}}}, {served}]"
    assert "screen.keep" not in of(keep)
    (tmp_path / "dataset").mkdir()
    recipe = load_recipe("wardrobe-mini", [keep])
    (tmp_path / "dataset" / "recipe.yaml").write_text(recipe.portable_yaml)
    (tmp_path / "dataset" / "lock.json").write_text("{}")
    lacks = list_lacking(load_recipe(tmp_path / "dataset"))
    (lack,) = [lack for lack in lacks if lack.key == "screen.keep"]
    assert lack.weight == "missing" and "comes from a dataset's recipe" in lack.text


def checked(*words: str) -> tuple[dict[str, Any], str]:
    """Return the document of `check` and what it refuses."""
    done = CliRunner().invoke(app, ["check", *words, "--json"])
    refused = "" if done.exception is None else str(done.exception)
    assert getattr(done.exception, "exit_code", 2) == 2
    return json.loads(done.stdout), refused


def test_check_states_how_many_questions_are_asked_and_where() -> None:
    rule = "{question: {model: some/vlm, base_url: 'http://localhost:8000/v1', ask_shift: 'Is it so?'}}"
    arguments = ["wardrobe-mini", "--set", f"screen.keep=[thresholds, {rule}]"]
    shown = " ".join(succeed("check", *arguments).stdout.split())
    assert (
        "2,200 questions about 1,200 images, to some/vlm at http://localhost:8000, which" in shown
    )
    (questions,) = checked(*arguments)[0]["asked"]
    assert questions == {
        "model": "some/vlm", "address": "http://localhost:8000", "images": 1200, "questions": 2200,
    }  # fmt: skip


def test_check_tells_lines_for_people_and_json_for_machines(tmp_path: Path) -> None:
    draw_folder(tmp_path / "photos", per_class=2)
    recipe = str(
        init(
            tmp_path / "photos", tmp_path / "own.yaml", generator="a/b", clip="ViT-B-32/openai"
        ).path
    )
    done = succeed("check", recipe)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("needs: ", "note: "))]
    assert [line.split(":")[1].strip() for line in lines] == [
        "generator.model", "screen.model", "evaluate.models", "screen.shift_threshold",
        *(["screen.judge"] if "screen.judge" in done.stdout else []),
    ]  # fmt: skip
    document, _ = checked(recipe)
    assert document["buildable"] is True
    assert all(
        f"{lack['key']}: {lack['text']}" in line
        for lack, line in zip(document["lacks"], lines, strict=True)
    )


@pytest.mark.parametrize(("images", "few"), [(4, True), (5, False)])
def test_check_says_which_classes_have_too_few_images_for_a_drop(
    tmp_path: Path, images: int, few: bool
) -> None:
    draw_folder(tmp_path / "photos", per_class=images)
    recipe = str(init(tmp_path / "photos", tmp_path / "own.yaml").path)
    shown = CliRunner().invoke(app, ["check", recipe]).stdout
    assert (
        "note: evaluate.min_images_per_class: 3 of 3 classes have fewer than 5 images, 4 at the"
        " fewest" in shown
    ) == few


def test_check_says_how_many_calls_a_chat_model_on_a_server_needs() -> None:
    models = "evaluate.models=[chat:small@http://localhost:8000/v1, chat:transformers:a/b]"
    document, _ = checked("wardrobe-mini", "--set", models)
    calls = [lack["text"] for lack in document["lacks"] if "calls of its server" in lack["text"]]
    most = f"at most {document['samples']:,} calls of its server, one an image"
    assert calls == [f"chat:small@http://localhost:8000/v1: {most}"]


def test_a_folder_that_tells_the_classes_is_missed_by_its_name(tmp_path: Path) -> None:
    folder = draw_folder(tmp_path / "photos", per_class=2)
    recipe = init(folder, tmp_path / "own.yaml", device="cpu").path
    folder.rename(tmp_path / "gone")
    done = CliRunner().invoke(app, ["check", str(recipe)])
    assert getattr(done.exception, "exit_code", None) == 2
    assert "source.dataset: there is no folder" in str(done.exception)


NAME = "black-forest-labs/FLUX.1-schnell"
FLUX = {"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"]}


@pytest.fixture
def fetched(caches: Path) -> None:
    repository = caches / "models--black-forest-labs--FLUX.1-schnell"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "model_index.json").write_text(json.dumps(FLUX))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    flux = tmp_path / "flux"
    flux.mkdir()
    (flux / "model_index.json").write_text(json.dumps(FLUX))
    return f"generator.model=local-dir:{flux}"


def missing(*overrides: str) -> dict[str, Lack]:
    lacks = list_lacking(load_recipe("wardrobe-mini", overrides))
    return {lack.key: lack for lack in lacks if lack.weight == "missing"}


def test_what_does_not_go_with_a_folders_configuration_cannot_be_built(folder: str) -> None:
    lacks = missing(
        folder,
        "generator.size=72",
        "generator.options={max_sequence_lenght: 256}",
        "tokens={path: null, learn: {}}",
    )
    assert lacks.keys() == {
        "tokens.learn",
        "generator.size",
        "generator.options.max_sequence_lenght",
    }
    assert (
        "did you mean 'max_sequence_length'?" in lacks["generator.options.max_sequence_lenght"].text
    )


@pytest.mark.usefixtures("fetched")
def test_so_it_is_for_a_model_of_the_hub_whose_configuration_was_fetched() -> None:
    assert missing(f"generator.model={NAME}", "generator.size=72", "tokens=null").keys() == {
        "generator.size"
    }
    fits = list_lacking(load_recipe("flux-schnell"))
    assert not [
        lack for lack in fits if lack.key.startswith("generator") and lack.key != "generator.model"
    ]


def test_where_it_is_not_here_that_is_reported() -> None:
    lacks = [lack for lack in list_lacking(load_recipe("flux-schnell")) if lack.key == "generator"]
    assert [lack.weight for lack in lacks] == ["fetched"]
    assert f"checked against {NAME} once its configuration is downloaded" in lacks[0].text
    nothing = list_lacking(load_recipe("wardrobe-mini", [f"generator.model={NAME}", "tokens=null"]))
    assert not [lack for lack in nothing if lack.key == "generator"], "there is nothing to compare"


@pytest.mark.skipif(util.find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_an_absent_library_is_reported_whatever_is_here() -> None:
    lacks = missing("generator.quantize=bnb-4bit")
    assert "pip install 'counterfoil[bnb]'" in lacks["generator.quantize"].text


def test_check_ends_with_2_and_lists_every_problem(folder: str) -> None:
    changes = (folder, "generator.size=72", "generator.options={height: 3}", "tokens=null")
    sets = [word for change in changes for word in ("--set", change)]
    document, refused = checked("wardrobe-mini", *sets)
    assert "multiples of 16" in refused and "with generator.size" in refused
    assert document["buildable"] is False
    keys = {lack["key"] for lack in document["lacks"]}
    assert {"generator.size", "generator.options.height"} <= keys


@pytest.mark.parametrize("name", ["flux-schnell", "sd35-medium", "z-image"])
def test_the_bundled_generators_need_no_tokens(name: str) -> None:
    needed = [lack for lack in list_lacking(load_recipe(name)) if lack.weight != "optional"]
    assert "tokens" not in {lack.key for lack in needed}


def test_size_and_tokens_are_compared_without_heavy_libraries(folder: str) -> None:
    code = (
        "import sys; from counterfoil.recipe import load_recipe; from counterfoil.starting.lacking"
        " import list_lacking\n"
        "print(any(lack.key == 'generator.size' for lack in"
        " list_lacking(load_recipe('wardrobe-mini',"
        f" [{folder!r},"
        " 'generator.size=72', 'tokens=null']))))\n"
        "print([name for name in ('torch', 'diffusers', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["True", "[]"]


def write_narrow_photographs(folder: Path, ending: str) -> None:
    for number in range(300):
        file = folder / ("mug", "star")[number % 2] / f"{number}.{ending}"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 64), (number % 256, 0, 0)).save(file)


def test_the_size_of_photographs_is_taken_from_a_sample_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_narrow_photographs(tmp_path / "photos", "png")
    recipe = init("photos", device="cpu").recipe
    assert sampled_pictures(recipe) == (32, ())
    Image.new("I;16", (16, 64)).save(tmp_path / "photos" / "mug" / "0.png")
    side, (note,) = sampled_pictures(recipe)
    assert side == 32 and "1 image of the 200 that were opened is grey" in note
    document, _ = checked("recipe.yaml")
    assert document["assumptions"][0] == "images of about 32 x 32 pixels, by a sample of them"
    assert any("is grey of 16" in lack["text"] for lack in document["lacks"])
    shutil.rmtree(tmp_path / "photos")
    assert sampled_pictures(recipe) == (None, ())


def test_small_jpeg_files_are_counted_among_the_files_that_were_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`init` opens all 300 files and `check` 200 of them: each count says of how many it is."""
    monkeypatch.chdir(tmp_path)
    write_narrow_photographs(tmp_path / "photos", "jpg")
    started = init("photos", device="cpu")
    assert any(
        note.startswith("300 images are JPEG already and under 85 pixels") for note in started.notes
    )
    _, (note,) = sampled_pictures(started.recipe)
    assert note.startswith(
        "200 images of the 200 that were opened are JPEG already and under 85 pixels"
    )


def test_what_a_first_recipe_leaves_out_is_told_with_how_to_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, count in (("mug", 60), ("star", 20)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(count):
            (tmp_path / "photos" / name / f"{number}.png").write_bytes(encoded((9, 9, 9)))
    result = init("photos", device="cpu")
    assert result.recipe.samples.candidates == 50
    (note,) = (note for note in result.notes if "the recipe takes" in note)
    assert (
        "takes 70 of 80 images, at most 50 of a class" in note
        and "set samples.candidates to 60" in note
    )
    (tmp_path / "photos" / "mug" / "59.png").unlink()
    for number in range(50, 59):
        (tmp_path / "photos" / "mug" / f"{number}.png").unlink()
    assert not any(
        "the recipe takes" in note for note in init("photos", "all.yaml", device="cpu").notes
    )
