"""Make the card's tables: what was accepted and why not, the thresholds, the models and other
inputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from counterfoil.corrupting.corruptions import CORRUPTIONS, MATCH, OWN
from counterfoil.dataset.card.contact_sheets import Tally
from counterfoil.errors import some_of
from counterfoil.generate.screen.thresholds import open_shifts
from counterfoil.recipe import Recipe, Shift, ThresholdSpec
from counterfoil.recipe.keep.cells import ACCEPTED, FAILED, OPEN, SURPLUS
from counterfoil.recipe.names import without_folders
from counterfoil.report.words import format_count
from counterfoil.store.layout import EMBEDDINGS
from counterfoil.store.receipts import Receipt, counts_of
from counterfoil.store.rows import unique_names

# Of the classes with a threshold of their own, a card names so many.
_MOST_OWN = 12
_FIRST_REASONS = (OPEN, "low_object", "low_shift", "low_both", FAILED, SURPLUS)


@dataclass(frozen=True, slots=True)
class YieldRow:
    """A shift, or a group of many shifts: its candidates and their reasons.

    A single shift has its prompt, caption and threshold, as in Vendrow 2023, Table 1; a group has
    none.
    """

    name: str
    shifts: int
    candidates: int
    accepted: int
    passed: float | None
    """The yield; None while the threshold is open."""
    reasons: Mapping[str, int]
    pairs: int
    classes: int
    thin: tuple[str, ...]
    """The names of classes with fewer accepted images than an evaluation asks for."""
    prompt: str = ""
    caption: str = ""
    threshold: str = ""


def yield_rows(
    recipe: Recipe,
    receipts: Sequence[Receipt],
    tally: Tally,
    most: int,
    thresholds: Mapping[str, Any],
) -> tuple[YieldRow, ...]:
    """Return a row per shift in the recipe's order; a row per group if there are more than `most`
    shifts."""
    counts = counts_of(receipts)
    shifts = recipe.all_shifts()
    if len(shifts) <= most:
        resolved = thresholds.get("shift", {})
        rows = []
        for shift in shifts:
            row = _yield_row(recipe, shift.name, [shift], counts, tally)
            row = replace(
                row,
                prompt=recipe.kind.made_by(shift),
                caption=shift.caption or "",
                threshold=threshold_text(resolved.get(shift.name), shift.threshold),
            )
            rows.append(row)
        return tuple(rows)
    groups = defaultdict[str, list[Shift]](list)
    for shift in shifts:
        groups[shift.group].append(shift)
    return tuple(
        _yield_row(recipe, name, of_group, counts, tally) for name, of_group in groups.items()
    )


def reasons_seen(rows: Sequence[YieldRow]) -> list[str]:
    """Return every reason that dropped a candidate: the usual ones first, then others by name."""
    seen = {reason for row in rows for reason in row.reasons}
    usual = [reason for reason in _FIRST_REASONS if reason in seen]
    return usual + sorted(seen.difference(usual))


def _yield_row(
    recipe: Recipe,
    name: str,
    shifts: Sequence[Shift],
    counts: Mapping[str, Mapping[str, int]],
    tally: Tally,
) -> YieldRow:
    reasons = Counter[str]()
    for shift in shifts:
        reasons.update(counts.get(shift.name, {}))
    candidates = reasons.total()
    accepted = reasons.pop(ACCEPTED, 0)
    least = recipe.evaluate.min_images_per_class
    cells = pairs = 0
    names = unique_names(recipe.classes)
    thin = []
    for shift in shifts:
        for label in shift.class_labels:
            cells += 1
            pairs += tally.pairs(shift.name, label)
            if tally.count(shift.name, label) < least:
                thin.append(names[label])
    passed: float | None = 0.0
    unscreened = open_shifts(recipe)
    if all(shift.name in unscreened for shift in shifts):
        passed = None
    elif candidates:
        # What passed after a cell had all it needed counts for the yield.
        passed = (accepted + reasons[SURPLUS]) / candidates
    return YieldRow(
        name=name,
        shifts=len(shifts),
        candidates=candidates,
        accepted=accepted,
        passed=passed,
        reasons=reasons,
        pairs=pairs,
        classes=cells,
        thin=tuple(thin),
    )


@dataclass(frozen=True, slots=True)
class ThresholdRow:
    """The captions of a shift and the lowest cosines that pass, as text; a dash if it is not
    screened."""

    shift: str
    object_caption: str
    object_threshold: str
    shift_caption: str
    shift_threshold: str


def threshold_rows(recipe: Recipe, document: Mapping[str, Any]) -> tuple[ThresholdRow, ...]:
    """Return a row per shift. `document` is thresholds.json; what it lacks is shown as the recipe
    has it."""
    objects = document.get("object", {})
    shifts = document.get("shift", {})
    rows = []
    for shift in recipe.all_shifts():
        chosen = [recipe.classes[label] for label in shift.class_labels]
        names = unique_names(chosen)
        own_thresholds = []
        for name, cls in zip(names, chosen, strict=True):
            value = shift.object_threshold.of_class(cls.id)
            if value is not None:
                own_thresholds.append(f"{name} {value:.3f}")
        object_threshold = threshold_text(objects.get(shift.name), shift.object_threshold)
        if own_thresholds:
            object_threshold += f"; chosen by class: {some_of(own_thresholds, _MOST_OWN)}"
        row = ThresholdRow(
            shift=shift.name,
            object_caption=shift.object_caption,
            object_threshold=object_threshold,
            shift_caption=shift.caption or "",
            shift_threshold=threshold_text(shifts.get(shift.name), shift.threshold),
        )
        rows.append(row)
    return tuple(rows)


def threshold_text(resolved: Mapping[str, Any] | None, spec: ThresholdSpec | None) -> str:
    """Return a threshold's value, or its range over the classes, with its percentile; a dash for no
    threshold."""
    resolved = resolved or {}
    # One entry for the shift, or one a class; a class may be called "value".
    alone = "value" in resolved and not isinstance(resolved["value"], Mapping)
    entries = [resolved] if alone else list(resolved.values())
    values = [entry["value"] for entry in entries if entry.get("value") is not None]
    if not entries:
        if spec is None:
            return "–"
        if spec.value is None:
            return f"percentile {spec.percentile:g}"
        return f"{spec.value:.3f}"
    if not values:  # a percentile over candidates, chosen after the build
        if spec is None or spec.percentile is None:
            return "open"
        return f"open (percentile {spec.percentile:g})"
    low = f"{min(values):.3f}"
    high = f"{max(values):.3f}"
    text = low if low == high else f"{low} to {high}"
    stored = {entry.get("percentile") for entry in entries}
    percentiles = sorted(value for value in stored if value is not None)
    if percentiles:
        words = ", ".join(f"{percentile:g}" for percentile in percentiles)
        text += f" (percentile {words})"
    return text


@dataclass(frozen=True, slots=True)
class InputRow:
    """An input of the dataset: what it does, its name, what pins it, and its licence; None if
    unknown."""

    role: str
    name: str
    pinned: str | None
    license: str | None


def input_rows(recipe: Recipe, inputs: Mapping[str, Any]) -> tuple[InputRow, ...]:
    """List generator or pool, screen, asked models, input dataset, class tokens, embeddings. `inputs` are those
    of lock.json."""
    rows = [_input_row(*entry) for entry in recipe.generator.inputs(recipe, inputs)]
    edited = inputs.get("edited") or {}
    captioner = edited.get("captioner")
    if captioner:
        rows.append(_input_row("captioner", captioner.get("name") or "", captioner))
    if recipe.screen.model is not None:
        models = inputs.get("models") or {}
        name = without_folders(recipe.screen.model)
        if recipe.screen.weights:
            name += f" ({recipe.screen.weights})"
        rows.append(_input_row("screen", name, models.get("screen") or {}))
    asked_models = inputs.get("asked") or {}
    rows += [_input_row("keep rule", *entry) for entry in asked_models.items()]
    source = inputs.get("source") or {}
    rows.append(_input_row("input dataset", without_folders(recipe.source.dataset), source))
    if recipe.tokens is not None:
        path = recipe.tokens.path
        name = "learned from the input dataset" if path is None else without_folders(path)
        # The lock has the hash of each class's token by class id.
        hashes = inputs.get("tokens") or {}
        rows.append(_input_row("class tokens", name, {"sha256": hashes}))
    embeddings = inputs.get("embeddings") or {}
    if embeddings:
        count = format_count(sum(map(len, embeddings.values())), "vector")
        rows.append(InputRow("image embeddings", EMBEDDINGS, f"sha256 of {count}", None))
    return tuple(rows)


def _input_row(role: str, name: str, entry: Mapping[str, Any]) -> InputRow:
    pinned = None
    hashes = entry.get("sha256")
    if entry.get("revision"):
        pinned = str(entry["revision"])
    elif isinstance(hashes, str):
        pinned = f"sha256 {hashes[:12]}…"
    elif isinstance(hashes, Mapping) and hashes:
        noun = "files" if len(hashes) > 1 else "file"
        pinned = f"sha256 of {len(hashes)} {noun}"
    return InputRow(role, name, pinned, entry.get("license") or None)


@dataclass(frozen=True, slots=True)
class CorruptionRow:
    """A shift of corrupted rows: what is done, how strongly, and how it differs from what was
    published."""

    shift: str
    severity: int
    says: str
    deviation: str | None


def corruption_table_rows(recipe: Recipe) -> tuple[CorruptionRow, ...]:
    rows = []
    for shift in recipe.all_shifts():
        if shift.corruption == MATCH:
            says = "Gives each base image only the brightness and contrast of its shifted partner."
            rows.append(CorruptionRow(shift.name, 0, says, OWN))
        elif shift.corruption is not None:
            known = CORRUPTIONS[shift.corruption]
            rows.append(CorruptionRow(shift.name, shift.severity, known.says, known.deviation))
    return tuple(rows)
