"""Two models on the same images, such as a mended one and its original: facts, the table, the
verdict in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.documents import Strict, csv_text
from counterfoil.report.labels import LabelChecks, label_note
from counterfoil.report.sections import MeasureFacts, ReportSection, Shown
from counterfoil.report.words import (
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    TableRow,
    count_cell,
    csv_interval,
    csv_percent,
    format_count,
    format_interval,
    format_list,
    format_percent,
    format_points,
    interval_sign,
    points_cell,
    text_cell,
)
from counterfoil.stats import CONFIDENCE, Estimate

if TYPE_CHECKING:
    from counterfoil.report.results import ResultRow, ResultRows, Results

GAIN = "gain"
DROP_GAIN = "drop_gain"
ACCURACY = "compared_accuracy"
ONLY_RIGHT = "only_right"
DIFFERENT_ANSWERS = "different_answers"
LARGEST_DIFFERENCE = "largest_difference"
MEASURE_FACTS = (
    MeasureFacts(GAIN, "Gain", "points", "Accuracy less that of `against`, averaged over classes."),
    MeasureFacts(
        DROP_GAIN,
        "Smaller drop",
        "points",
        "How much smaller the model's drop is than that of `against`.",
    ),
    MeasureFacts(
        ACCURACY, "Compared accuracy", "percent", "Accuracy over all classes of the gain."
    ),
    MeasureFacts(
        ONLY_RIGHT,
        "Only right",
        "percent",
        "The share of images that this model alone is right about.",
    ),
    MeasureFacts(
        DIFFERENT_ANSWERS,
        "Different answers",
        "percent",
        "The share of images on which the model answers otherwise than `against`.",
    ),
    MeasureFacts(
        LARGEST_DIFFERENCE,
        "Largest difference",
        "points",
        "By how much the confidence of the two models in one answer differs at most.",
    ),
)
MCNEMAR = "McNemar exact, Holm over groups"
# The level of the verdicts gains and loses, over all groups together.
LEVEL = round(1 - CONFIDENCE, 10)


@dataclass(frozen=True, slots=True)
class ComparedGroup(Strict):
    """A group and how many classes it compares."""

    name: str
    kind: str | None
    is_base: bool
    classes: int


@dataclass(frozen=True, slots=True)
class ModelComparison(Strict):
    """The model `mended`, or any other, against `original`, group after group, the base first.

    note: a remark on the two models. near_chance: which of them are near chance on the base;
    classes_near_chance: the names of the classes that are.
    """

    mended: str
    original: str
    groups: tuple[ComparedGroup, ...]
    note: str | None = None
    near_chance: tuple[str, ...] = ()
    classes_near_chance: tuple[str, ...] = ()

    def key(self, group: str = "", *, of_original: bool = False) -> dict[str, str]:
        """Return the key of a group's rows, those of the mended model or of the original; "" is all
        groups."""
        if of_original:
            return {"model": self.original, "against": self.mended, "group": group}
        return {"model": self.mended, "against": self.original, "group": group}

    @property
    def short_names(self) -> tuple[str, str]:
        """The two names without folders; whole if they are alike."""
        _, _, first = self.mended.rstrip("/").rpartition("/")
        _, _, second = self.original.rstrip("/").rpartition("/")
        if first == second:
            return self.mended, self.original
        return first, second

    def average(self, rows: ResultRows) -> Estimate | None:
        """Return the gain averaged over groups, each counting once."""
        return rows.estimate(GAIN, **self.key())

    def says(self, group: str, rows: ResultRows) -> str:
        """Return whether a group gains or loses, by the test and by the interval alike.

        The test ignores shared units; the interval does not.
        """
        gain = rows.one(GAIN, **self.key(group))
        if gain is None or gain.q is None:
            return "not measured"
        mended = _only(rows, self.key(group))
        more = mended - _only(rows, self.key(group, of_original=True))
        clear = 0
        if gain.q <= LEVEL:
            clear = interval_sign(gain)
        if clear * more <= 0:
            return "within chance"
        return "gains" if clear > 0 else "loses"


def comparison_table(comparison: ModelComparison, rows: ResultRows) -> Table:
    near = dict.fromkeys(comparison.near_chance, "near chance")
    first, second = comparison.short_names
    columns = (
        TableColumn("group", "shift"),
        "images",
        TableColumn(f"{second} (%)", note=near.get(comparison.original, ""), named=True),
        TableColumn(f"{first} (%)", note=near.get(comparison.mended, ""), named=True),
        "gain (points)",
        "drop smaller by (points)",
        TableColumn(f"only {first} right", named=True),
        TableColumn(f"only {second} right", named=True),
        "answers differ (%)",
        "p",
        TableColumn("says", "text"),
    )
    shown = []
    for group in comparison.groups:
        key = comparison.key(group.name)
        original = comparison.key(group.name, of_original=True)
        gain = rows.one(GAIN, **key)
        images = 0
        p = text_cell(NOTHING)
        if gain is not None:
            images = gain.n or 0
            if gain.q is not None:
                shown_p = "< 0.001" if gain.q < 0.0005 else f"{gain.q:.3f}"
                p = TableCell(shown_p, sort=gain.q)
        cells = (
            text_cell(group.name),
            count_cell(images),
            points_cell(rows.value(ACCURACY, **original)),
            points_cell(rows.value(ACCURACY, **key)),
            points_cell(rows.estimate(GAIN, **key), signed=True, tint=True),
            points_cell(rows.estimate(DROP_GAIN, **key), signed=True),
            count_cell(_only(rows, key)),
            count_cell(_only(rows, original)),
            points_cell(rows.estimate(DIFFERENT_ANSWERS, **key), decimals=2),
            p,
            text_cell(comparison.says(group.name, rows)),
        )
        shown.append(TableRow(cells, "base" if group.is_base else ""))
    caption = f"{comparison.mended} against {comparison.original}, paired by image"
    return Table.of(caption, columns, shown).without_empty()


def comparison_sentences(
    comparison: ModelComparison, rows: ResultRows, checks: LabelChecks | None
) -> list[str]:
    measured = []
    for group in comparison.groups:
        gain = rows.one(GAIN, **comparison.key(group.name))
        if gain is not None and gain.value is not None:
            measured.append(gain)
    average = comparison.average(rows)
    if not measured or average is None:
        return ["No group has a class with enough images, so the models cannot be compared."]
    gain_text = f"{format_points(average.value, signed=True)} points"
    chance = ""
    interval = format_interval(average)
    if interval:
        gain_text += f" (95 % confidence interval {interval})"
        if not interval_sign(average):
            chance = " The interval includes 0, so this may be chance."
    groups_text = format_count(len(measured), "group")
    sentences = [
        _whether_worth(average, measured),
        f"Average over {groups_text}: {gain_text}.{chance}",
    ]
    largest_first = sorted(measured, key=lambda gain: -abs(gain.value or 0.0))
    for word, verb in (("more", "gains"), ("less", "loses")):
        named = []
        for gain in largest_first:
            if comparison.says(gain.group, rows) != verb:
                continue
            points = format_points(gain.value, signed=True)
            note = label_note(checks, gain.group)
            if note:
                points += f"; {note}"
            named.append(f"{gain.group} ({points})")
        if named:
            sentences.append(f"It is significantly {word} often right in {format_list(named)}.")
    if len(sentences) == 2:
        sentences.append("In no group is one of the two models significantly more often right.")
    sentences += _how_alike(comparison, rows)
    based = any(group.is_base for group in comparison.groups)
    if comparison.near_chance and not based:
        sentences.append(f"Near chance on these images: {format_list(comparison.near_chance)}.")
    elif len(comparison.near_chance) == 1:
        sentences.append(
            f"{comparison.near_chance[0]} is near chance on the base, so its own drops mean"
            " nothing."
        )
    elif comparison.near_chance:
        sentences.append("Both models are near chance on the base, so their drops mean nothing.")
    names = comparison.classes_near_chance
    if names:
        sentences.append(
            f"Classes near chance on the base ({format_list(names)}) count in all numbers but"
            " drops, so a class that only one model knows counts."
        )
    if comparison.note:
        sentences.append(comparison.note)
    return sentences


def compare_csv(results: Results) -> str | None:
    """Write one line for each group, the base first. The last line has no group: it is the average
    over groups."""
    comparison = results.comparison
    rows = results.rows
    if comparison is None:
        return None
    lines = []
    for group in comparison.groups:
        key = comparison.key(group.name)
        original = comparison.key(group.name, of_original=True)
        gain = rows.one(GAIN, **key)
        lines.append(
            {
                "model": comparison.mended,
                "other": comparison.original,
                "shift": group.name,
                "kind": group.kind or "",
                "n_classes": group.classes,
                "n_images": (gain.n or 0) if gain else 0,
                "model_accuracy": csv_percent(rows.value(ACCURACY, **key)),
                "other_accuracy": csv_percent(rows.value(ACCURACY, **original)),
                **csv_interval("gain", rows.estimate(GAIN, **key)),
                "only_model_right": _only(rows, key),
                "only_other_right": _only(rows, original),
                **csv_interval("different_answers", rows.estimate(DIFFERENT_ANSWERS, **key)),
                "largest_difference": csv_percent(rows.value(LARGEST_DIFFERENCE, **key)),
                "mcnemar_p": "" if gain is None or gain.p is None else f"{gain.p:.6g}",
                "mcnemar_p_holm": "" if gain is None or gain.q is None else f"{gain.q:.6g}",
                **csv_interval("drop_gain", rows.estimate(DROP_GAIN, **key)),
                "says": comparison.says(group.name, rows),
            }
        )
    average = comparison.average(rows)
    last = {
        **dict.fromkeys(lines[0] if lines else (), ""),
        "model": comparison.mended,
        "other": comparison.original,
        **csv_interval("gain", average),
        "says": "loses more than it gains" if interval_sign(average) < 0 else "",
    }
    return csv_text([*lines, last])


def _only(rows: ResultRows, key: Mapping[str, str]) -> int:
    result = rows.one(ONLY_RIGHT, **key)
    return result.count if result else 0


def _whether_worth(average: Estimate, gains: list[ResultRow]) -> str:
    """Return whether the mended model gains or loses more, by the interval of the average over
    groups."""
    values = [gain.value or 0.0 for gain in gains]
    up = [value for value in values if value > 0]
    down = [value for value in values if value < 0]
    if not up and not down:
        return "Both models are right equally often in every group."
    gained = f"{format_points(sum(up))} points gained, summed over {format_count(len(up), 'group')}"
    lost = (
        f"{format_points(-sum(down))} points lost, summed over {format_count(len(down), 'group')}"
    )
    sign = interval_sign(average)
    if sign < 0 and up:
        return f"It loses more than it gains: {gained}; {lost}."
    if sign < 0:
        return f"It only loses: {lost} of {len(gains)}."
    if sign > 0 and down:
        return f"It gains more than it loses: {gained}; {lost}."
    if sign > 0:
        return f"It only gains: {gained} of {len(gains)}."
    return f"It is not clear whether it gains more than it loses: {gained}; {lost}."


def _how_alike(comparison: ModelComparison, rows: ResultRows) -> Iterator[str]:
    """Yield on how many images answers differ, and by how much confidence does."""
    shares = []
    largest = []
    for group in comparison.groups:
        key = comparison.key(group.name)
        share = rows.one(DIFFERENT_ANSWERS, **key)
        if share is not None and share.value is not None:
            shares.append(share)
        difference = rows.value(LARGEST_DIFFERENCE, **key)
        if difference is not None:
            largest.append(difference)
    if not shares:
        return
    images = sum(share.n or 0 for share in shares)
    different = sum(share.count for share in shares)
    counted = format_count(images, "image")
    if different:
        most = max(shares, key=lambda share: share.value or 0.0)
        percent = format_percent(most.value, 2)
        interval = format_interval(most.estimate, decimals=2)
        yield (
            f"They answer differently on {different:,} of {counted}; most often in {most.group}"
            f" ({percent}, {interval})."
        )
    else:
        yield f"They give the same answer to each of {counted}."
    if largest:
        by = format_points(max(largest), decimals=2)
        yield f"Their confidence in one answer differs by {by} points at most."


def _section(results: Results, drawn: Sequence[Any]) -> ReportSection | None:
    comparison = results.comparison
    rows = results.rows
    if comparison is None:
        return None
    return ReportSection(
        title="Two models compared",
        sentences=comparison_sentences(comparison, rows, results.label_checks),
        tables=[comparison_table(comparison, rows)],
        template="report-comparison.html.j2",
    )


def _terminal(results: Results, most_models: int) -> list[str | Table]:
    comparison = results.comparison
    rows = results.rows
    if comparison is None:
        return []
    return [
        comparison_table(comparison, rows),
        *comparison_sentences(comparison, rows, results.label_checks),
    ]


SHOWN = Shown(
    "counts",
    _section,
    _terminal,
    file="compare.csv",
    csv=compare_csv,
    measures=MEASURE_FACTS,
    private=True,
)
