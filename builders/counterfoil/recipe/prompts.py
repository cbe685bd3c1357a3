"""Classes and shifts with every default filled in, and the texts made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.keep import SHIFT, KeepRule
from counterfoil.recipe.corruptions import KIND_OF
from counterfoil.recipe.templates import ABOUT_CLASS, CAPTION, fill, uses

if TYPE_CHECKING:
    from counterfoil.recipe.schema_output import CellSamples
    from counterfoil.recipe.schema_prompts import BaseSpec, EmbeddingSpec, Prompted, Prompts, Screen, ShiftSpec
    from counterfoil.recipe.threshold_spec import ObjectThresholdSpec, ThresholdSpec

BASE = "base"
# Of five: enough to tell models apart, and far from unrecognisable.
DEFAULT_SEVERITY = 3


@dataclass(frozen=True, slots=True)
class RecipeClass:
    """A class with its label, the position in the recipe."""

    id: str
    name: str
    label: int
    source_label: int
    imagenet: tuple[int, ...]
    parent: str | None = None
    category: str | None = None

    def text(self, template: str, placeholder: str | None = None, caption: str | None = None) -> str:
        """A template filled with this class: with the placeholder token where there is one, else the name.

        `caption` is that of an image that is edited; unknown, its place stays as it is written.
        """
        words = [getattr(self, word) for word in ABOUT_CLASS]
        told = f"{{{CAPTION}}}" if caption is None else caption
        return fill(template, self.name if placeholder is None else placeholder, words, told)

    def has_words_for(self, template: str) -> bool:
        """Whether it has the parent and the category that a template uses."""
        return all(getattr(self, word) is not None for word in uses(template))


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift, or the base, with the screen's defaults filled in.

    `caption` is None where the shift is not screened, and then `threshold` is None too. `keep` are the keep rules, in
    order; one that ranks a cell by a score that the shift does not have is left out, and for the base one that asks
    classifiers. `candidates` is the most samples that a cell has, `accepted` its quota, if it has one.
    `class_labels` are the labels of its classes in label order. `prompt` is None only where there is an `embedding`, or
    where rows are corrupted: then a shift has a `corruption` and its `severity`.
    """

    name: str
    prompt: str | None
    caption: str | None
    object_caption: str
    style: bool
    threshold: ThresholdSpec | None
    object_threshold: ObjectThresholdSpec
    class_labels: tuple[int, ...]
    group: str
    kind: str | None
    keep: tuple[KeepRule, ...]
    candidates: int
    accepted: int | None
    embedding: EmbeddingSpec | None = None
    corruption: str | None = None
    severity: int = 0


def resolve_shifts(
    class_ids: Sequence[str], prompts: Prompts, screen: Screen, samples: CellSamples
) -> tuple[Shift, ...]:
    """The base first, then every shift in the recipe's order."""
    labels = {class_id: label for label, class_id in enumerate(class_ids)}
    every = tuple(range(len(labels)))
    base = prompts.base.classes
    chosen = every if base is None else tuple(sorted(labels[class_id] for class_id in base))
    shifts = [_base(prompts.base, screen, samples, chosen)]
    for name, spec in prompts.shifts.items():
        # One shared tuple for "every class", so that thousands of shifts stay small.
        chosen = every if spec.classes is None else tuple(sorted(labels[class_id] for class_id in spec.classes))
        shifts.append(_shift(screen, spec.samples or samples, name, spec, chosen))
    return tuple(shifts)


def prompt_for(
    shift: Shift, cls: RecipeClass, placeholder: str | None = None, caption: str | None = None
) -> str | None:
    """The prompt of a cell: with the placeholder token where there is one, else the class's name.

    `caption` is that of the image that is edited. None where it is drawn from an embedding alone.
    """
    return None if shift.prompt is None else cls.text(shift.prompt, placeholder, caption)


def drawn_from(shift: Shift) -> str:
    """What makes a shift, for people: its prompt, an image embedding, or both; or its corruption."""
    if shift.corruption is not None:
        return f"{shift.corruption.replace('_', ' ')}, severity {shift.severity}"
    if shift.prompt is None and shift.embedding is None:
        return "each row as it is"
    parts = [shift.prompt, None if shift.embedding is None else "an image embedding"]
    return " and ".join(part for part in parts if part is not None)


def object_caption_for(shift: Shift, cls: RecipeClass) -> str:
    """The caption that screens for the object; always the class's name, never a placeholder."""
    return cls.text(shift.object_caption)


def _base(spec: BaseSpec, screen: Screen, samples: CellSamples, labels: tuple[int, ...]) -> Shift:
    return Shift(
        name=BASE,
        prompt=spec.prompt,
        caption=None,
        object_caption=_object_caption(screen, spec),
        style=spec.style,
        threshold=None,
        object_threshold=_object_threshold(screen, spec),
        class_labels=labels,
        group=BASE,
        kind=None,
        keep=tuple(rule for rule in _rules(screen.keep, None) if not rule.judges()),
        candidates=samples.most_candidates,
        accepted=samples.accepted,
        embedding=spec.embedding,
    )


def _shift(screen: Screen, samples: CellSamples, name: str, spec: ShiftSpec, labels: tuple[int, ...]) -> Shift:
    return Shift(
        name=name,
        prompt=spec.prompt,
        caption=spec.caption,
        object_caption=_object_caption(screen, spec),
        style=spec.style,
        threshold=(spec.threshold or screen.shift_threshold) if spec.caption is not None else None,
        object_threshold=_object_threshold(screen, spec),
        class_labels=labels,
        group=spec.group or name,
        kind=spec.kind or (None if spec.corruption is None else KIND_OF[spec.corruption]),
        keep=_rules(screen.keep if spec.keep is None else spec.keep, spec.caption),
        candidates=samples.most_candidates,
        accepted=samples.accepted,
        embedding=spec.embedding,
        corruption=spec.corruption,
        severity=0 if spec.corruption is None else spec.severity or DEFAULT_SEVERITY,
    )


def _rules(steps: Sequence[Any], caption: str | None) -> tuple[KeepRule, ...]:
    rules = [step.rule for step in steps]
    return tuple(rule for rule in rules if caption is not None or not (rule.whole_cell and SHIFT in rule.scores()))


def _object_threshold(screen: Screen, spec: Prompted) -> ObjectThresholdSpec:
    own = spec.object_threshold
    return screen.object_threshold if own is None else own.over(screen.object_threshold)


def _object_caption(screen: Screen, spec: Prompted) -> str:
    if spec.object_caption is not None:
        return spec.object_caption
    return screen.style_object_caption if spec.style else screen.object_caption
