"""What a family of pipelines says of itself, and prompts as its pipelines take them: each encoded alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.errors import RunFailure

if TYPE_CHECKING:
    import torch

# What a call of a pipeline takes for image embeddings [batch, width], and whether guidance also draws without them.
Conditioned = Callable[["torch.Tensor", bool], Mapping[str, Any]]
# One encoded prompt: name of a call's argument → tensor [1, …], or a list of one tensor.
Encoded = Mapping[str, Any]

# What no option of a recipe may name: it is of the recipe itself, or would make pictures depend on their neighbours.
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


def square(side: int) -> dict[str, Any]:
    """What most calls take for a side in pixels."""
    return {"height": side, "width": side}


@dataclass(frozen=True, slots=True)
class Family:
    """Pipelines of diffusers that are driven alike.

    name: as people call them. pipelines: their classes, as model_index.json names them.

    Prompts. prompts: `encoded` once each and joined to batches; `plain`, one call an image, where nobody promises that
    pictures of a batch are drawn alone; or `none`, where no prompt says anything. outputs: what `encode_prompt`
    returns, in order, by the names under which a call takes it; None for what no call takes. apart: the negative prompt
    is encoded by a call of its own, and its outputs are named `negative_…`. blank: the negative prompt where the recipe
    has none; None: the call's own. settled: makes one prompt's outputs ready to be joined to others. company: prompts
    with the same answer may share a batch; None: those whose outputs have one shape.

    Guidance. scale: the call's argument for the recipe's guidance; None where it takes none. above: pictures are led
    away from the negative prompt above this number; led_by: the option that decides so in its place. takes_negative:
    whether there is a negative prompt. interval: whether guidance can be left out in a part of the steps.

    Sizes. multiple: what a side in pixels must be a multiple of. usual_steps, usual_guidance: what a call takes
    by default. sized: what a call takes for a side in pixels. sets: what every call is given unless the recipe's
    options say otherwise. own: further names that are set here. output: what a call is asked for.

    Class tokens. takes_tokens: whether they load into it. learns_tokens: whether they can be learned with it.

    Levels. levels: whether any two prompts encode to one shape and mask, so that there is a way between them.

    Image embeddings. takes: how they come in: by an `adapter`, or by the model, which then needs one for `every`
    sample; None where they do not. conditioned: what a call takes for them. width: the embedding's width by the UNet's
    configuration, where the model takes it.

    LoRA. lora: the part whose layers LoRA weights are added to; None where there is none.

    Pairs. pairs: how an image can see the keys and values of the base that is drawn beside it
    (`generate/steps.py`); None where it cannot.

    Edits. edits: how a real image is drawn under another prompt: by `inversion` (`generate/rows.py`), or by a
    call of a `pipeline` that takes one; None where it cannot be. needs_image: whether nothing is drawn without one.
    """

    name: str
    pipelines: tuple[str, ...]
    outputs: tuple[str | None, ...] = ()
    prompts: Literal["encoded", "plain", "none"] = "encoded"
    apart: bool = False
    blank: str | None = None
    settled: Callable[[Encoded], Encoded] | None = None
    company: Callable[[Encoded], Hashable] | None = None
    scale: str | None = "guidance_scale"
    above: float = 1.0
    led_by: str | None = None
    takes_negative: bool = True
    interval: bool = False
    multiple: int = 8
    usual_steps: int | None = None
    usual_guidance: float | None = None
    sized: Callable[[int], Mapping[str, Any]] = square
    sets: Mapping[str, Any] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    output: Literal["pt", "np"] = "pt"
    levels: bool = False
    takes_tokens: bool = False
    learns_tokens: bool = False
    takes: Literal["adapter", "every"] | None = None
    conditioned: Conditioned | None = None
    width: Callable[[Mapping[str, Any]], Any] | None = None
    lora: Literal["unet", "transformer"] | None = None
    pairs: Literal["unet", "joint", "flux"] | None = None
    edits: Literal["inversion", "pipeline"] | None = None
    needs_image: bool = False

    @property
    def prompted(self) -> bool:
        """Whether a prompt says anything to these pipelines."""
        return self.prompts != "none"

    @property
    def as_named(self) -> bool:
        """Whether diffusers has to open these pipelines as their index names them, and not as text to image."""
        return self.takes == "every" or self.prompts == "plain"

    def guided(self, guidance: float, options: Mapping[str, Any] | None = None) -> bool:
        """Whether a recipe's guidance, or its options, have a picture led away from the negative prompt."""
        if self.led_by is not None:
            value = (options or {}).get(self.led_by)
            guidance = value if isinstance(value, int | float) else 0.0
        return guidance > self.above

    def negative_problem(self, negative: str | None, options: Mapping[str, Any]) -> str | None:
        """Why a recipe's negative prompt would do nothing; None where it may, or there is none."""
        if negative is None:
            return None
        if not self.takes_negative:
            return f"generator.negative_prompt: {self.name} takes none, expected null"
        if self.led_by is not None and not self.guided(0.0, options):
            return (
                f"generator.negative_prompt: {self.name} reads it where generator.options.{self.led_by} is above"
                f" {self.above:g}, expected that, or null"
            )
        return None

    @property
    def reserved(self) -> frozenset[str]:
        """Names of a pipeline's call that are set here, so that a recipe's options may not."""
        scale = () if self.scale is None else (self.scale,)
        return RESERVED | {name for name in self.outputs if name} | {*self.own, *scale}


def by_adapter(vectors: torch.Tensor, guided: bool) -> dict[str, Any]:
    """What pipelines with an IP-Adapter take: one embedding an image, after zeros for what guidance leads away from."""
    import torch

    each = vectors[:, None]
    return {"ip_adapter_image_embeds": [torch.cat([torch.zeros_like(each), each]) if guided else each]}


def encode_prompt(
    family: Family, pipeline: Any, prompt: str, negative: str | None, *, guided: bool, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a call takes for one prompt, and for its negative one where `guided`, by the call's names.

    `options` are the recipe's; those that the pipeline's own call would hand to its encoder go there.
    RunFailure where the encoder gives another number of outputs than the family names.
    """
    settings = _settings(pipeline, options)
    if negative is None:
        negative = family.blank
    if negative is None:
        own = inspect.signature(type(pipeline).__call__).parameters.get("negative_prompt")
        negative = None if own is None or own.default is own.empty else own.default
    given = {"negative_prompt": negative, "do_classifier_free_guidance": guided and not family.apart}
    parts = _outputs(family, pipeline, settings | given | {"prompt": prompt})
    if guided and family.apart:
        led = _outputs(family, pipeline, settings | {"prompt": negative or ""})
        parts |= {f"negative_{name}": value for name, value in led.items()}
    return parts


def joined(encoded: Sequence[Encoded]) -> dict[str, Any]:
    """Encoded prompts as one batch: tensors one below the other, lists one after the other."""
    import torch

    return {
        name: [one for each in encoded for one in each[name]]
        if isinstance(value, list)
        else torch.cat([each[name] for each in encoded])
        for name, value in encoded[0].items()
    }


# What lies between two prompts; what else a call takes for them (masks, a negative prompt) is the same for both.
_ON_THE_WAY = ("prompt_embeds", "pooled_prompt_embeds")


def interpolated(base: Encoded, shifted: Encoded, scale: float) -> dict[str, Any]:
    """What a call takes for a prompt between two, which families with `levels` have: base + scale · (shifted − base).

    ValueError where they are not of one shape and mask. 0 and 1 are exactly the two.
    """
    import torch

    for name, value in shifted.items():
        other = base.get(name)
        ways = isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor) and value.shape == other.shape
        if not ways or not (name in _ON_THE_WAY or torch.equal(value, other)):
            raise ValueError(f"two prompts differ in the form of their {name}")
    if scale in (0, 1):
        return dict(shifted if scale else base)
    ways = {name: base[name] + scale * (shifted[name] - base[name]) for name in _ON_THE_WAY if name in shifted}
    return dict(shifted) | ways


def company(family: Family, encoded: Encoded) -> Hashable:
    """Prompts with the same answer may share a batch: none of them changes how far another one is padded."""
    if family.company is not None:
        return family.company(encoded)
    # Sorted: the first prompt that is encoded has the negative prompt's parts between its own, and others behind.
    return tuple((name, *(tuple(one.shape) for one in _each(value))) for name, value in sorted(encoded.items()))


def bytes_of(encoded: Encoded) -> int:
    """What an encoded prompt takes in memory."""
    return sum(one.numel() * one.element_size() for value in encoded.values() for one in _each(value))


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _outputs(family: Family, pipeline: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of one call of the encoder by name, without those that are absent or that no call takes."""
    always = {"device": pipeline._execution_device, "num_images_per_prompt": 1}
    known = inspect.signature(pipeline.encode_prompt).parameters
    arguments: dict[str, Any] = {
        name: None for name, one in known.items() if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    }
    arguments |= {name: value for name, value in (always | dict(given)).items() if name in known}
    values = pipeline.encode_prompt(**arguments)
    if len(values) != len(family.outputs):
        raise RunFailure(
            f"{type(pipeline).__name__}.encode_prompt gives {len(values)} outputs, expected {len(family.outputs)}:"
            f" {', '.join(name or 'one that is not used' for name in family.outputs)}",
            "This version of diffusers is not known: install one that pyproject.toml allows.",
        )
    named = zip(family.outputs, values, strict=True)
    # An empty list is how Z-Image says that there is none.
    parts = {
        name: value
        for name, value in named
        if name and value is not None and not (isinstance(value, list) and not value)
    }
    return dict(parts if family.settled is None else family.settled(parts))


def _settings(pipeline: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the pipeline's own call would hand to its encoder: its defaults, or the recipe's options."""
    call = inspect.signature(type(pipeline).__call__).parameters
    shared = [name for name in inspect.signature(pipeline.encode_prompt).parameters if name in call]
    return {name: options.get(name, call[name].default) for name in shared if name not in RESERVED}
