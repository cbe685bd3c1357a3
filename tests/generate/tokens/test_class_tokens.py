"""Class tokens: read from a folder, added to the vocabulary, and used in prompts in place of the
names."""

from __future__ import annotations

import io
import pickle
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import miniature_pipelines as miniature
import modern_pipelines as modern
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.generate.render import Renderer
from counterfoil.generate.tokens.class_tokens import (
    ClassTokens,
    read_class_tokens,
    read_token_file,
    read_token_folder,
)
from counterfoil.generate.tokens.import_tokens import import_tokens
from counterfoil.generate.tokens.learn_tokens import learn_tokens
from counterfoil.models.diffusion import (
    load_pipeline,
    load_tokenizers,
    pipeline_family,
    text_widths,
)
from counterfoil.models.generators import FAMILIES
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import Recipe, load_recipe
from tiny_builds import CLASSES

MakeRecipe = Callable[..., Recipe]
TWO = (
    "source.classes=[{id: bag, name: bag, source_label: 8}, {id: boot, name: ankle boot,"
    " source_label: 9}]"
)


def _vectors(pipeline: Any, words: str) -> torch.Tensor:
    """Return the vocabulary's vectors of some words, [n, width]."""
    ids = pipeline.tokenizer(words, add_special_tokens=False)["input_ids"]
    return pipeline.text_encoder.get_input_embeddings().weight[ids].detach().clone()


def _write(folder: Path, tokens: dict[str, tuple[str, torch.Tensor]]) -> Path:
    folder.mkdir(parents=True)
    for class_id, (placeholder, vectors) in tokens.items():
        save_file({placeholder: vectors.contiguous()}, folder / f"{class_id}.safetensors")
    return folder


@pytest.fixture(scope="module")
def folder(pipeline: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save tokens with the vectors of the words themselves: one for the bag, two for the ankle
    boot."""
    tokens = {
        "bag": ("<the-bag>", _vectors(pipeline, "bag")),
        "boot": ("<the-boot>", _vectors(pipeline, "ankle boot")),
    }
    assert [len(vectors) for _, vectors in tokens.values()] == [1, 2]
    return _write(tmp_path_factory.mktemp("tokens") / "tokens", tokens)


@pytest.fixture(scope="module")
def tokens(folder: Path, make_recipe: MakeRecipe) -> ClassTokens:
    class_tokens = read_class_tokens(make_recipe(TWO, f"tokens.path={folder}"))
    assert class_tokens is not None
    return class_tokens


@pytest.fixture(scope="module")
def with_tokens(tokens: ClassTokens) -> Any:
    return load_pipeline("lab:sd", dtype="float32", tokens=tokens.by_placeholder())


def test_files_are_read_as_they_are(tokens: ClassTokens, folder: Path) -> None:
    assert dict(tokens.placeholders) == {"bag": "<the-bag>", "boot": "<the-boot>"}
    assert tokens.files["boot"] == (folder / "boot.safetensors").read_bytes()
    assert len(set(tokens.hashes().values())) == 2
    assert tokens.vectors["boot"][0].shape[0] == 2


def test_a_parent_folder_with_tokens_in_it_will_do(
    folder: Path, tokens: ClassTokens, make_recipe: MakeRecipe
) -> None:
    class_tokens = read_class_tokens(make_recipe(TWO, f"tokens.path={folder.parent}"))
    assert class_tokens is not None
    assert class_tokens.files == tokens.files
    assert read_class_tokens(make_recipe(TWO)) is None


def test_tokens_of_the_words_encode_as_the_words(
    pipeline: Any, with_tokens: Any, make_recipe: MakeRecipe
) -> None:
    by_name = Renderer(pipeline, make_recipe(TWO))
    by_token = Renderer(with_tokens, make_recipe(TWO))
    for name, placeholder in (("bag", "<the-bag>"), ("ankle boot", "<the-boot>")):
        for prompt in ("a photo of a {}", "a photo of a {} in the snow", "{}"):
            expected = by_name.encode(prompt.format(name))["prompt_embeds"]
            encoded = by_token.encode(prompt.format(placeholder))["prompt_embeds"]
            assert torch.equal(encoded, expected), prompt
    other = by_token.encode("a photo of a <the-boat>")["prompt_embeds"]
    assert not torch.equal(other, by_token.encode("a photo of a <the-boot>")["prompt_embeds"])


def test_prompts_with_tokens_render_from_their_vectors(
    pipeline: Any, with_tokens: Any, tokens: ClassTokens, make_recipe: MakeRecipe, folder: Path
) -> None:
    recipe = make_recipe(TWO, f"tokens.path={folder}", "generator.size=32")
    of_names = make_recipe(TWO, "generator.size=32")
    by_token = make_plan(recipe, tokens.placeholders)
    by_name = make_plan(of_names)
    for index in (0, 2):
        samples = list(by_token.shards[index].samples(by_token))
        named = list(by_name.shards[index].samples(by_name))
        assert ["<the-bag>" in str(samples[0].prompt), "<the-boot>" in str(samples[1].prompt)] == [
            True,
            True,
        ]
        assert [sample.seed for sample in samples] == [sample.seed for sample in named]
        images = Renderer(with_tokens, recipe).render(samples)
        for image, expected in zip(images, Renderer(pipeline, of_names).render(named), strict=True):
            np.testing.assert_array_equal(image, expected)


def test_missing_tokens_are_named(tmp_path: Path, folder: Path, make_recipe: MakeRecipe) -> None:
    three = TWO.replace("]", ", {id: dress, name: dress, source_label: 3}]")
    with pytest.raises(UserError, match=r"no dress\.safetensors"):
        read_class_tokens(make_recipe(three, f"tokens.path={folder}"))
    with pytest.raises(UserError, match="no folder"):
        read_class_tokens(make_recipe(TWO, f"tokens.path={tmp_path / 'gone'}"))


def test_learning_is_not_reading(make_recipe: MakeRecipe) -> None:
    with pytest.raises(ValueError, match=r"tokens\.learn"):
        read_class_tokens(make_recipe(TWO, "tokens={learn: {}}"))


def test_tokens_for_another_text_encoder_are_refused() -> None:
    with pytest.raises(UserError, match=r"<wide>: width 768, expected 128"):
        load_pipeline(
            "lab:sd",
            dtype="float32",
            tokens={"<wide>": (torch.zeros(2, 768),), "<right>": (torch.zeros(1, 128),)},
        )


@pytest.mark.parametrize("word", ["bag</w>", "<|endoftext|>"])
def test_a_placeholder_that_is_a_word_already_is_refused(word: str) -> None:
    with pytest.raises(UserError, match="already in the vocabulary") as refused:
        load_pipeline("lab:sd", dtype="float32", tokens={word: (torch.zeros(1, 128),)})
    assert repr(word) in refused.value.problems[0]


@pytest.mark.parametrize("damage", ["shared", "several", "text"])
def test_files_that_are_no_token_are_refused(
    damage: str, tmp_path: Path, make_recipe: MakeRecipe
) -> None:
    ones = torch.ones(1, 128)
    names = {"bag": "<it>", "boot": "<it>" if damage == "shared" else "<boot>"}
    folder = _write(
        tmp_path / "tokens", {class_id: (name, ones) for class_id, name in names.items()}
    )
    if damage == "several":
        save_file({"<a>": ones, "<b>": torch.zeros(1, 128)}, folder / "boot.safetensors")
    if damage == "text":
        (folder / "boot.safetensors").write_text("no tensors here")
    messages = {
        "shared": "share a placeholder",
        "several": "2 tensors",
        "text": "not a readable safetensors file",
    }
    with pytest.raises(UserError, match=messages[damage]):
        read_class_tokens(make_recipe(TWO, f"tokens.path={folder}"))


TWO_VECTORS = torch.randn((2, miniature.WIDTH), generator=torch.Generator().manual_seed(4))
# As they lie on the Hub and elsewhere, and what each program calls the word.
AS_DIFFUSERS: dict[str, Any] = {"<my-cat>": TWO_VECTORS}
AS_A1111: dict[str, Any] = {
    "string_to_token": {"*": 265}, "string_to_param": {"*": TWO_VECTORS}, "name": "my-cat", "step": 500,
    "sd_checkpoint": None, "sd_checkpoint_name": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("tensors", "placeholder"), [(AS_DIFFUSERS, "<my-cat>"), ({"emb_params": TWO_VECTORS}, "<cat>")]
)
def test_embeddings_of_other_programs_are_what_diffusers_reads(
    tensors: dict[str, torch.Tensor], placeholder: str, tmp_path: Path
) -> None:
    save_file(tensors, tmp_path / "cat.safetensors")
    token = read_token_file(tmp_path / "cat.safetensors")
    assert token.placeholder == placeholder
    assert torch.equal(token.vectors[0], diffusers_reads(tmp_path / "cat.safetensors"))


def test_embeddings_of_two_encoders_are_told_apart_by_name(tmp_path: Path) -> None:
    save_file(
        {"clip_g": torch.ones(2, 12), "clip_l": torch.zeros(2, 8)}, tmp_path / "cat.safetensors"
    )
    token = read_token_file(tmp_path / "cat.safetensors")
    assert (token.placeholder, [vector.shape[1] for vector in token.vectors]) == ("<cat>", [8, 12])


def diffusers_reads(file: Path) -> torch.Tensor:
    """Return the vectors that `load_textual_inversion` puts into a text encoder."""
    pipeline: Any = miniature.stable_diffusion_1()
    pipeline.load_textual_inversion(str(file.parent), weight_name=file.name, token="<word>")
    ids = pipeline.tokenizer.convert_tokens_to_ids(["<word>", "<word>_1"])
    return pipeline.text_encoder.get_input_embeddings().weight[ids].detach()


# Released tokens imported: bare tensors of a zip or a folder, of the right width, read safely.


LABELS = {"00": 0, "05": 5, "08": 8}


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("wardrobe-mini", [CLASSES])


def _saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    return {
        f"{label}.bin": torch.randn(128, generator=torch.Generator().manual_seed(label))
        for label in range(10)
    }


def _folder(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def _archive(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path.with_suffix(".zip"), "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tokens/{name}", content)
    return path.with_suffix(".zip")


@pytest.mark.parametrize("pack", [_folder, _archive])
def test_each_class_gets_the_tensor_of_its_source_label(
    pack: Callable[[Path, dict[str, bytes]], Path],
    tensors: dict[str, torch.Tensor],
    recipe: Recipe,
    tmp_path: Path,
) -> None:
    source = pack(tmp_path / "released", {name: _saved(tensor) for name, tensor in tensors.items()})
    result = import_tokens(recipe, source, tmp_path / "out")
    assert set(result.losses) == set(LABELS)
    for class_id, label in LABELS.items():
        token = read_token_file(tmp_path / "out" / f"{class_id}.safetensors")
        assert torch.equal(token.vectors[0][0], tensors[f"{label}.bin"])
    assert read_token_folder(recipe, tmp_path / "out").placeholders["05"] == "<sandal-05>"


@pytest.mark.parametrize(
    "saved", [AS_DIFFUSERS, AS_A1111, {**AS_A1111, "string_to_param": {"*": TWO_VECTORS.half()}}]
)
def test_files_of_torch_from_other_programs_are_what_diffusers_reads(
    saved: dict[str, Any], tmp_path: Path
) -> None:
    miniature.stable_diffusion_1().save_pretrained(tmp_path / "model")
    source = _folder(
        tmp_path / "released", {f"{label}.bin": _saved(saved) for label in LABELS.values()}
    )
    settings = [CLASSES, "tokens=null", f"generator.model=local-dir:{tmp_path / 'model'}"]
    import_tokens(load_recipe("wardrobe-mini", settings), source, tmp_path / "out")
    token = read_token_file(tmp_path / "out" / "05.safetensors")
    assert (token.placeholder, token.vectors[0].dtype) == ("<sandal-05>", torch.float32)
    assert torch.equal(token.vectors[0], diffusers_reads(source / "5.bin"))


def test_everything_wrong_is_said_at_once(recipe: Recipe, tmp_path: Path) -> None:
    files = {"0.bin": _saved(torch.zeros(1024)), "5.bin": _saved(torch.full((128,), float("nan")))}
    with pytest.raises(UserError) as refused:
        import_tokens(recipe, _folder(tmp_path / "released", files), tmp_path / "out")
    output = "\n".join(refused.value.problems)
    assert "0.bin: width 1024, expected 128 by lab:sd's text encoder" in output
    assert "5.bin holds numbers that are not finite" in output
    assert "has no 8.bin" in output
    assert not (tmp_path / "out").exists()


class _Evil:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return (print, ("this ran",))


ODD_FILES = [
    pickle.dumps(_Evil()), _saved(_Evil()), _saved({"<cat>": _Evil()}), _saved({"string_to_param": _Evil()}),
    b"no tensor", _saved([1, 2]), _saved({"clip_l": TWO_VECTORS, "clip_g": TWO_VECTORS}), _saved({}), b"",
]  # fmt: skip


@pytest.mark.parametrize("content", ODD_FILES)
def test_what_is_no_tensor_is_refused_and_never_run(
    content: bytes,
    tensors: dict[str, torch.Tensor],
    recipe: Recipe,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {name: _saved(tensor) for name, tensor in tensors.items()} | {"5.bin": content}
    with pytest.raises(UserError, match=r"5\.bin"):
        import_tokens(recipe, _folder(tmp_path / "released", files), tmp_path / "out")
    assert "this ran" not in capsys.readouterr().out


def _packed(content: bytes) -> bytes:
    """Compress the parts of a file of torch."""
    with io.BytesIO() as file:
        with (
            zipfile.ZipFile(io.BytesIO(content)) as whole,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed,
        ):
            for part in whole.infolist():
                packed.writestr(part.filename, whole.read(part))
        return file.getvalue()


ODD: dict[str, tuple[bytes, str]] = {
    "512 GB in a few bytes": (
        _saved(torch.zeros(1).expand(10**9, 128)),
        "holds 1,000,000,000 vectors, expected 1 to",
    ),
    "more than a token has": (_saved(torch.zeros(33, 128)), "holds 33 vectors"),
    "no vector": (_saved(torch.zeros(0, 128)), "holds 0 vectors"),
    "numbers kept apart": (_saved(torch.zeros(128).to_sparse()), "holds no vector"),
    "numbers nowhere": (_saved(torch.zeros(2, 128, device="meta")), "holds no vector"),
    "a tensor of more bytes than it shows": (
        _saved(torch.zeros(2_000_000)[:128]),
        "bytes, too many for a class token",
    ),
    "packed parts": (
        _packed(_saved(torch.zeros(2_000_000)[:128])),
        "is not a tensor that can be read safely",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_a_tensor_is_no_larger_than_a_token_before_it_takes_memory(
    case: str, recipe: Recipe, tmp_path: Path
) -> None:
    content, message = ODD[case]
    files = {f"{label}.bin": _saved(torch.zeros(128)) for label in range(10)} | {"5.bin": content}
    with pytest.raises(UserError) as refused:
        import_tokens(recipe, _folder(tmp_path / "released", files), tmp_path / "out")
    assert len(refused.value.problems) == 1
    assert "5.bin" in refused.value.problems[0]
    assert message in refused.value.problems[0]


def _one_member(
    path: Path, content: bytes, packed: int, change: Callable[[bytearray], object]
) -> Path:
    """Write a zip of 0.bin alone with this compression, changed by `change`."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", packed) as archive:
            archive.writestr("0.bin", content)
        whole = bytearray(file.getvalue())
    change(whole)
    path.write_bytes(whole)
    return path


def test_an_archive_that_is_damaged_or_packed_without_bound_is_reported(
    recipe: Recipe, tmp_path: Path
) -> None:
    token = _saved(torch.randn(128))

    def damage(whole: bytearray) -> None:
        whole[60:200] = b"\xff" * 140

    def lie(whole: bytearray) -> None:  # the directory at the end says that it is small
        offset = whole.index(b"PK\x01\x02") + 24
        whole[offset : offset + 4] = (100).to_bytes(4, "little")

    odd = [
        (token, zipfile.ZIP_DEFLATED, damage),
        (token, zipfile.ZIP_BZIP2, lambda whole: None),
        (token, zipfile.ZIP_LZMA, lambda whole: None),
        (b"\0" * 120_000_000, zipfile.ZIP_DEFLATED, lie),
    ]
    for number, (content, packed, change) in enumerate(odd):
        archive = _one_member(tmp_path / f"{number}.zip", content, packed, change)
        tracemalloc.start()
        try:
            with pytest.raises(CounterfoilError, match=r"0\.bin"):
                import_tokens(recipe, archive, tmp_path / "out")
            assert tracemalloc.get_traced_memory()[1] < 100_000_000
        finally:
            tracemalloc.stop()


def test_no_archive_and_no_folder(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no"):
        import_tokens(recipe, tmp_path / "gone.zip", tmp_path / "out")
    (tmp_path / "text.zip").write_text("not a zip")
    with pytest.raises(UserError, match="not a readable zip"):
        import_tokens(recipe, tmp_path / "text.zip", tmp_path / "out")


# Class tokens load into the CLIP encoders of the families that say so, and into no other generator.


TAKERS = {
    "SD 1": (miniature.stable_diffusion_1, 1), "XL": (miniature.stable_diffusion_xl, 2), "FLUX.1": (modern.flux, 1),
    "unCLIP": (miniature.stable_unclip, 1),
}  # fmt: skip


def _vectors_of_family(tokenizer: Any, encoder: Any, words: str) -> torch.Tensor:
    ids = tokenizer(words, add_special_tokens=False)["input_ids"]
    return encoder.get_input_embeddings().weight[ids].detach().clone()


@pytest.mark.parametrize("name", TAKERS)
def test_tokens_of_the_words_encode_as_the_words_in_every_family(
    name: str, tmp_path: Path, make_recipe: MakeRecipe
) -> None:
    make, encoders = TAKERS[name]
    torch.manual_seed(1)
    make().save_pretrained(tmp_path / "model")
    model = f"local-dir:{tmp_path / 'model'}"
    assert pipeline_family(model)[0].takes_tokens
    assert text_widths(model, None) == [miniature.WIDTH] * encoders
    assert len(load_tokenizers(model, None)) == encoders
    by_name = load_pipeline(model, dtype="float32")
    sides = [(by_name.tokenizer, by_name.text_encoder)]
    sides += [(by_name.tokenizer_2, by_name.text_encoder_2)] if encoders == 2 else []
    tokens = {
        placeholder: tuple(_vectors_of_family(*side, words) for side in sides)
        for placeholder, words in (("<the-bag>", "bag"), ("<the-boot>", "ankle boot"))
    }
    assert len(tokens["<the-boot>"][0]) == 2
    by_token = load_pipeline(model, dtype="float32", tokens=tokens)
    recipe = make_recipe("generator.guidance=1")
    # T5 reads the letters of a placeholder: it has no learned vectors.
    outputs = ["pooled_prompt_embeds"] if name == "FLUX.1" else ["prompt_embeds"]
    for words, placeholder in (("bag", "<the-bag>"), ("ankle boot", "<the-boot>")):
        expected = Renderer(by_name, recipe).encode(f"a photo of a {words} in the snow")
        encoded = Renderer(by_token, recipe).encode(f"a photo of a {placeholder} in the snow")
        unknown = Renderer(by_name, recipe).encode(f"a photo of a {placeholder} in the snow")
        for output in outputs:
            assert torch.equal(encoded[output], expected[output]), words
            assert not torch.equal(encoded[output], unknown[output])
        if name == "FLUX.1":
            assert torch.equal(encoded["prompt_embeds"], unknown["prompt_embeds"])


def test_a_generator_without_is_reported_before_its_weights_load(tmp_path: Path) -> None:
    takers = {type(make()).__name__ for make, _ in TAKERS.values()}
    taking = {name for family in FAMILIES if family.takes_tokens for name in family.pipelines}
    assert takers <= taking
    assert taking.isdisjoint(type(make()).__name__ for make in (modern.sana, miniature.kandinsky))
    modern.sana().save_pretrained(tmp_path / "model")
    for file in (tmp_path / "model").rglob("*.safetensors"):
        file.unlink()
    with pytest.raises(UserError, match="cannot load class tokens"):
        load_pipeline(
            f"local-dir:{tmp_path / 'model'}", tokens={"<bag>": (torch.zeros(1, miniature.WIDTH),)}
        )


@pytest.mark.parametrize(
    ("make", "hint"), [(modern.flux, "learned for its CLIP"), (modern.sana, "`tokens: null`")]
)
def test_learning_with_another_architecture_is_reported_before_anything_is_learned(
    make: Callable[[], Any], hint: str, tmp_path: Path, make_recipe: MakeRecipe
) -> None:
    make().save_pretrained(tmp_path / "model")
    recipe = make_recipe(
        f"generator.model=local-dir:{tmp_path / 'model'}", "tokens={path: null, learn: {steps: 3}}",
        "source.classes=[{id: bag, name: bag, source_label: 8}]",
    )  # fmt: skip
    with pytest.raises(UserError, match="for which class tokens cannot be learned") as caught:
        learn_tokens(recipe, tmp_path / "tokens", device="cpu")
    assert hint in str(caught.value)
