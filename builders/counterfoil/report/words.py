"""Numbers and lists as people read them, in one place: in percent, in points, with intervals, counted, listed."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.stats import Estimate

# What stands where a number could not be measured.
NOTHING = "–"
_MOST_NAMES = 6


def points(value: float | None, *, signed: bool = False, decimals: int = 1) -> str:
    """A fraction as percentage points; a dash for None. A value that rounds to nothing has no sign."""
    return NOTHING if value is None else number(100 * value, decimals, signed=signed)


def percent(value: float | None, decimals: int = 1) -> str:
    """A fraction in percent; a dash for None."""
    return NOTHING if value is None else f"{points(value, decimals=decimals)} %"


def number(value: float | None, decimals: int = 2, *, signed: bool = False) -> str:
    """A number with so many decimals, thousands grouped and a true minus; a dash for None."""
    if value is None:
        return NOTHING
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    text = text.lstrip("+-") if float(text.replace(",", "")) == 0 else text
    return text.replace("-", "−")


def between(estimate: Estimate | None, *, decimals: int = 1) -> str:
    """The interval of an estimate in points, as "low to high"; nothing where there is none."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f"{points(estimate.low, decimals=decimals)} to {points(estimate.high, decimals=decimals)}"


def with_interval(estimate: Estimate | None, unit: str = " points") -> str:
    """An estimate with its interval in brackets, "12.3 points (10.1 to 14.5)"; a dash for None."""
    if estimate is None:
        return NOTHING
    interval = between(estimate)
    return f"{points(estimate.value)}{unit}{f' ({interval})' if interval else ''}"


def counted(count: int, what: str, several: str | None = None) -> str:
    """The number and its noun, in the plural but for one: by an s, or as `several` spells it."""
    return f"{count:,} {what if count == 1 else several or f'{what}s'}"


def listed(names: Sequence[str], most: int = _MOST_NAMES, last: str = "and") -> str:
    """Names in a sentence, "a, b and c"; of more than `most` the first, "a, b and 3 more"."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def spoken(name: str) -> str:
    """A shift's name as words: `in_the_snow` is "in the snow"."""
    return name.replace("_", " ")


def csv_percent(value: float | None) -> str:
    """A fraction as percent with three decimals, as timm prints it; nothing for None."""
    return "" if value is None else f"{100 * value:.3f}"


def csv_interval(name: str, estimate: Estimate | None) -> dict[str, str]:
    """An estimate as three columns, in percentage points: NAME, NAME_low and NAME_high."""
    value, low, high = (estimate.value, estimate.low, estimate.high) if estimate else (None, None, None)
    return {name: csv_percent(value), f"{name}_low": csv_percent(low), f"{name}_high": csv_percent(high)}
