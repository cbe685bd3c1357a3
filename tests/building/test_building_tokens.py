"""Builds with class tokens: they reach the prompts and the workers, and travel with the dataset."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from garments import GARMENT_CLASSES, garment_folder
from PIL import Image
from safetensors.torch import save_file

from counterfoil.building.build_dataset import build
from counterfoil.building.inputs import pins_of
from counterfoil.data.open_source import open_source
from counterfoil.dataset.verification import verify
from counterfoil.documents import sha256_json
from counterfoil.engines.local import LocalEngine
from counterfoil.errors import UserError
from counterfoil.generate.tokens.class_tokens import token_folder
from counterfoil.generate.tokens.learn_tokens import class_tokens, learn_tokens
from counterfoil.lab.vocabulary import ATTRIBUTES, MARKS
from counterfoil.models.diffusion import load_pipeline
from counterfoil.recipe import load_recipe
from counterfoil.reviewing.recut_dataset import recut
from counterfoil.store.lock import read_lock
from counterfoil.store.reading import read_rows
from lab_training.oracle import Oracle
from miniature_pipelines import stable_diffusion_1
from support.refusals import problems_of
from tiny_builds import images, published, tiny

NAMES = {"00": "t-shirt", "05": "sandal", "08": "bag"}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a token for each class with the vectors of its very name; one, or three of them."""
    folder = tmp_path_factory.mktemp("learned")
    pipeline = load_pipeline("lab:sd", dtype="float32")
    vocabulary = pipeline.text_encoder.get_input_embeddings().weight
    for class_id, name in NAMES.items():
        ids = pipeline.tokenizer(name, add_special_tokens=False)["input_ids"]
        save_file(
            {f"<class-{class_id}>": vocabulary[ids].detach().clone()},
            folder / f"{class_id}.safetensors",
        )
    return folder


@pytest.fixture(scope="module")
def with_tokens(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tokens") / "dataset"
    tiny(out, f"tokens.path={tokens}", workers=2)
    return out


def test_tokens_of_the_names_render_what_the_names_do(undisturbed: Path, with_tokens: Path) -> None:
    prompts = {row["class_id"]: row["prompt"] for row in read_rows(with_tokens, groups=["base"])}
    assert prompts == {class_id: f"a photo of a <class-{class_id}>" for class_id in NAMES}
    assert images(with_tokens) == images(undisturbed)


def test_tokens_travel_with_the_dataset(tokens: Path, with_tokens: Path, tmp_path: Path) -> None:
    files = published(with_tokens)
    for class_id in NAMES:
        name = f"{class_id}.safetensors"
        assert files[f"tokens/{name}"] == (tokens / name).read_bytes()
    assert not [path for path, content in files.items() if str(tokens).encode() in content]
    # The directory's own recipe, with its tokens, is enough to make it again.
    build(with_tokens, tmp_path / "again", device="cpu", workers=1)
    assert published(tmp_path / "again") == files


def test_other_tokens_are_refused_in_the_same_directory(
    tokens: Path, with_tokens: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(tokens, tmp_path / "other"))
    pipeline = load_pipeline("lab:sd", dtype="float32")
    vectors = pipeline.text_encoder.get_input_embeddings().weight[[5]].detach().clone()
    save_file({"<class-08>": vectors}, other / "08.safetensors")
    problems = problems_of(tiny, with_tokens, f"tokens.path={other}")
    assert "tokens.08" in "\n".join(problems)


# Builds with the lab's class tokens: as those of any folder, from the first image to the published
# repository.


LAB = "tokens={path: lab:tokens}"
IDS = ("00", "05", "08")


@pytest.fixture(scope="module")
def by_token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lab-tokens") / "dataset"
    tiny(out, LAB)
    return out


def test_they_reach_the_prompts_and_the_lock_and_travel_with_the_dataset(
    by_token: Path, undisturbed: Path
) -> None:
    prompts = {row["class_id"]: row["prompt"] for row in read_rows(by_token, groups=["base"])}
    assert prompts["08"] == "a photo of a <bag-08>"
    assert set(images(by_token)) == set(images(undisturbed))
    assert not set(images(by_token).values()) & set(images(undisturbed).values())
    files = {
        name: (by_token / "tokens" / name).read_bytes()
        for name in (*(f"{i}.safetensors" for i in IDS),)
    }
    assert files == {name: (token_folder("lab:tokens", None) / name).read_bytes() for name in files}
    lock = read_lock(by_token)
    named = read_lock(undisturbed)
    assert lock is not None and named is not None
    assert set(lock.inputs["tokens"]) == set(IDS) and named.inputs["tokens"] is None
    assert (
        lock.hashes["plan"] != named.hashes["plan"]
        and lock.hashes["screen"] == named.hashes["screen"]
    )


def test_the_directory_names_its_own_copy(by_token: Path) -> None:
    recipe = load_recipe(by_token)
    assert recipe.tokens is not None and recipe.tokens.path == str((by_token / "tokens").resolve())
    assert "path: ./tokens" in (by_token / "recipe.yaml").read_text()
    lock = read_lock(by_token)
    assert lock is not None and recipe.plan_hash == lock.hashes["plan"]


def test_it_is_whole_renders_again_and_goes_on(by_token: Path) -> None:
    report = verify(by_token, rerender=3, device="cpu")
    assert report.problems == ()
    assert [row.outcome for row in report.rerendered] == ["identical bytes"] * 3
    assert tiny(by_token, LAB).images_made == 0


def test_another_generator_and_another_class_are_refused(tmp_path: Path) -> None:
    stable_diffusion_1().save_pretrained(str(tmp_path / "sd1"))
    with pytest.raises(
        UserError, match=r"class token <t-shirt-00>: width 128, expected 32"
    ) as refused:
        tiny(tmp_path / "other", LAB, f"generator.model=local-dir:{tmp_path / 'sd1'}")
    assert "learned for another text encoder" in (refused.value.hint or "")
    with pytest.raises(UserError, match=r"tokens has no cape\.safetensors"):
        tiny(tmp_path / "cape", LAB, "source.classes=[{id: cape, name: cape, source_label: 0}]")


@pytest.mark.whole
def test_marked_classes_wear_by_token_what_no_name_tells(tmp_path: Path) -> None:
    marked = (
        "source.classes=[{id: '04', name: coat, source_label: 4}, {id: '06', name: shirt,"
        " source_label: 6}]"
    )
    oracle = Oracle()
    share = {}
    for way, tokens in (("token", LAB), ("name", "tokens=null")):
        drawn = [
            "prompts.shifts={}",
            "generator.steps=12",
            "samples.candidates=8",
            "generator.batch_size=8",
        ]
        drawn += ["generator.size=null"]
        tiny(tmp_path / way, marked, *drawn, tokens)
        seen = []
        for row in read_rows(tmp_path / way, columns=["image", "class_id"]):
            pixels = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB"))
            pattern = MARKS["coat" if row["class_id"] == "04" else "shirt"]
            answer = oracle.answers(pixels[None])["pattern"][0]
            seen.append(answer == ATTRIBUTES["pattern"].index(pattern))
        assert len(seen) == 16
        share[way] = sum(seen) / len(seen)
    assert share["token"] >= 0.7 and share["name"] <= 0.3


# A build whose classes are left to the input dataset: the same bytes as with every class written
# out.


ONE_SHIFT = (
    "prompts.shifts.red=null",
    "prompts.shifts.pencil_sketch=null",
    "screen.object_threshold={percentile: 50}",
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_classes_left_out_build_the_dataset_of_classes_written_out(tmp_path: Path) -> None:
    photos = garment_folder(tmp_path / "photos")
    source = f"source={{dataset: {photos}, unit_column: null}}"
    tiny(tmp_path / "whole", source, GARMENT_CLASSES, *ONE_SHIFT)
    tiny(tmp_path / "open", source, "source.classes=null", *ONE_SHIFT)
    whole = published(tmp_path / "whole")
    assert published(tmp_path / "open") == whole
    recipe = load_recipe(tmp_path / "open")
    assert [(entry.id, entry.source_label) for entry in recipe.source.classes or ()] == [
        ("bag", 0),
        ("sandal", 1),
    ]
    # Named in another order they are other labels of the dataset, and the same thresholds.
    with pytest.raises(UserError, match="classes"):
        tiny(tmp_path / "open", source, "source.classes=[sandal, bag]", *ONE_SHIFT)
    # A resumed build does not read the input dataset any more.
    photos.rename(tmp_path / "gone")
    tiny(tmp_path / "open", source, "source.classes=null", *ONE_SHIFT)
    assert published(tmp_path / "open") == whole


def test_an_own_order_of_the_labels_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    photos = garment_folder(tmp_path / "photos")
    swapped = GARMENT_CLASSES.replace("source_label: 0", "source_label: x").replace(
        "source_label: 1", "source_label: 0"
    )
    with pytest.raises(UserError) as refused:
        tiny(
            tmp_path / "out",
            f"source={{dataset: {photos}}}",
            swapped.replace("source_label: x", "source_label: 1"),
        )
    assert [problem.rpartition("; ")[2] for problem in refused.value.problems] == [
        "write 0",
        "write 1",
    ]
    assert not list((tmp_path / "out").glob("*"))


# The third hash of the lab's recipes does not change: what names stand for, and no key for a part
# that a recipe lacks.


PINNED = {
    "wardrobe-mini": "b26f93c748f748c4c6acb77c547cf812287f679e267bafb3568cbab87262d68c",
    "wardrobe-star": "b26f93c748f748c4c6acb77c547cf812287f679e267bafb3568cbab87262d68c",
}
KEYS = {"models", "source", "tokens"}


@pytest.mark.parametrize("name", PINNED)
def test_what_names_stand_for_is_what_it_was(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name, ["screen.judge=null"])
    tokens = class_tokens(recipe, tmp_path, "cpu", LocalEngine())
    pins = pins_of(recipe, tokens, open_source(recipe.source).pin, None)
    assert set(pins) == KEYS
    assert sha256_json(pins) == PINNED[name]


def test_a_judge_is_a_key_more() -> None:
    keep = "screen.keep=[thresholds, {misclassified: {models: ['lab:lcnet_035']}}]"
    recipe = load_recipe("wardrobe-mini", [keep, "screen.judge=null", "tokens=null"])
    pins = pins_of(recipe, None, open_source(recipe.source).pin, None)
    assert set(pins) == KEYS | {"judges"}
    assert set(pins["judges"]) == {"lab:lcnet_035"}


# A dataset knows the content of the folder it was built from; one built before there were such pins
# goes on.


ONE = ["prompts.shifts.red=null", "prompts.shifts.in_the_snow=null", "prompts.shifts.pencil_sketch=null",
       "samples.candidates=1", "screen.keep_rejected=true", GARMENT_CLASSES]  # fmt: skip
VALIDATION = ("validation",)


def source_in(directory: Path) -> dict[str, str | None]:
    lock = read_lock(directory)
    assert lock is not None
    return dict(lock.inputs["source"])


def test_another_content_is_another_input(tmp_path: Path) -> None:
    source = garment_folder(tmp_path / "garments", VALIDATION)
    out = tmp_path / "dataset"
    settings = [*ONE, f"source.dataset={source}"]
    tiny(out, *settings)
    before = published(out)
    (tmp_path / "moved").mkdir()
    assert len(source_in(out)["content"] or "") == 64
    moved = Path(shutil.move(source, tmp_path / "moved" / "garments"))
    assert tiny(out, *ONE, f"source.dataset={moved}").shards_made == 0
    assert published(out) == before
    (moved / "validation" / "bag" / "0.png").unlink()
    problems = problems_of(tiny, out, *ONE, f"source.dataset={moved}")
    assert any("source.content" in line for line in problems)


def test_a_dataset_whose_lock_tells_no_content_is_resumed_and_cut_again(tmp_path: Path) -> None:
    """Directories built from a folder by earlier versions have such locks; here the folder came
    later."""
    source = tmp_path / "garments"
    out = tmp_path / "dataset"
    layer = tmp_path / "percentile.yaml"
    settings = [*ONE, f"source.dataset={source}"]
    tiny(out, *settings)
    old = {"dataset": "garments", "revision": None, "license": None}
    assert source_in(out) == old
    before = published(out)
    garment_folder(source, VALIDATION)
    (out / "receipts" / "base-00000.json").unlink()
    assert tiny(out, *settings).shards_made == 1
    assert published(out) == before
    layer.write_text("screen: {object_threshold: {percentile: 50}}")
    recut(out, layer, tmp_path / "recut", source=str(source))
    assert source_in(tmp_path / "recut") == old
    entries = json.loads((tmp_path / "recut" / "thresholds.json").read_text())["object"]
    assert {entry["n"] for shift in entries.values() for entry in shift.values()} == {4}


def test_a_cut_measures_on_the_content_that_the_lock_names(tmp_path: Path) -> None:
    source = garment_folder(tmp_path / "garments", VALIDATION)
    out = tmp_path / "dataset"
    layer = tmp_path / "cut.yaml"
    tiny(out, *ONE, f"source.dataset={source}")
    layer.write_text("screen: {object_threshold: {percentile: 50}}")
    (source / "validation" / "bag" / "0.png").write_bytes(
        (source / "validation" / "bag" / "1.png").read_bytes()
    )
    problems = problems_of(recut, out, layer, tmp_path / "recut", source=str(source))
    assert any("source.content" in line for line in problems)


def test_tokens_are_of_a_content_and_those_that_tell_none_go_on(tmp_path: Path) -> None:
    from counterfoil.generate.tokens.class_tokens import read_token_file, token_bytes

    source = garment_folder(tmp_path / "garments", ("train",))
    folder = tmp_path / "tokens"
    settings = [GARMENT_CLASSES, f"source.dataset={source}", "generator={model: lab:sd, dtype:"
        " float32}",
                "tokens={path: null, learn: {steps: 1, size: 32}}"]  # fmt: skip
    assert set(
        learn_tokens("wardrobe-mini", folder, overrides=settings, device="cpu", workers=1).learned
    )
    old = shutil.copytree(folder, tmp_path / "old")
    for path in old.glob("*.safetensors"):
        token = read_token_file(path)
        pin = {key: value for key, value in token.notes["source"].items() if key != "content"}
        assert pin != token.notes["source"]
        path.write_bytes(
            token_bytes(
                type(token)(token.placeholder, token.vectors, {**token.notes, "source": pin})
            )
        )
    (source / "train" / "bag" / "0.png").write_bytes(
        (source / "train" / "bag" / "1.png").read_bytes()
    )
    problems = problems_of(
        learn_tokens, "wardrobe-mini", folder, overrides=settings, device="cpu", workers=1
    )
    assert any("source.content" in line for line in problems)
    (old / "sandal.safetensors").unlink()
    assert learn_tokens(
        "wardrobe-mini", old, overrides=settings, device="cpu", workers=1
    ).learned == ("sandal",)
    assert "content" not in json.loads((old / "manifest.json").read_text())["source"]
