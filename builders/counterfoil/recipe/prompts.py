"""Classes and shifts with every default filled in, and templates of their texts, checked and
filled."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil.corrupting.corruptions import CORRUPTIONS, MATCH
from counterfoil.errors import ProblemLine
from counterfoil.recipe.keep.rule import SHIFT, Column, KeepRule, as_stored
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.severity import MOST_SEVERE, REALISED, SEVERITY, By, level_name

if TYPE_CHECKING:
    from counterfoil.recipe.schema_output import CellSamples
    from counterfoil.recipe.schema_prompts import (
        BaseSpec,
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
# Words of a class beside its name, which prompts may use.
ABOUT_CLASS = ("parent", "category")
# The caption of a real image, which prompts that edit it may use.
CAPTION = "caption"
LONGEST_KEY = 200
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def fill_template(
    template: str,
    class_text: str,
    about: Sequence[str | None] = (),
    caption: str | None = None,
) -> str:
    """Return the template filled with a class name or a placeholder token. Inserted text is never
    read as a template.

    about: the class's words for `ABOUT_CLASS`. caption: the caption of the image that is edited.
    Raise ValueError for a missing word.
    """
    words = {CLASS: class_text, CAPTION: caption} | dict(zip(ABOUT_CLASS, about, strict=False))

    def word(match: re.Match[str]) -> str:
        text = words.get(match[1])
        if text is None:
            raise ValueError(f"no {match[1]} to fill '{template}' with")
        return text

    return _PLACEHOLDER.sub(word, template)


def words_in_template(template: str | None) -> tuple[str, ...]:
    """Return the words of `ABOUT_CLASS` in a template."""
    names = _PLACEHOLDER.findall(template or "")
    return tuple(word for word in ABOUT_CLASS if word in names)


def asks_caption(template: str | None) -> bool:
    """Return whether a template uses the caption of an image."""
    return CAPTION in _PLACEHOLDER.findall(template or "")


def template_problem(
    template: str,
    *,
    with_class: bool | None,
    about_class: bool = False,
    about_shift: bool = False,
    captioned: bool = False,
) -> ProblemLine | None:
    """Return a problem with a template, or None.

    with_class: the template must contain `{class}` (True), may contain it (None), or may not
    contain it (False, for the caption of a shift). about_class: it may contain `{parent}` and
    `{category}`. about_shift: it may contain `{shift}`. captioned: it may contain `{caption}`, also
    in place of `{class}`.
    """
    if not template.strip():
        return message("invalid-text.empty")
    known: tuple[str, ...] = (CLASS,)
    if about_class:
        known += ABOUT_CLASS
    if about_shift:
        known += (SHIFT,)
    listed = " or ".join(f"'{{{name}}}'" for name in known)
    names = _PLACEHOLDER.findall(template)
    for name in names:
        if with_class is False and name in (CLASS, *ABOUT_CLASS):
            return message("invalid-text.class", found=template, word=name)
        if captioned and name == CAPTION:
            continue
        if name not in known:
            close = did_you_mean(name, known)
            # Put the suggestion in braces, as a template writes it.
            hint = close.replace("mean '", "mean '{").replace("'?", "}'?")
            sentence = "unknown-placeholder" if known[1:] else "unknown-placeholder.only"
            return message(
                sentence,
                word=name,
                found=template,
                expected=listed,
                hint=hint,
            )
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        return message("invalid-text.brace", found=template, expected=listed)
    if with_class and CLASS not in names and not (captioned and CAPTION in names):
        return message("missing-class", found=template)
    return None


def embedding_key(template: str, class_id: str) -> str:
    """Return the key of a class's vector: the template with `{class_id}` replaced."""
    return template.replace(f"{{{CLASS_ID}}}", class_id)


def embedding_key_problem(template: str) -> ProblemLine | None:
    """Return a problem with the template of a vector's key, or None."""
    if not template.strip() or len(template) > LONGEST_KEY or not template.isprintable():
        return message("invalid-text.key", found=template[:80], most=LONGEST_KEY)
    if re.search(r"[{}]", embedding_key(template, "")):
        return message("invalid-text.key-brace", found=template)
    return None


def own_key(shift: str, template: str) -> str:
    """Return the template of a shift's keys in a dataset's own file, which has the vectors of all
    shifts."""
    return f"{shift}/{{{CLASS_ID}}}" if f"{{{CLASS_ID}}}" in template else shift


BASE = "base"
DEFAULT_SEVERITY = 3  # enough to tell models apart, and images stay recognisable


@dataclass(frozen=True, slots=True)
class RecipeClass:
    """A class of a recipe. The label is the position of the class in the recipe."""

    id: str
    name: str
    label: int
    source_label: int
    imagenet: tuple[int, ...]
    parent: str | None = None
    category: str | None = None
    kinds: tuple[str, ...] = ()

    def under_parent_of(self, other: RecipeClass) -> bool:
        """Return whether the class is a kind of the other's parent: by ids of kinds, or by equal
        words without ids."""
        return other.kinds[0] in self.kinds if other.kinds else self.parent == other.parent

    def text(
        self,
        template: str,
        placeholder: str | None = None,
        caption: str | None = None,
    ) -> str:
        """Return a template filled with a placeholder token or the class's name. Without a caption,
        `{caption}` stays as it is.
        """
        name = self.name if placeholder is None else placeholder
        words = [getattr(self, word) for word in ABOUT_CLASS]
        if caption is None:
            caption = f"{{{CAPTION}}}"
        return fill_template(
            template,
            name,
            words,
            caption,
        )

    def has_words_for(self, template: str) -> bool:
        """Return whether the class has the parent and category that a template uses."""
        return all(getattr(self, word) is not None for word in words_in_template(template))


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift, or the base, with the screen's defaults filled in. A shift with levels has one
    object for each level.

    prompt: None only with an embedding or a corruption. caption, threshold: None if the shift is
    not screened.
    class_labels: in label order. keep: keep rules in order, without rules that need a score or
    answer that the shift or base lacks. candidates: the most samples of a cell. accepted: the quota
    of a cell, if any. severity: the severity of a corruption, 1 to 5; 0 for `match`.

    of: the recipe's name for all levels. level: the level in the recipe's list, a share of the way,
    or a share of CLIP's gain if `realised`. scale: the share of the way, or None until `build` has
    measured it. by, lora: the way to the level. top: whether this is the highest level, or the
    shift has no levels.
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
        """Return the level in words. The text is empty for a shift without levels and for the whole
        shift."""
        if self.level is None or (self.level == 1 and not self.realised):
            return ""
        whole = "CLIP’s gain" if self.realised else "the way"
        return f"{100 * self.level:g} % of {whole}"


def resolve_shifts(
    class_ids: Sequence[str],
    prompts: Prompts,
    screen: Screen,
    samples: CellSamples,
    way: By,
) -> tuple[Shift, ...]:
    """Return the base, then every level of every shift in the recipe's order. `way` is the default
    way to levels."""
    label_of = {class_id: label for label, class_id in enumerate(class_ids)}
    # all shifts share this tuple, so that thousands of shifts stay small
    every = tuple(range(len(label_of)))

    def labels(spec: BaseSpec | ShiftSpec) -> tuple[int, ...]:
        if spec.classes is None:
            return every
        return tuple(sorted(label_of[class_id] for class_id in spec.classes))

    base = _prompted(
        BASE,
        prompts.base,
        screen,
        samples,
        labels(prompts.base),
    )
    without_judges = tuple(rule for rule in base.keep if not rule.judges())
    shifts = [replace(base, keep=without_judges)]
    for name, spec in prompts.shifts.items():
        whole = _shift(
            name,
            spec,
            screen,
            spec.samples or samples,
            labels(spec),
        )
        shifts += _levels(whole, spec, way)
    return tuple(shifts)


def limit_shifts(shifts: Sequence[Shift], limit: int, classes: int) -> tuple[Shift, ...]:
    """Return the shifts of a preview: at most `limit` images of each shift, in as many classes as
    that allows.

    Every class has the same number of images under the base and each shift, so that pairs stay
    whole. If there are more classes than images, evenly spaced classes are taken. A shift with none
    of these classes keeps its first class.
    """
    spaced: Container[int] = range(classes)
    if limit < classes:
        spaced = {index * classes // limit for index in range(limit)}
    most = max(1, limit // classes)
    labels_of = []
    taken: set[int] = set()
    for shift in shifts:
        labels = tuple(label for label in shift.class_labels if label in spaced)
        labels = labels or shift.class_labels[:1]
        labels_of.append(labels)
        taken.update(labels)
    labels_of[0] = tuple(label for label in shifts[0].class_labels if label in taken)
    limited = []
    for shift, labels in zip(shifts, labels_of, strict=True):
        accepted = shift.accepted
        if accepted is None:
            candidates = min(shift.candidates, most)
        else:
            candidates = -(-shift.candidates * min(accepted, most) // accepted)
            accepted = min(accepted, most)
        limited.append(
            replace(shift, class_labels=labels, candidates=candidates, accepted=accepted)
        )
    return tuple(limited)


def _levels(whole: Shift, spec: ShiftSpec, way: By) -> list[Shift]:
    """Return a shift's levels, or the shift alone. Levels have no threshold, because mild levels
    would fail it."""
    if spec.severity is None or spec.severity.levels is None:
        return [whole]
    levels = spec.severity.levels
    corrupts = whole.corruption is not None
    scales = levels.raw or levels.scales or (None,) * len(levels.asked)
    shifts: list[Shift] = []
    for level, scale in zip(levels.asked, scales, strict=True):
        shift = replace(
            whole,
            name=level_name(whole.name, level, corrupts=corrupts),
            threshold=None,
            severity=round(level * MOST_SEVERE) if corrupts else 0,
            level=level,
            scale=scale,
            by=spec.severity.by or way,
            lora=spec.severity.lora,
            keep=tuple(rule.of_level() for rule in whole.keep),
            realised=levels.raw is None,
            top=level == levels.asked[-1],
        )
        shifts.append(shift)
    return shifts


def severity_columns(shifts: Sequence[Shift]) -> dict[str, Column]:
    """Return the columns that drawn levels add to tables; `CorruptKind` adds that of severities."""
    drawn = [shift for shift in shifts if shift.level is not None and shift.corruption is None]
    columns = {}
    if drawn:
        how_far = (
            "How far from the base to the whole shift: 0 is the base, 1 the whole shift; none"
            " without levels."
        )
        columns[SEVERITY] = Column("float32", how_far)
    if any(shift.realised for shift in drawn):
        share = (
            "Share of the gain in the screening CLIP's shift score for which the severity was"
            " chosen."
        )
        columns[REALISED] = Column("float32", share)
    return columns


def severity_of(shift: Shift, column: str) -> float | None:
    """Return the value that all samples of a shift have in one of these columns."""
    if shift.name == BASE:
        return 0.0
    value = shift.scale
    if column != SEVERITY:
        value = shift.level if shift.realised else None
    return None if value is None else as_stored(value)


def prompt_for(
    shift: Shift,
    cls: RecipeClass,
    placeholder: str | None = None,
    caption: str | None = None,
) -> str | None:
    """Return the prompt of a cell, with a placeholder token or the class's name. None means an
    embedding alone."""
    return None if shift.prompt is None else cls.text(shift.prompt, placeholder, caption)


def object_caption_for(shift: Shift, cls: RecipeClass) -> str:
    """Return the object caption with the class's name, never a placeholder."""
    return cls.text(shift.object_caption)


def _prompted(
    name: str,
    spec: Prompted,
    screen: Screen,
    samples: CellSamples,
    labels: tuple[int, ...],
) -> Shift:
    """Return a shift with what its section shares with the base's."""
    object_caption = spec.object_caption
    if object_caption is None:
        object_caption = screen.style_object_caption if spec.style else screen.object_caption
    threshold = screen.object_threshold
    if spec.object_threshold is not None:
        threshold = spec.object_threshold.over(threshold)
    return Shift(
        name=name,
        of=name,
        prompt=spec.prompt,
        caption=None,
        object_caption=object_caption,
        style=spec.style,
        threshold=None,
        object_threshold=threshold,
        class_labels=labels,
        group=name,
        kind=None,
        keep=_rules(screen.keep, None),
        candidates=samples.most_candidates,
        accepted=samples.accepted,
        embedding=spec.embedding,
    )


def _shift(
    name: str,
    spec: ShiftSpec,
    screen: Screen,
    samples: CellSamples,
    labels: tuple[int, ...],
) -> Shift:
    kind: str | None = spec.kind
    if kind is None and spec.corruption is not None:
        kind = "camera" if spec.corruption == MATCH else CORRUPTIONS[spec.corruption].kind
    severity = 0
    if spec.corruption not in (None, MATCH):
        fixed = None if spec.severity is None else spec.severity.fixed
        severity = fixed or DEFAULT_SEVERITY
    threshold = None
    if spec.caption is not None:
        threshold = spec.threshold or screen.shift_threshold
    steps = screen.keep if spec.keep is None else spec.keep
    return replace(
        _prompted(
            name,
            spec,
            screen,
            samples,
            labels,
        ),
        caption=spec.caption,
        threshold=threshold,
        group=spec.group or name,
        kind=kind,
        keep=_rules(steps, spec.caption),
        corruption=spec.corruption,
        severity=severity,
    )


def _rules(steps: Sequence[Any], caption: str | None) -> tuple[KeepRule, ...]:
    """Return the rules, without those that rank by a score that images without a caption lack."""
    rules: list[KeepRule] = []
    for step in steps:
        ranks_by_shift = step.rule.whole_cell and SHIFT in step.rule.scores()
        if caption is not None or not ranks_by_shift:
            rules.append(step.rule)
    return tuple(rules)
