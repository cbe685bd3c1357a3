"""Load a pipeline of diffusers by name, full size or the lab's: judged by its configurations before anything loads.

One of the families that are driven, its parts of known libraries and sane sizes, on its device or waiting in memory.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from counterfoil.errors import UserError
from counterfoil.models.config_files import (
    LARGEST_NUMBER,
    LISTS_OF_WORDS,
    Foreign,
    declared,
    expected,
    folder_problems,
    followed_problems,
    is_integer,
    number_problems,
    read_config,
    refuse_problems,
    shown,
)
from counterfoil.models.devices import Quantization, compile_blocks, lay_out, resolve_dtype
from counterfoil.models.generators import Family, family_of, known_families, why_no_family
from counterfoil.models.loading_errors import loading
from counterfoil.models.names import HUB, local_folder, refuse_shadowed
from counterfoil.models.transformers_files import never_ask_for_code
from counterfoil.models.weights_files import align_weights
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_inputs import LARGEST_SIDE

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe.schema_inputs import Generator


def load_pipeline(
    name: str,
    *,
    revision: str | None = None,
    scheduler: str | None = None,
    dtype: str = "auto",
    device: str = "cpu",
    tokens: Mapping[str, tuple[torch.Tensor, ...]] | None = None,
    quantize: str | None = None,
    offload: str = "none",
    compiled: bool = False,
) -> Any:
    """Load a diffusers pipeline on `device`, every part in one number type, quiet, without a safety filter.

    `tokens` maps placeholder → vectors [n, width] for each text encoder; they are added to the vocabulary together.
    `quantize`, `offload` and `compiled` are a recipe's: weights in fewer bits, weights that wait in memory, and blocks
    that the model repeats compiled.
    The filter is left out because it would replace pictures by black ones; screening is CLIP's.
    Raises UserError for a name or scheduler that does not exist, RunFailure when it cannot be fetched or read.
    """
    import diffusers
    import torch

    if scheduler is not None:
        check_scheduler(scheduler)
    with loading(name):
        folder = _check_pipeline(name, revision)
        family = family_in(folder, name)
    if tokens and not family.takes_tokens:
        raise UserError(
            f"tokens: '{name}' is {family.name}, which cannot load class tokens",
            "Prompt by class name, with `tokens: null`.",
        )
    number_type = resolve_dtype(dtype, device)
    options: dict[str, Any] = {"dtype": number_type, "use_safetensors": True, "trust_remote_code": False}
    in_fewer_bits = Quantization.of(quantize, read_config(folder / INDEX, name), number_type, device)
    with loading(name), quiet_diffusers(), in_fewer_bits.loading(options):
        # Of those that draw from embeddings diffusers opens none as text to image, or others than the index names; and
        # of many that draw from plain prompts it knows no task.
        opener = diffusers.DiffusionPipeline if family.as_named else diffusers.AutoPipelineForText2Image
        pipeline: Any = opener.from_pretrained(_source(name), revision=revision, **options)
        # What no image needs: a safety filter, and encoders of images where none is given.
        parts = ["safety_checker", "feature_extractor", *([] if family.takes == "every" else ["image_encoder"])]
        if family.prompts == "plain":
            parts = [part for part in parts if part in type(pipeline)._optional_components]
        for part in parts:
            if getattr(pipeline, part, None) is not None:
                pipeline.register_modules(**{part: None})
        if "requires_safety_checker" in pipeline.config:
            pipeline.register_to_config(requires_safety_checker=False)
    if scheduler is not None:
        kind = getattr(diffusers, f"{scheduler.removesuffix('Scheduler')}Scheduler")
        pipeline.scheduler = kind.from_config(pipeline.scheduler.config)
    if tokens:
        _add_tokens(name, pipeline, tokens)
    pipeline.set_progress_bar_config(disable=True)
    with loading(name):
        for part_name, part in pipeline.components.items():
            if isinstance(part, torch.nn.Module):
                part.eval().requires_grad_(False)
                if part_name in in_fewer_bits.parts:
                    continue
                if part.dtype != number_type:
                    part.to(number_type)
                align_weights(part)
        lay_out(pipeline, device)
        pipeline = placed(pipeline, device, offload)
    if compiled:
        compile_blocks(pipeline, name, device)
    return pipeline


def generator_pipeline(
    generator: Generator,
    device: str,
    revision: str | None,
    tokens: Mapping[str, tuple[torch.Tensor, ...]] | None,
    name: str | None = None,
) -> Any:
    """The pipeline of a recipe's generator at a pinned revision, by the recipe's settings; `name` is where it is now.

    Raises as `load_pipeline`.
    """
    return load_pipeline(
        name or generator.model,
        revision=revision or generator.revision,
        scheduler=generator.scheduler,
        dtype=generator.dtype,
        device=device,
        tokens=tokens,
        quantize=generator.quantize,
        offload=generator.offload,
        compiled=generator.compile,
    )


def pipeline_family(name: str, revision: str | None = None) -> tuple[Family, Any]:
    """The family that drives a pipeline, and the width of the image embeddings that its model takes, where it does.

    From the configurations alone. Raises as `load_pipeline`.
    """
    with loading(name):
        folder = _check_pipeline(name, revision)
        family = family_in(folder, name)
        width = None if family.width is None else family.width(read_config(folder / "unet" / "config.json", name))
    if family.takes == "every" and not is_integer(width, 1, LARGEST_NUMBER):
        raise UserError(f"model '{name}': unet/config.json does not say which image embeddings it takes")
    return family, width


def configurations(name: str, revision: str | None = None) -> Path:
    """The folder of a pipeline's configurations, fetched where they are not here. Raises as `load_pipeline`."""
    with loading(name):
        return _check_pipeline(name, revision)


def index_here(name: str, revision: str | None = None) -> dict[str, Any] | None:
    """A pipeline's index, of part → [library, class], where it is on this machine; nothing is fetched or imported.

    UserError for a folder that is not there or holds no pipeline, and for a name that the Hub cannot have.
    """
    from huggingface_hub import try_to_load_from_cache

    folder = local_folder(name)
    if folder is not None:
        return read_config(Path(_source(name)) / INDEX, name)
    with loading(name):
        found = try_to_load_from_cache(_source(name), INDEX, revision=revision)
    return read_config(Path(found), name) if isinstance(found, str) else None


def load_tokenizers(name: str, revision: str | None = None) -> list[Any]:
    """The one or two CLIP tokenizers of a pipeline, without its weights. Raises as `load_pipeline`."""
    from transformers import CLIPTokenizer

    with loading(name):
        parts = _parts(name, revision, "tokenizer")
        return [
            CLIPTokenizer.from_pretrained(_source(name), subfolder=part, revision=revision or "main") for part in parts
        ]


def text_widths(name: str, revision: str | None = None) -> list[int]:
    """The width of each CLIP text encoder's embeddings, from the configurations alone. Raises as `load_pipeline`."""
    from transformers import CLIPTextConfig

    with loading(name):
        parts = _parts(name, revision, "text_encoder")
        configs = [
            CLIPTextConfig.from_pretrained(_source(name), subfolder=part, revision=revision or "main") for part in parts
        ]
    return [config.hidden_size for config in configs]


def _source(name: str) -> str:
    """The folder or Hub id that a name means. UserError for a folder that holds no pipeline."""
    folder = local_folder(name)
    if folder is None:
        repository = name.removeprefix(HUB)
        refuse_shadowed(repository, "model")
        return repository
    if not (folder / INDEX).is_file():
        raise UserError(f"model '{name}': {folder} has no {INDEX}, so it is not a diffusers pipeline")
    return str(folder)


def _check_pipeline(name: str, revision: str | None) -> Path:
    """Judge a pipeline by its configurations, before its weights are fetched or read; the folder that these are in."""
    folder = local_folder(name)
    if folder is None:
        from huggingface_hub import snapshot_download

        folder = Path(
            snapshot_download(
                _source(name),
                revision=revision,
                allow_patterns=[INDEX, "*/*.json"],
                ignore_patterns=[f"*/{words}" for words in LISTS_OF_WORDS],
            )
        )
    elif not (folder / INDEX).is_file():
        _source(name)  # says so
    never_ask_for_code()
    refuse_odd_pipeline(name, folder)
    return folder


def _parts(name: str, revision: str | None, part: str) -> list[str]:
    """`part` and `part_2`, as far as the pipeline's index names them as CLIP's: only into those class tokens load."""
    parts = read_config(_check_pipeline(name, revision) / INDEX, name)
    classes = {place: (parts.get(place) or [None, None])[1] for place in (part, f"{part}_2")}
    return [place for place, own in classes.items() if isinstance(own, str) and own.startswith("CLIP")]


# Where neither a model nor its pipeline says it: what all that were made since 2024 are trained on.
_USUAL_SIDE = 1024


def native_size(pipeline: Any) -> int:
    """The side in pixels that a pipeline renders by default."""
    model = getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)
    size = None if model is None else model.config.get("sample_size")
    size = getattr(pipeline, "default_sample_size", None) if size is None else size
    if size is None:
        return _USUAL_SIDE
    side = size if isinstance(size, int) else size[0]
    # Without an autoencoder a model draws pixels.
    scale = getattr(pipeline, "movq_scale_factor", None) or getattr(pipeline, "vae_scale_factor", 1)
    return int(side * scale)


def check_scheduler(name: str) -> None:
    """UserError, with the nearest name, for a scheduler that diffusers does not have. Loads no model."""
    import diffusers

    known = [n.removesuffix("Scheduler") for n in dir(diffusers.schedulers) if n.endswith("Scheduler")]
    if name.removesuffix("Scheduler") not in known:
        raise UserError(f"generator.scheduler: diffusers has no '{name[:80]}'{did_you_mean(name, known)}")


_OTHER_ENCODER = (
    "These tokens were learned for another text encoder: name or learn some for this one, or prompt by class name with"
    " `tokens: null`."
)


def _add_tokens(name: str, pipeline: Any, tokens: Mapping[str, tuple[torch.Tensor, ...]]) -> None:
    """Add all placeholders at once (one by one resizes the matrix each time: minutes for a thousand)."""
    sides = [
        (getattr(pipeline, f"tokenizer{suffix}"), encoder)
        for suffix in ("", "_2")
        if type(encoder := getattr(pipeline, f"text_encoder{suffix}", None)).__name__.startswith("CLIP")
    ]
    wrong = [problem for token, vectors in tokens.items() for problem in _misfits(name, token, vectors, sides)]
    if wrong:
        raise UserError(wrong, _OTHER_ENCODER)
    taken = [
        f"class token {token!r} is already in the vocabulary of {name}"
        for tokenizer, _ in sides
        for words in [tokenizer.get_vocab()]
        for token in tokens
        if token in words
    ]
    if taken:
        raise UserError(list(dict.fromkeys(taken)), "Rename the tensor in the token's file, such as '<bag>'.")
    placeholders = list(tokens)
    for place, (tokenizer, encoder) in enumerate(sides):
        states = [{token: tokens[token][place]} for token in placeholders]
        pipeline.load_textual_inversion(states, token=placeholders, tokenizer=tokenizer, text_encoder=encoder)
    # diffusers looks every prompt up in the whole list of added tokens, which takes longer than encoding it.
    words = {
        token: " ".join([token, *(f"{token}_{number}" for number in range(1, len(tokens[token][0])))])
        for token in sorted(tokens, key=len, reverse=True)
        if len(tokens[token][0]) > 1
    }
    own = [tokenizer for tokenizer, _ in sides]
    pipeline.maybe_convert_prompt = lambda prompt, tokenizer: _expanded(
        prompt, words if any(tokenizer is each for each in own) else {}
    )


def _expanded(prompt: Any, words: Mapping[str, str]) -> Any:
    """A prompt, or each of a list, with the further tokens of a placeholder that has several vectors."""
    if not isinstance(prompt, str):
        return [_expanded(one, words) for one in prompt]
    for token, several in words.items():
        if token in prompt:
            return prompt.replace(token, several)
    return prompt


def _misfits(name: str, token: str, vectors: tuple[torch.Tensor, ...], sides: list[tuple[Any, Any]]) -> list[str]:
    """Why a token does not fit a pipeline's text encoders."""
    if len(vectors) != len(sides):
        return [f"class token {token}: vectors for {len(vectors)} text encoders, expected {len(sides)} by {name}"]
    widths = [encoder.get_input_embeddings().weight.shape[1] for _, encoder in sides]
    return [
        f"class token {token}: width {own.shape[-1]}, expected {width} by {name}"
        for own, width in zip(vectors, widths, strict=True)
        if own.shape[-1] != width
    ]


@contextlib.contextmanager
def quiet_diffusers() -> Iterator[None]:
    """No loading bars and no advice on the terminal; our own messages say what matters."""
    import diffusers
    import transformers

    level = diffusers.utils.logging.get_verbosity()
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        diffusers.utils.logging.set_verbosity(level)


INDEX = "model_index.json"
# Where the parts of pipelines come from. Some are of a pipeline's own module of diffusers, as its safety checker is.
_LIBRARIES = ("diffusers", "transformers")
# They name code or kernels of the author's, or of another repository.
_NOT_FOLLOWED = ("auto_map", "attn_implementation", "_attn_implementation", "quantization_config")
_MOST_TIMES = 100_000  # published schedulers have a thousand
# A text encoder's layers, as CLIP and language models name them, and as T5 does.
_LAYER = re.compile(r"\.(?:layers|block)\.(\d+)\.")
_OF_IMAGES = re.compile(r"vis")  # a language model that also sees names those layers apart
# They are taken out again after loading, and older names of theirs are gone from transformers.
_NOT_KEPT = ("safety_checker", "feature_extractor", "image_encoder")
_SCALE = 8  # pixels a latent; the usual autoencoders' scale


_Side = Annotated[int, Field(ge=1, le=LARGEST_SIDE // _SCALE)]
_DRAWN = expected(f"a whole number of at most {LARGEST_SIDE // _SCALE}, which draws {LARGEST_SIDE} pixels a side")


class UnetDocument(Foreign):
    """What a UNet's config.json says that decides how large pictures are."""

    sample_size: Annotated[_Side | list[_Side], _DRAWN]


class TransformerDocument(Foreign):
    """The same of a transformer; many draw any side."""

    sample_size: Annotated[_Side | list[_Side] | None, _DRAWN] = None


class SchedulerDocument(Foreign):
    """What a scheduler's configuration says of the times that its model learned."""

    num_train_timesteps: Annotated[int, Field(ge=1, le=_MOST_TIMES), expected(f"1 to {_MOST_TIMES:,}")] = 1000


_DECLARED: Mapping[str, type[Foreign]] = {"unet": UnetDocument, "transformer": TransformerDocument}


def refuse_odd_pipeline(model: str, folder: Path) -> None:
    """UserError, with every problem, for parts that are not of diffusers or transformers, or of absurd sizes.

    `folder` holds the index and the parts' configurations.
    """
    index = read_config(folder / INDEX, model)
    problems = [*_part_problems(index), *(f"{INDEX}: {problem}" for problem in followed_problems(index, _NOT_FOLLOWED))]
    for part in [name for name, value in index.items() if isinstance(value, list) and name.isidentifier()]:
        if (folder / part / "adapter_config.json").exists():  # with peft, transformers loads the model that it names
            problems.append(f"{part}/adapter_config.json is not followed; name LoRA weights as generator.lora")
        if not problems:
            found = folder_problems(folder / part, _NOT_FOLLOWED)
            problems += [f"{part}/{problem}" for problem in found]
        file = folder / part / "config.json"
        if not problems and file.exists():
            config = read_config(file, model)
            problems += number_problems(config, f"{part}/config.json")
            if part in _DECLARED:
                problems += declared(_DECLARED[part], config, f"{part}/config.json: ")[1]
            problems += _depth_problems(part, config, file.parent)
    schedule = folder / "scheduler" / "scheduler_config.json"
    if not problems and schedule.exists():
        config = read_config(schedule, model)
        problems += number_problems(config, "scheduler")
        problems += declared(SchedulerDocument, config, "scheduler: ")[1]
    refuse_problems(model, problems)


def family_in(folder: Path, model: str) -> Family:
    """The family of a pipeline that `refuse_odd_pipeline` has let pass."""
    family = family_of(read_config(folder / INDEX, model)["_class_name"])
    assert family is not None
    return family


def _part_problems(index: Mapping[str, Any]) -> Iterator[str]:
    name = index.get("_class_name")
    if not isinstance(name, str) or not name.isidentifier():
        yield f"{INDEX} names the pipeline {name!r:.80}, expected a class of diffusers"
    elif (why := why_no_family(name)) is not None:
        yield f"{INDEX} names the pipeline {name[:80]}, {why}; it is not supported, expected one of {known_families()}"
    for part, value in index.items():
        if part.startswith("_") or not isinstance(value, list):
            continue
        if len(value) != 2 or not all(each is None or isinstance(each, str) for each in value):
            yield f"{INDEX} gives '{part[:40]}' as {value!r:.80}, expected [library, class]"
            continue
        library, class_name = value
        if library is None:
            continue
        if class_name is None or not class_name.isidentifier() or (module := _library(library)) is None:
            yield f"{INDEX} takes '{part[:40]}' from {library!r:.80}, expected {' or '.join(_LIBRARIES)}"
        elif part not in _NOT_KEPT and not inspect.isclass(getattr(module, class_name, None)):
            near = did_you_mean(class_name, [known for known in dir(module) if known[:1].isupper()])
            yield f"{INDEX} takes '{part[:40]}' to be {class_name[:80]}, which {library} does not have{near}"


def _library(name: str) -> Any:
    """The library of a part, or the module of one of diffusers' own pipelines; None for any other."""
    if name in _LIBRARIES:
        return importlib.import_module(name)
    import diffusers

    own = Path(diffusers.__file__).parent / "pipelines" / name
    return getattr(diffusers.pipelines, name, None) if name.isidentifier() and own.is_dir() else None


def _depth_problems(part: str, config: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Layers that a text encoder's weights do not hold would be made up; transformers does not say so."""
    files = [file for file in folder.glob("*.safetensors") if file.is_file()]
    if not part.startswith("text_encoder") or not files:
        return
    from safetensors import SafetensorError, safe_open

    held: set[int] = set()
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                keys = [key for key in file.keys() if not _OF_IMAGES.search(key)]  # noqa: SIM118
                held |= {int(found[1]) for key in keys if (found := _LAYER.search(key))}
        except (SafetensorError, OSError):
            return  # loading says so
    inner = config.get("text_config")
    places = [config, inner] if isinstance(inner, Mapping) else [config]
    names = ("num_hidden_layers", "num_layers")
    key, layers = next(((name, place[name]) for name in names for place in places if name in place), (names[0], None))
    if held and layers != len(held):
        yield f"{part}/config.json: {key} is {shown(layers)}, and its weights have {len(held)}"


def placed(pipeline: Any, device: str, offload: str = "none") -> Any:
    """The pipeline ready to compute on `device`, its weights there or waiting in memory.

    On a CPU they are in memory anyway, so that nothing is done. UserError for a pipeline that does not say in which
    order its parts run.
    """
    if offload == "none" or device.startswith("cpu"):
        return pipeline.to(device)
    return wait_in_memory(pipeline, device, offload)


def wait_in_memory(pipeline: Any, device: str, offload: str) -> Any:
    """The pipeline with its parts (`model`) or layers (`sequential`) brought to `device` when they are called.

    It is never moved as a whole: that would bring all of them at once. Raises as `placed`.
    """
    if offload == "model":
        if pipeline.model_cpu_offload_seq is None:
            raise UserError(
                f"generator.offload: {type(pipeline).__name__} does not say in which order its parts run, so"
                f" they cannot be moved part by part; expected sequential or none"
            )
        pipeline.enable_model_cpu_offload(device=device)
    else:
        pipeline.enable_sequential_cpu_offload(device=device)
    return pipeline


@dataclass(frozen=True, slots=True)
class PromptLength:
    """The tokenizers of a pipeline that reads its prompts by CLIP alone."""

    tokenizers: tuple[Any, ...]

    @property
    def most(self) -> int:
        """The most tokens, with those of the beginning and the end, that each of them leaves."""
        return min(tokenizer.model_max_length for tokenizer in self.tokenizers)

    def fits(self, prompts: Sequence[str]) -> bool:
        """Whether every prompt is read to its end."""
        return all(
            len(ids) <= tokenizer.model_max_length
            for tokenizer in self.tokenizers
            for ids in tokenizer(list(prompts), truncation=False, verbose=False)["input_ids"]
        )


def prompt_length(name: str, revision: str | None) -> PromptLength | None:
    """What a pipeline reads of a prompt, by its tokenizers and without weights; None where not CLIP alone reads it.

    Others, such as T5, read hundreds of tokens. Raises as `load_tokenizers`.
    """
    index = read_config(configurations(name, revision) / INDEX, name)
    parts = [value for part, value in index.items() if part.startswith("text_encoder") and value[1] is not None]
    if not parts or not all(str(value[1]).startswith("CLIP") for value in parts):
        return None
    return PromptLength(tuple(load_tokenizers(name, revision)))
