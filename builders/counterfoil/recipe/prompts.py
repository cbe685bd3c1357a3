"""Classes and shifts with every default filled in, and the texts made from them: templates, checked and filled.

A template holds `{class}`, `{parent}`, `{category}` and `{caption}`. A shift is drawn by its prompt or an
embedding, or is a known corruption of rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil.recipe.corruptions import CORRUPTIONS, MATCH
from counterfoil.recipe.keep import SHIFT, Column, KeepRule
from counterfoil.recipe.keep.rule import as_stored
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.severity import MOST_SEVERE, REALISED, SEVERITY, By, level_name

if TYPE_CHECKING:
    from counterfoil.recipe.schema_output import CellSamples
    from counterfoil.recipe.schema_prompts import (
        EmbeddingSpec,
        ObjectThresholdSpec,
        Prompted,
        Prompts,
        Screen,
        ShiftSpec,
        ThresholdSpec,
    )


CLASS = "class"
CLASS_ID = "class_id"
# What a class list may say of a class beside its name, and prompts may use.
ABOUT_CLASS = ("parent", "category")
# What prompts that edit a real image may hold: the caption of that image.
CAPTION = "caption"
LONGEST_KEY = 200
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def fill(template: str, class_text: str, about: Sequence[str | None] = (), caption: str | None = None) -> str:
    """Return the template with `{class}` replaced by a class name or a placeholder token.

    `about` are the class's words for `ABOUT_CLASS`, `caption` that of the image that is edited; ValueError for
    a template that uses one that is None. What is filled in is never read as a template.
    """
    words = {CLASS: class_text, CAPTION: caption} | dict(zip(ABOUT_CLASS, about, strict=False))

    def word(found: re.Match[str]) -> str:
        text = words.get(found[1])
        if text is None:
            raise ValueError(f"no {found[1]} to fill '{template}' with")
        return text

    return _PLACEHOLDER.sub(word, template)


def uses(template: str | None) -> tuple[str, ...]:
    """Return the words of `ABOUT_CLASS` in a template."""
    if template is None:
        return ()
    found = set(_PLACEHOLDER.findall(template))
    return tuple(word for word in ABOUT_CLASS if word in found)


def asks_caption(template: str | None) -> bool:
    """Return whether a template asks for the caption of an image."""
    return template is not None and CAPTION in _PLACEHOLDER.findall(template)


def template_problem(
    template: str, *, with_class: bool | None, about_class: bool = False, captioned: bool = False
) -> str | None:
    """Return what is wrong with a template, or None.

    `with_class`: whether the template must hold `{class}` (prompts, object captions) or must not (the
    caption of a shift, which says only the shift); None: it may. `about_class`: whether it may hold `{parent}` and
    `{category}` too; `captioned`: and `{caption}`, in place of `{class}` also.
    """
    if not template.strip():
        return "is empty, expected text"
    known = (CLASS, *ABOUT_CLASS) if about_class else (CLASS,)
    listed = " or ".join(f"'{{{name}}}'" for name in known)
    names = _PLACEHOLDER.findall(template)
    for name in names:
        if with_class is False and name in (CLASS, *ABOUT_CLASS):
            return f"found '{template}', expected a caption of the shift alone, without '{{{name}}}'"
        if captioned and name == CAPTION:
            continue
        if name not in known:
            close = did_you_mean(name, known)
            hint = close.replace("mean '", "mean '{").replace("'?", "}'?")
            expected = f"expected {listed}" if about_class else f"the only one is {listed}"
            return f"unknown placeholder '{{{name}}}' in '{template}'; {expected}{hint}"
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        return f"found an unmatched brace in '{template}'; use braces only in {listed}"
    if with_class and CLASS not in names and not (captioned and CAPTION in names):
        return f"found '{template}', expected it to contain '{{{CLASS}}}'"
    return None


def embedding_key(template: str, class_id: str) -> str:
    """Return the key of a class's vector: the template with `{class_id}` replaced."""
    return template.replace(f"{{{CLASS_ID}}}", class_id)


def embedding_key_problem(template: str) -> str | None:
    """Return a problem with the template of a vector's key, or None."""
    if not template.strip() or len(template) > LONGEST_KEY or not template.isprintable():
        return f"found {template[:80]!r}, expected a key of 1 to {LONGEST_KEY} printable characters"
    if re.search(r"[{}]", embedding_key(template, "")):
        return f"found '{template}', expected no braces but those of '{{{CLASS_ID}}}'"
    return None


def own_key(shift: str, template: str) -> str:
    """Return the template of a shift's keys in a dataset's own file, where keys of several files meet."""
    return f"{shift}/{{{CLASS_ID}}}" if f"{{{CLASS_ID}}}" in template else shift


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
        """Return a template filled with this class: with the placeholder token where there is one, else the name.

        `caption` is that of an image that is edited; unknown, its place stays as it is written.
        """
        words = [getattr(self, word) for word in ABOUT_CLASS]
        caption_text = f"{{{CAPTION}}}" if caption is None else caption
        return fill(template, self.name if placeholder is None else placeholder, words, caption_text)

    def has_words_for(self, template: str) -> bool:
        """Return whether it has the parent and category that a template uses."""
        return all(getattr(self, word) is not None for word in uses(template))


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift, or the base, with the screen's defaults filled in.

    `caption` is None where the shift is not screened, and then `threshold` is None too. `keep` are the keep rules, in
    order; one that ranks a cell by a score that the shift does not have is left out, and for the base one that asks
    classifiers. `candidates` is the most samples that a cell has, `accepted` its quota, if it has one.
    `class_labels` are the labels of its classes in label order. `prompt` is None only where there is an `embedding`, or
    where rows are corrupted: then a shift has a `corruption` and its `severity`, 1 to 5, or 0 for `match`.
    Of a shift with levels there is one for each, whose `of` is the recipe's name for all of them: `level` as the recipe
    lists it, a share of the way, or of CLIP's gain where `realised`; `scale` the share of the way, None until `build`
    has found it; `by` which way, with which `lora`. `top` is the highest of them, and any shift without levels.
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
    of: str = ""
    level: float | None = None
    scale: float | None = None
    by: By | None = None
    lora: str | None = None
    realised: bool = False
    top: bool = True

    @property
    def step(self) -> str:
        """Return the level of its shift in words; empty without levels."""
        if self.level is None or (self.level == 1 and not self.realised):
            return ""
        return f"{100 * self.level:g} % of {'CLIP’s gain' if self.realised else 'the way'}"


def resolve_shifts(
    class_ids: Sequence[str], prompts: Prompts, screen: Screen, samples: CellSamples, way: By
) -> tuple[Shift, ...]:
    """Return the base, then every shift in the recipe's order, each of its levels; `way` is theirs that name none."""
    labels = {class_id: label for label, class_id in enumerate(class_ids)}
    every = tuple(range(len(labels)))
    base = prompts.base.classes
    chosen = every if base is None else tuple(sorted(labels[class_id] for class_id in base))
    shifts = [
        Shift(
            name=BASE,
            of=BASE,
            prompt=prompts.base.prompt,
            caption=None,
            object_caption=_object_caption(screen, prompts.base),
            style=prompts.base.style,
            threshold=None,
            object_threshold=_object_threshold(screen, prompts.base),
            class_labels=chosen,
            group=BASE,
            kind=None,
            keep=tuple(rule for rule in _rules(screen.keep, None) if not rule.judges()),
            candidates=samples.most_candidates,
            accepted=samples.accepted,
            embedding=prompts.base.embedding,
        )
    ]
    for name, spec in prompts.shifts.items():
        # One shared tuple for "every class", so that thousands of shifts stay small.
        chosen = every if spec.classes is None else tuple(sorted(labels[class_id] for class_id in spec.classes))
        shifts += _levels(_shift(screen, spec.samples or samples, name, spec, chosen), spec, way)
    return tuple(shifts)


def limit_shifts(shifts: Sequence[Shift], limit: int, classes: int) -> tuple[Shift, ...]:
    """Return the shifts of a preview: at most `limit` images each, in as many classes as that allows.

    Every class has the same number of images under the base and each shift, so that pairs stay whole. Where there are
    more classes than images, evenly spaced ones are taken; a shift with none of these keeps its first class.
    """
    spaced = frozenset(index * classes // limit for index in range(limit)) if limit < classes else range(classes)
    most = max(1, limit // classes)
    labels_of = []
    for shift in shifts:
        labels_of.append(tuple(label for label in shift.class_labels if label in spaced) or shift.class_labels[:1])
    taken = frozenset(label for labels in labels_of for label in labels)
    labels_of[0] = tuple(label for label in shifts[0].class_labels if label in taken)
    limited = []
    for shift, labels in zip(shifts, labels_of, strict=True):
        accepted = shift.accepted
        if accepted is None:
            candidates = min(shift.candidates, most)
        else:
            candidates = -(-shift.candidates * min(accepted, most) // accepted)
            accepted = min(accepted, most)
        limited.append(replace(shift, class_labels=labels, candidates=candidates, accepted=accepted))
    return tuple(limited)


def _levels(whole: Shift, spec: ShiftSpec, way: By) -> list[Shift]:
    """Return a shift's levels, or the shift alone. Levels have no threshold, which a mild one would fail."""
    if spec.severity is None or spec.severity.levels is None:
        return [whole]
    levels, corrupts = spec.severity.levels, whole.corruption is not None
    scales = levels.raw or levels.scales or (None,) * len(levels.asked)
    return [
        replace(
            whole,
            name=level_name(whole.name, level, corrupts=corrupts),
            threshold=None,
            severity=round(level * MOST_SEVERE) if corrupts else 0,
            level=level,
            scale=scale,
            by=spec.severity.by or way,
            lora=spec.severity.lora,
            realised=levels.raw is None,
            top=level == levels.asked[-1],
        )
        for level, scale in zip(levels.asked, scales, strict=True)
    ]


def severity_columns(shifts: Sequence[Shift]) -> dict[str, Column]:
    """Return the columns of tables where shifts have levels. Rows that are corrupted have the severity in any case."""
    drawn = [shift for shift in shifts if shift.level is not None and shift.corruption is None]
    found = {}
    if drawn:
        how_far = "How far from the base to the whole shift: 0 is the base, 1 the whole shift; none without levels."
        found[SEVERITY] = Column("float32", how_far)
    if any(shift.realised for shift in drawn):
        share = "Share of the gain in the screening CLIP's shift score for which the severity was chosen."
        found[REALISED] = Column("float32", share)
    return found


def severity_of(shift: Shift, column: str) -> float | None:
    """Return the value of such a column for all samples of a shift."""
    if shift.name == BASE:
        return 0.0
    value = shift.scale if column == SEVERITY else shift.level if shift.realised else None
    return None if value is None else as_stored(value)


def prompt_for(
    shift: Shift, cls: RecipeClass, placeholder: str | None = None, caption: str | None = None
) -> str | None:
    """Return the prompt of a cell: with the placeholder token where there is one, else the class's name.

    `caption` is that of the image that is edited. None where it is drawn from an embedding alone.
    """
    return None if shift.prompt is None else cls.text(shift.prompt, placeholder, caption)


def object_caption_for(shift: Shift, cls: RecipeClass) -> str:
    """Return the object caption with the class's name, never a placeholder."""
    return cls.text(shift.object_caption)


def _shift(screen: Screen, samples: CellSamples, name: str, spec: ShiftSpec, labels: tuple[int, ...]) -> Shift:
    fixed = None if spec.severity is None else spec.severity.fixed
    kind: str | None = spec.kind
    if kind is None and spec.corruption is not None:
        kind = "camera" if spec.corruption == MATCH else CORRUPTIONS[spec.corruption].kind
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
        kind=kind,
        keep=_rules(screen.keep if spec.keep is None else spec.keep, spec.caption),
        candidates=samples.most_candidates,
        accepted=samples.accepted,
        embedding=spec.embedding,
        corruption=spec.corruption,
        severity=0 if spec.corruption in (None, MATCH) else fixed or DEFAULT_SEVERITY,
        of=name,
    )


def _rules(steps: Sequence[Any], caption: str | None) -> tuple[KeepRule, ...]:
    rules = [step.rule for step in steps]
    return tuple(rule for rule in rules if caption is not None or not (rule.whole_cell and SHIFT in rule.scores()))


def _object_threshold(screen: Screen, spec: Prompted) -> ObjectThresholdSpec:
    object_threshold = spec.object_threshold
    return screen.object_threshold if object_threshold is None else object_threshold.over(screen.object_threshold)


def _object_caption(screen: Screen, spec: Prompted) -> str:
    if spec.object_caption is not None:
        return spec.object_caption
    return screen.style_object_caption if spec.style else screen.object_caption
