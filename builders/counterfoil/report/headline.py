"""Which shift a model loses most under, after what is known of its labels: every output headlines
by this rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from counterfoil.report.labels import checked_shifts, label_note, lost_to_labels
from counterfoil.report.results import DROP_BASE, ResultRow, Results
from counterfoil.report.words import format_points, in_words, loss_in_words


def _named(shift: str) -> str:
    name = in_words(shift)
    return f"“{name}”" if " " in name else name


def left_of(results: Results, drop: ResultRow, value: float | None) -> float:
    """Return what wrong labels leave of a drop, or of an end of its interval; a row without a model
    is an average."""
    key = {"group": drop.group, "at": drop.at}
    if drop.model:
        key["model"] = drop.model
        base = results.rows.value(DROP_BASE, **key)
    else:
        base = results.averaged(DROP_BASE, **key)
    if base is None:
        base = 1.0
    value = value or 0.0
    return value - lost_to_labels(results.label_checks, drop.group, base - value)


def by_loss(results: Results, drops: Iterable[ResultRow]) -> list[ResultRow]:
    """Return the drops that have a value, the largest first by what wrong labels leave of them.

    If some of the shifts have checked labels, the others are left out.
    """
    known = [drop for drop in drops if drop.value is not None]
    checked = checked_shifts(results)
    trusted = [drop for drop in known if drop.group in checked] or known
    return sorted(trusted, key=lambda drop: left_of(results, drop, drop.value), reverse=True)


def label_clause(results: Results, known: Sequence[ResultRow]) -> str:
    """Return what is known of the labels of the first of the sorted drops, and of those of a larger
    drop."""
    note = label_note(results.label_checks, known[0].group)
    larger = max(known, key=lambda drop: drop.value or 0.0)
    clauses = [note] if note else []
    if (larger.value or 0.0) > (known[0].value or 0.0):
        shown = f"{_named(larger.group)} shows {format_points(larger.value)} points"
        clauses.append(f"{shown}, but {label_note(results.label_checks, larger.group)}")
    return "".join(f"; {clause}" for clause in clauses)


def loss_sentence(
    results: Results,
    who: str,
    measure: str,
    drops: Sequence[ResultRow],
    beside: str = "",
    loses: str = "loses",
) -> str:
    """Return under which shift `who` loses most of a measure, and what intervals and labels allow.

    drops: one row a shift, at least one with a value. beside: a clause on another measure.
    """
    drops = [drop for drop in drops if drop.value is not None]
    known = by_loss(results, drops)
    worst = known[0]
    most_lost = known[0].estimate
    assert most_lost is not None
    over = f", {worst.note}" if worst.note else ""
    if most_lost.value > 0:
        sure = most_lost.low is not None and left_of(results, worst, most_lost.low) > 0
        if not sure:
            loses = "may lose"
        loss = f"{loss_in_words(most_lost, measure)}{over}{beside}{label_clause(results, known)}."
        if most_lost.low is None:
            loss += " There are too few images for an interval."
        elif most_lost.low <= 0:
            loss += " The interval includes 0."
        return f"{who} {loses} most under {_named(worst.group)}: {loss}"
    shows = "show" if loses == "lose" else "shows"
    any_shift = "any checked shift" if len(known) < len(drops) else "any shift"
    under = f"under {any_shift}{over}{beside}"
    if most_lost.high is None:
        return (
            f"{who} {shows} no loss of {measure} {under}, but has too few images for an interval."
        )
    reach = max(known, key=lambda drop: drop.high or 0.0)
    most = format_points(max(0.0, reach.high or 0.0))
    if most == format_points(0.0):
        return f"{who} {loses} no {measure} {under}."
    allowed = f"the intervals allow a loss of up to {most} points ({in_words(reach.group)})"
    return f"{who} {shows} no loss of {measure} {under}, but {allowed}."


def headline_of(results: Results) -> str:
    """Return the sentence on all classifiers together, or one on each model of another kind; empty
    without shifts."""
    if results.lead != "accuracy":
        lead = results.lead
        sentences = []
        for model in results.sound_models:
            drops = results.rows.where("drop", model=model.name, class_id="", at=lead)
            if drops:
                sentences.append(loss_sentence(results, model.short_name, lead, drops))
        return " ".join(sentences)
    impacts = [drop for drop in results.rows.where("impact", class_id="") if drop.value is not None]
    if not impacts:
        # Other sentences tell of classes near chance.
        if results.base is None or results.near_chance_classes or not results.shifts:
            return ""
        if not any(shift.classes for shift in results.shifts):
            least = results.min_images_per_class
            return (
                f"No drop can be measured: no class has {least} images under a shift and on the"
                " base (--min-images)."
            )
        if results.sound_models:
            return ""
        return "No drop can be measured: every model is near chance on the base."
    if len(results.models) > 1:
        sentence = loss_sentence(
            results,
            "The models",
            "accuracy on average",
            impacts,
            loses="lose",
        )
    else:
        sentence = loss_sentence(results, results.models[0].short_name, "accuracy", impacts)
    checked = checked_shifts(results) & {shift.name for shift in results.shifts}
    return sentence if checked else f"{sentence} The labels are unchecked."
