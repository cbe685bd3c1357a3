"""Whether a dataset's labels are true: the answers of a second judge and of people, by shift:
facts, table, words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil.documents import Strict
from counterfoil.report.sections import MeasureFacts, ReportSection, Shown
from counterfoil.report.words import (
    Table,
    TableCell,
    TableColumn,
    TableRow,
    format_count,
    format_interval,
    format_number,
    format_points,
)
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    from counterfoil.report.results import Results

DISAGREEMENT = "label_disagreement"
LABEL_ERROR = "label_error"
SELECTED_AS_CLASS = "selected_as_class"
SELECTED_AS_SHIFT = "selected_as_shift"
_PEOPLE = "How often people select images, averaged over images, "
MEASURE_FACTS = (
    MeasureFacts(
        DISAGREEMENT,
        "Disagreement",
        "percent",
        "The share of labels that the judge `against` denies.",
    ),
    MeasureFacts(
        LABEL_ERROR, "Label error", "percent", "That share, corrected for the judge's errors."
    ),
    MeasureFacts(
        SELECTED_AS_CLASS, "Shows the class", "percent", f"{_PEOPLE}as showing their class."
    ),
    MeasureFacts(
        SELECTED_AS_SHIFT, "Shows the shift", "percent", f"{_PEOPLE}as showing the shift."
    ),
)
# Fewer images cannot show whether a shift's labels are true.
LEAST_IMAGES = 10
ALSO_SCORED = "this judge is also one of the models here: its own drop is part of this estimate"
ASSUMED = (
    "the estimate assumes that the judge errs here as often as on validation images: it is too high"
    " if the judge errs more under a shift, and too low if the judge learned the source's shortcuts"
)
UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class CheckedShare(Strict):
    """A share of images with its 95 % interval; all three from 0 to 1."""

    value: float
    low: float
    high: float

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.value, self.low, self.high)


@dataclass(frozen=True, slots=True)
class JudgedLabels(Strict):
    """The second judge's answers (`screen.judge`) to a shift, or to one class under it.

    images: accepted images with an answer. disagreed: answers that name another class than the
    label. label_error: the share of false labels, corrected for the judge's errors on validation
    images (Rogan and Gladen 1978); it assumes that the judge errs here as often, and bounds
    nothing. None without validation images.
    """

    images: int
    disagreed: int
    disagreement: CheckedShare
    label_error: CheckedShare | None


@dataclass(frozen=True, slots=True)
class SelectedByPeople(Strict):
    """People's answers about a shift (Vendrow 2023, appendix A.4): selection frequencies, averaged
    over images.

    images: those that were shown for the task; selected: None if none were. kappa: Fleiss' kappa;
    None with one rater.
    """

    class_images: int
    class_selected: CheckedShare | None
    class_kappa: float | None
    shift_images: int
    shift_selected: CheckedShare | None
    shift_kappa: float | None


@dataclass(frozen=True, slots=True)
class ShiftChecks(Strict):
    """The checks of the labels of one shift (`base` is one). classes: the judge's, by class id.

    picked: whether a keep rule chose its images by this judge's own failures, so that it cannot
    check their labels.
    """

    shift: str
    judge: JudgedLabels | None = None
    people: SelectedByPeople | None = None
    classes: Mapping[str, JudgedLabels] = field(default_factory=dict)
    picked: bool = False

    @property
    def checked(self) -> bool:
        """Whether people, or a judge that did not pick the images, checked `LEAST_IMAGES`."""
        by_judge = self.judge is not None and not self.picked and self.judge.images >= LEAST_IMAGES
        return by_judge or self.seen is not None

    @property
    def seen(self) -> CheckedShare | None:
        """How often people saw the class, if they checked `LEAST_IMAGES`."""
        people = self.people
        return people.class_selected if people and people.class_images >= LEAST_IMAGES else None


@dataclass(frozen=True, slots=True)
class LabelChecks(Strict):
    """The checks of a whole dataset. judge: the second judge's name. validated_on: its validation
    images, if any.

    raters: how many people. controls: the share of real images of the class that they selected.
    also_scored: models of an evaluation that are the judge itself, whose own drop is part of its
    estimate. own: the labels are the input dataset's, of the very images that were changed, so that
    the class need not be checked.
    """

    judge: str | None
    validated_on: int | None
    shifts: tuple[ShiftChecks, ...]
    raters: int = 0
    controls: CheckedShare | None = None
    also_scored: tuple[str, ...] = ()
    own: bool = False

    def of(self, shift: str) -> ShiftChecks:
        """Return the checks of a shift; empty ones if there are none."""
        for shift_checks in self.shifts:
            if shift_checks.shift == shift:
                return shift_checks
        return ShiftChecks(shift)


def labels_table(checks: LabelChecks, groups: Sequence[str], *, people: bool = True) -> Table:
    """Return the checks of each group, in percent with their intervals: the judge's columns, and
    those of people."""
    rows = []
    for index, name in enumerate(groups):
        shift_checks = checks.of(name)
        cells = [TableCell(name, "" if shift_checks.checked else UNCHECKED, name)]
        judge = shift_checks.judge
        if judge is None:
            cells += [TableCell(UNCHECKED), TableCell("–")]
        else:
            picked = ", picked" if shift_checks.picked else ""
            below = f"{judge.disagreed:,} of {judge.images:,}{picked}"
            error = judge.label_error
            cells += [
                _share(judge.disagreement, below),
                _share(error, "") if error else TableCell("unknown"),
            ]
        if people:
            answers = shift_checks.people or SelectedByPeople(0, None, None, 0, None, None)
            cells += _people_cells(
                answers.class_selected,
                answers.class_kappa,
                answers.class_images,
            )
            cells += _people_cells(
                answers.shift_selected,
                answers.shift_kappa,
                answers.shift_images,
            )
        rows.append(TableRow(tuple(cells), "base" if index == 0 else ""))
    columns = [
        TableColumn("shift", "shift"),
        "judge disagrees (%)",
        "estimated label error (%)",
    ]
    if people:
        columns += ["people: shows the class (%)", "kappa"]
        columns += ["people: shows the shift (%)", "kappa"]
    return Table.of("Checks of the labels by shift, in percent with 95 % intervals", columns, rows)


def _people_cells(
    selected: CheckedShare | None,
    kappa: float | None,
    images: int,
) -> list[TableCell]:
    share = TableCell(UNCHECKED)
    if selected is not None:
        share = _share(selected, format_count(images, "image"))
    return [share, TableCell(format_number(kappa), sort="" if kappa is None else kappa)]


def worst_classes(checks: ShiftChecks, most: int) -> list[tuple[str, JudgedLabels]]:
    """Return the classes of a shift that the judge doubts most, by estimate if there is one."""

    def doubt(item: tuple[str, JudgedLabels]) -> tuple[float, float, int]:
        _, judged = item
        disagreement = judged.disagreement
        error = judged.label_error or disagreement
        return -error.value, -disagreement.value, -judged.images

    doubted = [item for item in checks.classes.items() if item[1].disagreed]
    return sorted(doubted, key=doubt)[:most]


def labels_text(checks: LabelChecks) -> str:
    """Return a line for the second judge and one for people: on the base, and on the shift with the
    most doubt."""
    if checks.own and not checks.raters and checks.judge is None:
        return (
            "labels: from the input dataset; not checked on the changed images (counterfoil review)"
        )
    lines = [line for line in (_judge_text(checks), _people_text(checks)) if line is not None]
    return (
        "\n".join(lines)
        or "labels: not checked by a second judge (screen.judge) or by people (counterfoil review)"
    )


def share_words(share: CheckedShare, unit: str = "") -> str:
    """Return a share in percent with its interval."""
    return f"{format_points(share.value)}{unit} ({format_interval(share.estimate)})"


def _share(share: CheckedShare, below: str) -> TableCell:
    return TableCell(share_words(share), below, share.value)


def _judge_text(checks: LabelChecks) -> str | None:
    if checks.judge is None:
        return None
    judged = {}
    for shift_checks in checks.shifts:
        if shift_checks.judge is not None and not shift_checks.picked:
            judged[shift_checks.shift] = shift_checks.judge
    if not judged:
        but = ""
        if any(shift_checks.picked for shift_checks in checks.shifts):
            but = ", except images that a keep rule chose because this judge gets them wrong"
        return f"labels: the second judge {checks.judge} has no answer to any accepted image{but}"
    shares = {}
    for shift, labels in judged.items():
        if labels.label_error is not None:
            shares[shift] = labels.label_error
    estimated = len(shares) > 0
    if estimated:
        what = "estimated label error"
        none = "estimate"
        on = f"corrected on {checks.validated_on:,} validation images"
    else:
        shares = {shift: labels.disagreement for shift, labels in judged.items()}
        what = "disagreement with the labels"
        on = "own error rate unknown"
        none = "answer that checks labels"
    parts = _extremes(shares, max(shares, key=lambda name: shares[name].value))
    text = f"labels: {what} {', at most '.join(parts)} (second judge {checks.judge}, {on})"
    without = len(checks.shifts) - len(shares)
    if without:
        have = "has" if without == 1 else "have"
        text += f"; {without:,} of {len(checks.shifts):,} {have} no {none}"
    if estimated:
        text += f"; {ASSUMED}"
    if checks.also_scored:
        text += f"; {ALSO_SCORED}"
    return text


def _extremes(shares: Mapping[str, CheckedShare], worst: str) -> list[str]:
    """Return the share of the first shift, which is the base, and of the worst."""
    return [
        f"{share_words(shares[name], ' %')} under {name}"
        for name in dict.fromkeys([next(iter(shares)), worst])
    ]


def _people_text(checks: LabelChecks) -> str | None:
    selected = {
        shift_checks.shift: shift_checks.people.class_selected
        for shift_checks in checks.shifts
        if shift_checks.people is not None
    }
    known = {shift: share for shift, share in selected.items() if share is not None}
    who = f"{checks.raters:,} {'person' if checks.raters == 1 else 'people'}"
    if not known:
        return f"labels: {who} checked shifts only, not classes" if selected else None
    parts = _extremes(known, min(known, key=lambda name: known[name].value))
    return f"labels: images in which people see the class: {', at least '.join(parts)} ({who})"


def checked_shifts(results: Results) -> frozenset[str]:
    """Return the groups whose labels people or a second judge have checked, or that are the
    source's own."""
    checks = results.label_checks
    if checks is None:
        return frozenset()
    return frozenset(
        group.name for group in results.groups if checks.own or checks.of(group.name).checked
    )


def wrong_labels(checks: LabelChecks | None, shift: str) -> CheckedShare | None:
    """Return the share of a shift's labels that is wrong: by people, else by the judge; None if
    neither says."""
    of_shift = ShiftChecks(shift) if checks is None else checks.of(shift)
    judge = of_shift.judge
    seen = of_shift.seen
    if seen is not None:
        return CheckedShare(1 - seen.value, 1 - seen.high, 1 - seen.low)
    if judge is None or of_shift.picked or judge.images < LEAST_IMAGES:
        return None
    return judge.label_error


def lost_to_labels(checks: LabelChecks | None, shift: str, accuracy: float) -> float:
    """Return how much lower an accuracy under a shift is for wrong labels, which no answer
    matches."""
    wrong = wrong_labels(checks, shift)
    if wrong is None:
        return 0.0
    # Every right answer is to an image with a right label.
    right_labels = max(1 - wrong.value, 0.001)
    of_right_labels = min(1.0, accuracy / right_labels)
    return of_right_labels - accuracy


def label_note(checks: LabelChecks | None, shift: str) -> str:
    """Return the share of a shift's labels that may be wrong, as a clause; empty if it is unknown
    or rounds to 0."""
    wrong = wrong_labels(checks, shift)
    if wrong is None or wrong.value < 0.005:
        return ""
    interval = format_interval(wrong.estimate, decimals=0)
    return f"{format_points(wrong.value, decimals=0)} % ({interval}) of its labels may be wrong"


def _section(results: Results, drawn: Sequence[Any]) -> ReportSection | None:
    if results.base is None:
        return None
    checks = results.label_checks
    checked = checked_shifts(results)
    groups = [group.name for group in (*results.groups[:1], *results.by_impact)]
    unchecked = sum(shift.name not in checked for shift in results.shifts)
    controls = ""
    tables = []
    if checks is not None and checks.controls is not None:
        controls = share_words(checks.controls)
    if checks is not None and checked:
        tables.append(labels_table(checks, groups, people=bool(checks.raters)))
    alert = ""
    if unchecked:
        alert = f"The labels of {format_count(unchecked, 'shift')} are unchecked"
    return ReportSection(
        title="Are the labels still true?",
        short="Labels",
        tables=tables,
        alert=alert,
        template="report-labels.html.j2",
        more={"controls": controls, "also_scored": ALSO_SCORED, "least_images": LEAST_IMAGES},
    )


SHOWN = Shown(
    "comparison",
    _section,
    lambda results, most_models: (
        labels_text(results.label_checks).splitlines() if results.label_checks else []
    ),
    measures=MEASURE_FACTS,
    private=True,
)
