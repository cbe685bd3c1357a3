"""A comparison of two models in words: what the mended one gains, what it loses, and whether that was worth it."""

from __future__ import annotations

from counterfoil.evaluation.spoken_numbers import between, points
from counterfoil.report.nested import GroupComparison, ModelComparison

# Groups with differences beyond chance that a sentence names.
_MOST_NAMED = 6


def verdict(comparison: ModelComparison) -> list[str]:
    """Plain sentences, the most important first."""
    measured = [one for one in comparison.groups if one.gain is not None]
    if not measured or comparison.average is None:
        return ["No group has a class with enough images, so nothing is compared."]
    sentences = [_whether_worth(comparison, measured), _on_average(comparison, len(measured))]
    for word, groups in (
        ("more", [one for one in measured if one.gains]),
        ("less", [one for one in measured if one.loses]),
    ):
        if groups:
            sentences.append(f"It is right {word} often, beyond chance, in {_named(groups)}.")
    if not any(one.gains or one.loses for one in measured):
        sentences.append("In no group do the two differ beyond chance.")
    return [*sentences, *_near_chance(comparison), *([comparison.note] if comparison.note else [])]


def _near_chance(comparison: ModelComparison) -> list[str]:
    found = []
    if len(comparison.near_chance) == 1:
        found.append(f"{comparison.near_chance[0]} is near chance on the base, so its own drops say nothing.")
    elif comparison.near_chance:
        found.append("Both models are near chance on the base, so their drops say nothing.")
    names = comparison.classes_near_chance
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        found.append(
            f"Accuracies and drops leave out what is near chance on the base ({', '.join(names[:_MOST_NAMED])}{more});"
            " gains and tests are over every class, so that one which a single model knows counts."
        )
    return found


def spoken_group(one: GroupComparison) -> str:
    """A group's difference in a word or two."""
    if one.p_adjusted is None:
        return "not measured"
    return "gains" if one.gains else "loses" if one.loses else "within chance"


def spoken_p(p: float | None) -> str:
    """A p-value with three decimals; a dash for None."""
    return "–" if p is None else "< 0.001" if p < 0.0005 else f"{p:.3f}"


def _whether_worth(comparison: ModelComparison, measured: list[GroupComparison]) -> str:
    up = [one for one in measured if one.gain is not None and one.gain.value > 0]
    down = [one for one in measured if one.gain is not None and one.gain.value < 0]
    if not up and not down:
        return "Both models are right equally often in every group."
    gained = f"{points(comparison.gained)} points gained, summed over {_counted(len(up), 'group')}"
    lost = f"{points(comparison.lost)} lost, summed over {_counted(len(down), 'group')}"
    if comparison.loses_more:
        return (
            f"It loses more elsewhere than it gains: {gained}; {lost}."
            if up
            else f"It loses and gains nothing: {lost} of {len(measured)}."
        )
    if comparison.gains_more:
        return (
            f"It gains more than it loses elsewhere: {gained}; {lost}."
            if down
            else f"It gains and loses nothing elsewhere: {gained} of {len(measured)}."
        )
    return f"Whether it gains more than it loses elsewhere is not shown: {gained}; {lost}."


def _on_average(comparison: ModelComparison, groups: int) -> str:
    average = comparison.average
    assert average is not None
    interval = between(average)
    held = not (comparison.loses_more or comparison.gains_more)
    chance = " The interval holds 0, so the sum of it may be chance." if held and interval else ""
    told = f" ({interval})" if interval else ""
    gain = points(average.value, signed=True)
    return f"Over {_counted(groups, 'group')}, each counting once: {gain} points{told}.{chance}"


def _named(groups: list[GroupComparison]) -> str:
    ordered = sorted(groups, key=lambda one: -abs(one.gain.value) if one.gain else 0.0)
    named = [f"{one.name} ({points(one.gain.value if one.gain else None, signed=True)})" for one in ordered]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f"{', '.join(named[:_MOST_NAMED])}{more}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
