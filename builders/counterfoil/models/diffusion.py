"""Check the configurations of a diffusers pipeline, and load the pipeline by name, such as a
generator of the lab."""

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

from counterfoil.errors import UserError, did_you_mean
from counterfoil.models.arithmetic import channels_last
from counterfoil.models.compiling import compile_blocks
from counterfoil.models.config_files import (
    LARGEST_NUMBER,
    LISTS_OF_WORDS,
    Foreign,
    declared_values,
    expected_words,
    folder_problems,
    followed_problems,
    is_integer,
    number_problems,
    read_config,
    refuse_problems,
    shown_setting,
)
from counterfoil.models.devices import resolve_dtype
from counterfoil.models.generators import Family, family_of, known_families, why_no_family
from counterfoil.models.loading_errors import explain_loading
from counterfoil.models.messages import message, refusal
from counterfoil.models.names import HUB, local_folder, refuse_shadowed
from counterfoil.models.quantizing import Quantization
from counterfoil.models.transformers_files import never_ask_for_code
from counterfoil.models.weights_files import align_weights
from counterfoil.recipe.section import LARGEST_SIDE

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe.kinds import DrawingKind


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
    """Load a diffusers pipeline on `device`, with all parts in one number type and without the
    safety filter.

    tokens: class tokens to add to the vocabulary, as placeholder → one array of vectors [n, width]
    for each text encoder. `quantize`, `offload` and `compiled` are settings of a recipe. UserError
    if the pipeline or the scheduler does not exist; RunFailure if the pipeline cannot be fetched or
    read.
    """
    import diffusers
    import torch

    if scheduler is not None:
        check_scheduler(scheduler)
    folder = fetch_configurations(name, revision)
    family = family_in(folder, name)
    if tokens and not family.takes_tokens:
        raise refusal("unfit-model.tokens", "tokens", name, family=family.name)
    number_type = resolve_dtype(dtype, device)
    options: dict[str, Any] = {
        "dtype": number_type,
        "use_safetensors": True,
        "trust_remote_code": False,
    }
    quantization = Quantization.of(quantize, read_config(folder / INDEX, name), number_type, device)
    with explain_loading(name), quiet_diffusers(), quantization.loading(options):
        # For the families with `as_named`, AutoPipelineForText2Image would open another class, or
        # fail.
        opener = (
            diffusers.DiffusionPipeline if family.as_named else diffusers.AutoPipelineForText2Image
        )
        pipeline: Any = opener.from_pretrained(_source(name), revision=revision, **options)
        # Remove the safety filter, and the image encoders, because no call of the pipeline passes
        # an image to encode.
        parts = ["safety_checker", "feature_extractor"]
        if family.takes != "every":
            parts.append("image_encoder")
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
    with explain_loading(name):
        for part_name, part in pipeline.components.items():
            if isinstance(part, torch.nn.Module):
                part.eval().requires_grad_(False)
                if part_name in quantization.parts:
                    continue
                if part.dtype != number_type:
                    part.to(number_type)
                align_weights(part)
        if device.startswith("cuda"):
            channels_last(pipeline)
        pipeline = place_pipeline(pipeline, device, offload)
    if compiled:
        compile_blocks(pipeline, name, device)
    return pipeline


def generator_pipeline(
    generator: DrawingKind,
    device: str,
    revision: str | None,
    tokens: Mapping[str, tuple[torch.Tensor, ...]] | None,
) -> Any:
    """Load the pipeline of a recipe's generator. Raises the same errors as `load_pipeline`."""
    return load_pipeline(
        generator.model,
        revision=revision or generator.revision,
        scheduler=generator.scheduler,
        dtype=generator.dtype,
        device=device,
        tokens=tokens,
        quantize=generator.quantize,
        offload=generator.offload,
        compiled=generator.get("compile", False),
    )


def pipeline_family(name: str, revision: str | None = None) -> tuple[Family, Any]:
    """Return a pipeline's family, and the width of the image embeddings that the pipeline takes, or
    None.

    Both come from the configurations of the pipeline.
    """
    folder = fetch_configurations(name, revision)
    family = family_in(folder, name)
    width = None
    if family.width is not None:
        config = read_config(folder / "unet" / "config.json", name)
        width = family.width(config)
    if family.takes == "every" and not is_integer(width, 1, LARGEST_NUMBER):
        where = f"model {name!r}"
        raise refusal("invalid-config.embeddings", where)
    return family, width


def index_here(name: str, revision: str | None) -> dict[str, Any] | None:
    """Read a pipeline's index, which maps part → [library, class]. Return None if the index is not
    on this machine.

    The function fetches no file, and does not import diffusers.
    """
    from huggingface_hub import try_to_load_from_cache

    folder = local_folder(name)
    if folder is not None:
        return read_config(Path(_source(name)) / INDEX, name)
    with explain_loading(name):
        file = try_to_load_from_cache(_source(name), INDEX, revision=revision)
    return read_config(Path(file), name) if isinstance(file, str) else None


def load_tokenizers(name: str, revision: str | None = None) -> list[Any]:
    from transformers import CLIPTokenizer

    return _clip_parts(name, revision, "tokenizer", CLIPTokenizer)


def text_widths(name: str, revision: str | None = None) -> list[int]:
    from transformers import CLIPTextConfig

    return [
        config.hidden_size for config in _clip_parts(name, revision, "text_encoder", CLIPTextConfig)
    ]


def _source(name: str) -> str:
    """Return the folder or the Hub id that a model name refers to. UserError if the folder has no
    pipeline."""
    folder = local_folder(name)
    if folder is None:
        repository = name.removeprefix(HUB)
        refuse_shadowed(repository, "model")
        return repository
    if not (folder / INDEX).is_file():
        where = f"model {name!r}"
        raise refusal(
            "missing-model-file.config", where, folder, INDEX, what="a diffusers pipeline"
        )
    return str(folder)


def fetch_configurations(name: str, revision: str | None) -> Path:
    """Fetch and check a pipeline's configurations. Return their folder. Raises the same errors as
    `load_pipeline`."""
    from huggingface_hub import snapshot_download

    with explain_loading(name):
        source = _source(name)
        if local_folder(name) is None:
            words = [f"*/{file}" for file in LISTS_OF_WORDS]
            wanted = [INDEX, "*/*.json"]
            source = snapshot_download(
                source, revision=revision, allow_patterns=wanted, ignore_patterns=words
            )
        never_ask_for_code()
        refuse_odd_pipeline(name, Path(source))
        return Path(source)


def _clip_parts(name: str, revision: str | None, part: str, kind: Any) -> list[Any]:
    """Read `part` and `part_2` if their class is one of CLIP's. Only CLIP's classes can load class
    tokens."""
    with explain_loading(name):
        index = read_config(fetch_configurations(name, revision) / INDEX, name)
        source = _source(name)
        parts = []
        for key in (part, f"{part}_2"):
            named = (index.get(key) or [None, None])[1]
            if isinstance(named, str) and named.startswith("CLIP"):
                loaded = kind.from_pretrained(source, subfolder=key, revision=revision or "main")
                parts.append(loaded)
        return parts


# The image side in pixels if neither the model nor the pipeline states one. All models without a
# stated size date from 2024 or later, and were trained on images of this side.
_USUAL_SIDE = 1024


def native_size(pipeline: Any) -> int:
    model = getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)
    size = None if model is None else model.config.get("sample_size")
    size = getattr(pipeline, "default_sample_size", None) if size is None else size
    if size is None:
        return _USUAL_SIDE
    side = size if isinstance(size, int) else size[0]
    # A model without an autoencoder draws pixels directly.
    scale = getattr(pipeline, "movq_scale_factor", None) or getattr(pipeline, "vae_scale_factor", 1)
    return int(side * scale)


def check_scheduler(name: str) -> None:
    """Raise UserError, with the most similar known name, if diffusers has no scheduler `name`. Load
    no model."""
    import diffusers

    known = [
        n.removesuffix("Scheduler") for n in dir(diffusers.schedulers) if n.endswith("Scheduler")
    ]
    if name.removesuffix("Scheduler") not in known:
        raise refusal("unknown-model.scheduler", "generator.scheduler", name, known)


def _add_tokens(name: str, pipeline: Any, tokens: Mapping[str, tuple[torch.Tensor, ...]]) -> None:
    """Add all class tokens to the vocabulary in a single call for each text encoder.

    A separate call for each token would resize the embedding matrix each time: minutes for a
    thousand tokens.
    """
    encoders = []
    for suffix in ("", "_2"):
        encoder: Any = getattr(pipeline, f"text_encoder{suffix}", None)
        if type(encoder).__name__.startswith("CLIP"):
            tokenizer = getattr(pipeline, f"tokenizer{suffix}")
            encoders.append((tokenizer, encoder))
    widths = [encoder.get_input_embeddings().weight.shape[1] for _, encoder in encoders]
    problems = []
    for token, vectors in tokens.items():
        if len(vectors) != len(encoders):
            problems.append(
                message(
                    "invalid-adapter.vectors",
                    f"class token {token}",
                    len(vectors),
                    len(encoders),
                    model=name,
                )
            )
            continue
        for vector, width in zip(vectors, widths, strict=True):
            given = vector.shape[-1]
            if given != width:
                problems.append(
                    message(
                        "invalid-adapter.width", f"class token {token}", given, width, model=name
                    )
                )
    if problems:
        raise UserError(problems)
    for tokenizer, _ in encoders:
        vocabulary = tokenizer.get_vocab()
        for token in tokens:
            problem = message("invalid-adapter.taken", f"class token {token!r}", name)
            if token in vocabulary and problem not in problems:
                problems.append(problem)
    if problems:
        raise UserError(problems)
    placeholders = list(tokens)
    for index, (tokenizer, encoder) in enumerate(encoders):
        states = [{token: tokens[token][index]} for token in placeholders]
        pipeline.load_textual_inversion(
            states, token=placeholders, tokenizer=tokenizer, text_encoder=encoder
        )
    # For every prompt, diffusers' own method searches all added tokens, which takes longer than
    # encoding the prompt.
    words: dict[str, str] = {}
    for token in sorted(tokens, key=len, reverse=True):
        vectors = len(tokens[token][0])
        if vectors > 1:
            words[token] = " ".join([token, *(f"{token}_{number}" for number in range(1, vectors))])

    def expand(prompt: Any, tokenizer: Any) -> Any:
        known = any(tokenizer is of_encoder for of_encoder, _ in encoders)
        return _expanded(prompt, words if known else {})

    pipeline.maybe_convert_prompt = expand


def _expanded(prompt: Any, words: Mapping[str, str]) -> Any:
    """Expand a placeholder that has several vectors, in one prompt or in each prompt of a list."""
    if not isinstance(prompt, str):
        return [_expanded(text, words) for text in prompt]
    for token, several in words.items():
        if token in prompt:
            return prompt.replace(token, several)
    return prompt


@contextlib.contextmanager
def quiet_diffusers() -> Iterator[None]:
    """Silence the progress bars and the advice of diffusers and transformers inside the block."""
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
# The parts of a pipeline come from these libraries. Some parts, such as safety checkers, come from
# a submodule of diffusers.pipelines.
_LIBRARIES = ("diffusers", "transformers")
# The value of such a key names code or a kernel, by the model's author or from another repository.
_NOT_FOLLOWED = ("auto_map", "attn_implementation", "_attn_implementation", "quantization_config")
_MOST_TIMES = 100_000  # published schedulers have a thousand
# Matches the number of a text encoder's layer: CLIP and language models write `.layers.N.`, T5
# writes `.block.N.`.
_LAYER = re.compile(r"\.(?:layers|block)\.(\d+)\.")
_OF_IMAGES = re.compile(r"vis")  # a language model's layers for images
# These parts are removed after loading. Their classes are not checked: transformers has dropped
# some old names.
_NOT_KEPT = ("safety_checker", "feature_extractor", "image_encoder")
_SCALE = 8  # pixels of an image side for each latent, for the usual autoencoders


_Side = Annotated[int, Field(ge=1, le=LARGEST_SIDE // _SCALE)]
_DRAWN = expected_words(
    f"a whole number of at most {LARGEST_SIDE // _SCALE}, which draws {LARGEST_SIDE} pixels a side"
)


class UnetDocument(Foreign):
    sample_size: Annotated[_Side | list[_Side], _DRAWN]


class TransformerDocument(Foreign):
    sample_size: Annotated[_Side | list[_Side] | None, _DRAWN] = None


class SchedulerDocument(Foreign):
    num_train_timesteps: Annotated[
        int, Field(ge=1, le=_MOST_TIMES), expected_words(f"1 to {_MOST_TIMES:,}")
    ] = 1000


_DECLARED: Mapping[str, type[Foreign]] = {"unet": UnetDocument, "transformer": TransformerDocument}


def refuse_odd_pipeline(model: str, folder: Path) -> None:
    """Raise UserError, with all problems, if parts come from other libraries or have absurd
    sizes."""
    index = read_config(folder / INDEX, model)
    problems = list(_part_problems(index))
    problems += [f"{INDEX}: {problem}" for problem in followed_problems(index, _NOT_FOLLOWED)]
    for part, listed in index.items():
        if not isinstance(listed, list) or not part.isidentifier():
            continue
        # With peft, transformers would load the model that this file names.
        if (folder / part / "adapter_config.json").exists():
            problems.append(
                f"{part}/adapter_config.json is not followed; name LoRA weights as generator.lora"
            )
        if not problems:
            problems += [
                f"{part}/{problem}" for problem in folder_problems(folder / part, _NOT_FOLLOWED)
            ]
        file = folder / part / "config.json"
        if not problems and file.exists():
            config = read_config(file, model)
            problems += number_problems(config, f"{part}/config.json")
            if part in _DECLARED:
                problems += declared_values(_DECLARED[part], config, f"{part}/config.json: ")[1]
            problems += _depth_problems(part, config, file.parent)
    schedule = folder / "scheduler" / "scheduler_config.json"
    if not problems and schedule.exists():
        config = read_config(schedule, model)
        problems += number_problems(config, "scheduler")
        problems += declared_values(SchedulerDocument, config, "scheduler: ")[1]
    refuse_problems(model, problems)


def family_in(folder: Path, model: str) -> Family:
    family = family_of(read_config(folder / INDEX, model)["_class_name"])
    assert family is not None
    return family


def _part_problems(index: Mapping[str, Any]) -> Iterator[str]:
    import diffusers

    pipelines = Path(diffusers.__file__).parent / "pipelines"
    name = index.get("_class_name")
    if not isinstance(name, str) or not name.isidentifier():
        yield f"{INDEX} names the pipeline {name!r:.80}, expected a class of diffusers"
    elif (why := why_no_family(name)) is not None:
        yield (
            f"{INDEX} names the pipeline {name[:80]}, {why}; it is not supported, expected one"
            " of"
            f" {known_families()}"
        )
    for part, value in index.items():
        if part.startswith("_") or not isinstance(value, list):
            continue
        if len(value) != 2 or not all(item is None or isinstance(item, str) for item in value):
            yield f"{INDEX} gives '{part[:40]}' as {value!r:.80}, expected [library, class]"
            continue
        library, class_name = value
        if library is None:
            continue
        module = None
        if library in _LIBRARIES:
            module = importlib.import_module(library)
        elif library.isidentifier() and (pipelines / library).is_dir():
            module = getattr(diffusers.pipelines, library, None)
        if class_name is None or not class_name.isidentifier() or module is None:
            yield (
                f"{INDEX} takes '{part[:40]}' from {library!r:.80}, expected"
                f" {' or '.join(_LIBRARIES)}"
            )
        elif part not in _NOT_KEPT and not inspect.isclass(getattr(module, class_name, None)):
            near = did_you_mean(class_name, [known for known in dir(module) if known[:1].isupper()])
            yield (
                f"{INDEX} takes '{part[:40]}' to be {class_name[:80]}, which {library} does not"
                f" have{near}"
            )


def _depth_problems(part: str, config: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield a line if a text encoder's configuration and weights differ in the number of layers.

    transformers would silently give random weights to a missing layer.
    """
    files = [file for file in folder.glob("*.safetensors") if file.is_file()]
    if not part.startswith("text_encoder") or not files:
        return
    from safetensors import SafetensorError, safe_open

    held: set[int] = set()
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                keys = file.keys()
        except (SafetensorError, OSError):
            return  # loading the pipeline reports the damaged file
        for name in keys:
            layer = _LAYER.search(name)
            if layer is not None and not _OF_IMAGES.search(name):
                held.add(int(layer[1]))
    stated = config
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        stated = {**inner, **config}
    key = "num_hidden_layers"
    if key not in stated and "num_layers" in stated:
        key = "num_layers"
    layers = stated.get(key)
    if held and layers != len(held):
        yield f"{part}/config.json: {key} is {shown_setting(layers)}, and its weights have {len(held)}"


def place_pipeline(pipeline: Any, device: str, offload: str) -> Any:
    """Move the pipeline's weights to `device`. With `offload`, weights for a GPU wait in the
    machine's memory."""
    if offload == "none" or device.startswith("cpu"):
        return pipeline.to(device)
    return wait_in_memory(pipeline, device, offload)


def wait_in_memory(pipeline: Any, device: str, offload: str) -> Any:
    """Keep the weights in memory, and move each part (`model`) or layer (`sequential`) to `device`
    when it is called.

    The pipeline is never moved as a whole. UserError if the pipeline does not support `model`.
    """
    if offload == "model":
        if pipeline.model_cpu_offload_seq is None:
            kind = type(pipeline).__name__
            raise refusal("unfit-model.offload", "generator.offload", kind)
        pipeline.enable_model_cpu_offload(device=device)
    else:
        pipeline.enable_sequential_cpu_offload(device=device)
    return pipeline


@dataclass(frozen=True, slots=True)
class PromptLength:
    tokenizers: tuple[Any, ...]

    @property
    def most(self) -> int:
        """The largest number of tokens that every tokenizer reads of a prompt, including start and
        end tokens."""
        return min(tokenizer.model_max_length for tokenizer in self.tokenizers)

    def fits(self, prompts: Sequence[str]) -> bool:
        return all(
            len(ids) <= tokenizer.model_max_length
            for tokenizer in self.tokenizers
            for ids in tokenizer(list(prompts), truncation=False, verbose=False)["input_ids"]
        )


def prompt_length(name: str, revision: str | None) -> PromptLength | None:
    """Load the tokenizers of a pipeline, without weights. Return None unless all its text encoders
    are CLIP's."""
    index = read_config(fetch_configurations(name, revision) / INDEX, name)
    kinds = []
    for part, value in index.items():
        if part.startswith("text_encoder") and value[1] is not None:
            kinds.append(str(value[1]))
    if not kinds or not all(kind.startswith("CLIP") for kind in kinds):
        return None
    return PromptLength(tuple(load_tokenizers(name, revision)))
