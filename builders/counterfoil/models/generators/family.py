"""Describe families of pipelines, and encode each prompt alone, in the form that its pipeline
takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.errors import ProblemLine
from counterfoil.models.messages import failure, message

if TYPE_CHECKING:
    import torch

# Image embeddings [batch, width], whether guidance draws without them too → arguments of the
# pipeline's call.
Conditioned = Callable[["torch.Tensor", bool], Mapping[str, Any]]
# One encoded prompt: argument of the call → tensor [1, …], or a list of one tensor.
Encoded = Mapping[str, Any]

# Arguments that a recipe's options may not name. Other keys of the recipe set them, or they would
# make images depend on other images of their batch.
RESERVED = frozenset({
    "prompt", "prompt_2", "prompt_3", "prompt_4", "negative_prompt", "negative_prompt_2", "negative_prompt_3",
    "negative_prompt_4", "prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds",
    "negative_pooled_prompt_embeds", "prompt_attention_mask", "negative_prompt_attention_mask", "prompt_embeds_mask",
    "negative_prompt_embeds_mask", "guidance_scale", "num_inference_steps", "timesteps", "sigmas", "height", "width",
    "generator", "latents", "num_images_per_prompt", "output_type", "return_dict", "image", "image_embeds",
    "negative_image_embeds", "ip_adapter_image", "ip_adapter_image_embeds", "negative_ip_adapter_image",
    "negative_ip_adapter_image_embeds", "callback", "callback_steps", "callback_on_step_end",
    "callback_on_step_end_tensor_inputs", "prior_callback_on_step_end", "prior_callback_on_step_end_tensor_inputs",
})  # fmt: skip


_NEGATIVE = "generator.negative_prompt"


def square(side: int) -> dict[str, Any]:
    return {"height": side, "width": side}


@dataclass(frozen=True, slots=True)
class Family:
    """Pipelines of diffusers that are driven alike. None means that the family does not support a
    feature."""

    name: str
    """The family's name for people."""
    pipelines: tuple[str, ...]
    """Their classes, as model_index.json names them."""
    outputs: tuple[str | None, ...] = ()
    """The names of `encode_prompt`'s outputs as arguments of a call, in order; None for an output
    that is no argument."""
    prompts: Literal["encoded", "plain", "none"] = "encoded"
    """`encoded`, each prompt is encoded once, and prompts are joined to batches; `plain`, one call
    per image, for pipelines whose batches may change an image; `none`, no prompts."""
    apart: bool = False
    """Whether a second call encodes the negative prompt; its outputs are named `negative_…`."""
    blank: str | None = None
    """The negative prompt if the recipe has none, or None for the call's default."""
    settled: Callable[[Encoded], Encoded] | None = None
    """Prepares the outputs of a prompt to be joined with other prompts."""
    company: Callable[[Encoded], Hashable] | None = None
    """Returns a key, by default the outputs' shapes. Prompts with equal keys may share a batch."""
    scale: str | None = "guidance_scale"
    """The call's argument for the recipe's guidance."""
    above: float = 1.0
    """Guidance above this number draws with the negative prompt too."""
    led_by: str | None = None
    """The option that is compared in place of the recipe's guidance."""
    takes_negative: bool = True
    """Whether there is a negative prompt."""
    interval: bool = False
    """Whether guidance can be limited to a part of the steps."""
    multiple: int = 8
    """A side in pixels must be a multiple of it."""
    least: int = 8
    """The smallest side in pixels of an image that it edits."""
    side: int | None = None
    """The only side in pixels that it draws, or None if a recipe chooses one."""
    sized: Callable[[int], Mapping[str, Any]] = square
    """A side in pixels → arguments of a call."""
    sets: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the recipe's options may override."""
    own_settings: tuple[str, ...] = ()
    """More arguments that options may not name."""
    output: Literal["pt", "np"] = "pt"
    """The call's output type."""
    levels: bool = False
    """Whether all prompts are encoded to one shape and mask, so that they can be interpolated."""
    takes_tokens: bool = False
    """Whether it loads class tokens."""
    learns_tokens: bool = False
    """Whether it learns them."""
    takes: Literal["adapter", "every"] | None = None
    """How it takes image embeddings: by an `adapter`, or in the model, which needs one for `every`
    sample."""
    conditioned: Conditioned | None = None
    """The call's arguments for image embeddings."""
    width: Callable[[Mapping[str, Any]], Any] | None = None
    """The UNet's configuration → the width of an embedding."""
    lora: Literal["unet", "transformer"] | None = None
    """The part that LoRA weights are added to."""
    pairs: Literal["unet", "joint", "flux"] | None = None
    """How an image attends to the keys and values of its base (`generate/steps.py`)."""
    edits: Literal["inversion", "pipeline"] | None = None
    """How a real image is drawn under another prompt: by `inversion` (`generate/rows.py`), or by a
    `pipeline` that takes images."""
    needs_image: bool = False
    """Whether it cannot draw without an image."""

    @property
    def prompted(self) -> bool:
        return self.prompts != "none"

    @property
    def as_named(self) -> bool:
        return self.takes == "every" or self.prompts == "plain"

    def guided(self, guidance: float, options: Mapping[str, Any]) -> bool:
        """Return whether guidance draws with the negative prompt too, by a recipe's guidance or
        options."""
        if self.led_by is not None:
            value = options.get(self.led_by)
            guidance = value if isinstance(value, int | float) else 0.0
        return guidance > self.above

    def negative_problem(
        self, negative: str | None, options: Mapping[str, Any]
    ) -> ProblemLine | None:
        """Return why a recipe's negative prompt would have no effect, or None."""
        if negative is None:
            return None
        if not self.takes_negative:
            return message("pipeline-setting.no-negative", _NEGATIVE, self.name)
        if self.led_by is not None and not self.guided(0.0, options):
            return message(
                "pipeline-setting.negative", _NEGATIVE, self.name, self.above, option=self.led_by
            )
        return None

    @property
    def reserved(self) -> frozenset[str]:
        scale = () if self.scale is None else (self.scale,)
        return RESERVED | {name for name in self.outputs if name} | {*self.own_settings, *scale}


def by_adapter(vectors: torch.Tensor, guided: bool) -> dict[str, Any]:
    """Return the call's argument for an IP-Adapter: an embedding for each image, after zeros if
    guided."""
    import torch

    embeddings = vectors[:, None]
    if guided:
        embeddings = torch.cat([torch.zeros_like(embeddings), embeddings])
    return {"ip_adapter_image_embeds": [embeddings]}


def encode_prompt(
    family: Family,
    pipeline: Any,
    prompt: str,
    negative: str | None,
    *,
    device: torch.device,
    guided: bool,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments of a call for one prompt, and for its negative prompt if `guided`.

    device: the device that the pipeline computes on, for which it would search all its modules.
    The encoder gets the `options` of the recipe that the pipeline's own call would pass to it.
    Raise RunFailure if the number of its outputs is not that of `family.outputs`.
    """
    call = inspect.signature(type(pipeline).__call__).parameters
    shared = [name for name in inspect.signature(pipeline.encode_prompt).parameters if name in call]
    settings = {
        name: options.get(name, call[name].default) for name in shared if name not in RESERVED
    }
    if negative is None:
        negative = family.blank
    if negative is None and "negative_prompt" in call:
        default = call["negative_prompt"].default
        negative = None if default is inspect.Parameter.empty else default
    settings |= {"device": device, "num_images_per_prompt": 1}
    guidance = {
        "negative_prompt": negative,
        "do_classifier_free_guidance": guided and not family.apart,
    }
    parts = _outputs(family, pipeline, settings | guidance | {"prompt": prompt})
    if guided and family.apart:
        outputs = _outputs(family, pipeline, settings | {"prompt": negative or ""})
        parts |= {f"negative_{name}": value for name, value in outputs.items()}
    return parts


def join_encoded(encoded: Sequence[Encoded]) -> dict[str, Any]:
    import torch

    batch: dict[str, Any] = {}
    for name, value in encoded[0].items():
        if isinstance(value, list):
            batch[name] = [tensor for prompt in encoded for tensor in prompt[name]]
        else:
            batch[name] = torch.cat([prompt[name] for prompt in encoded])
    return batch


# The interpolated arguments. Other arguments (masks, a negative prompt) must be equal.
_INTERPOLATED = ("prompt_embeds", "pooled_prompt_embeds")


def interpolated(base: Encoded, shifted: Encoded, scale: float) -> dict[str, Any]:
    """Return base + scale · (shifted − base), exact at 0 and 1. Raise ValueError if shapes or masks
    differ."""
    import torch

    for name, value in shifted.items():
        other = base.get(name)
        tensors = isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor)
        alike = tensors and value.shape == other.shape
        if not alike or not (name in _INTERPOLATED or torch.equal(value, other)):
            raise ValueError(f"two prompts differ in the form of their {name}")
    if scale in (0, 1):
        return dict(shifted if scale else base)
    between = dict(shifted)
    for name in _INTERPOLATED:
        if name in shifted:
            between[name] = base[name] + scale * (shifted[name] - base[name])
    return between


def batch_key(family: Family, encoded: Encoded) -> Hashable:
    """Return a key. Prompts with equal keys may share a batch, because they do not change each
    other's padding."""
    if family.company is not None:
        return family.company(encoded)
    key = []
    for name in sorted(encoded):  # the order of the arguments may differ between prompts
        key.append((name, *(tuple(part.shape) for part in _tensors(encoded[name]))))
    return tuple(key)


def bytes_of(encoded: Encoded) -> int:
    total = 0
    for value in encoded.values():
        for part in _tensors(value):
            total += part.numel() * part.element_size()
    return total


def _tensors(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def is_required(parameter: inspect.Parameter) -> bool:
    return (
        parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    )


def _outputs(family: Family, pipeline: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Call the encoder. Return its outputs by name, except absent ones and those that are no
    argument of a call."""
    known = inspect.signature(pipeline.encode_prompt).parameters
    required = [name for name, parameter in known.items() if is_required(parameter)]
    arguments: dict[str, Any] = dict.fromkeys(required)
    for name, value in given.items():
        if name in known:
            arguments[name] = value
    values = pipeline.encode_prompt(**arguments)
    if len(values) != len(family.outputs):
        outputs = ", ".join(name or "one that is not used" for name in family.outputs)
        where = f"{type(pipeline).__name__}.encode_prompt"
        raise failure(
            "missing-package.diffusers",
            where,
            len(values),
            len(family.outputs),
            outputs=outputs,
        )
    parts = {}
    for name, value in zip(family.outputs, values, strict=True):
        # Z-Image returns an empty list
        absent = value is None or (isinstance(value, list) and not value)
        if name and not absent:
            parts[name] = value
    if family.settled is None:
        return parts
    return dict(family.settled(parts))
