"""Match the categories of a detector with those of a dataset, by name or by number.

A number alone is ambiguous. It may be the position of one of the dataset's categories, counted from
0 or from 1, the category's number in the dataset's source, the position of one of COCO's 80
categories, from 0 to 79, or COCO's own id, from 1 to 90. A meaning is used only if no other meaning
explains every number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.data.written_objects import written_id
from counterfoil.errors import Problems
from counterfoil.evaluation.messages import message, refusal
from counterfoil.recipe.names import did_you_mean, plain_name
from counterfoil.regular_files import named_path, read_regular
from counterfoil.report.words import format_list

_COCO = (
    "person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, "
    "fire hydrant, stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, "
    "elephant, bear, zebra, giraffe, backpack, umbrella, handbag, tie, suitcase, frisbee, "
    "skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, "
    "surfboard, tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, "
    "apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, "
    "potted plant, bed, dining table, toilet, tv, laptop, mouse, remote, keyboard, "
    "cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, "
    "teddy bear, hair drier, toothbrush"
)
COCO_NAMES: tuple[str, ...] = tuple(_COCO.split(", "))
# The numbers from 1 to 90 that are no id of COCO.
_GAPS = frozenset((12, 26, 29, 30, 45, 66, 68, 69, 71, 83))
COCO_IDS = tuple(number for number in range(1, 91) if number not in _GAPS)
# The meanings of numbers, as --class-order names them.
POSITION = "position"
FROM_ONE = "from1"
IDS = "ids"
COCO_80 = "coco80"
COCO_91 = "coco91"
ORDERS = (POSITION, FROM_ONE, IDS, COCO_80, COCO_91)
_LONGEST_LIST = 10_000_000
_MOST_UNKNOWN = 5
_MOST_SHOWN = 12


def category_ids(categories: Sequence[str], ids: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the number of each category in a COCO file: its number in the source if known (`ids`),
    COCO's own id if all are COCO's, else 1, 2 and so on.
    """
    if ids:
        return tuple(ids)
    coco = _coco_indices(categories)
    if coco is None:
        return tuple(range(1, len(categories) + 1))
    return tuple(COCO_IDS[index] for index in coco)


def _coco_indices(categories: Sequence[str]) -> list[int] | None:
    """Return the place of each category in `COCO_NAMES`; None if COCO lacks one."""
    plain_names = list(map(plain_name, COCO_NAMES))
    indices = []
    for name in categories:
        plain = plain_name(name)
        if plain not in plain_names:
            return None
        indices.append(plain_names.index(plain))
    return indices


@dataclass(frozen=True)
class CategoryMap:
    """Where each category of a detector is in the dataset's list of categories."""

    index_of: Mapping[Any, int]
    """The detector's name or number of a category → its index in the list. A name or number that is
    missing here is no category of the dataset."""
    matched: str = ""
    """A sentence on how the categories were matched, or empty if it is obvious."""


def map_names(
    names: Sequence[str],
    categories: Sequence[str],
    model: str,
) -> CategoryMap:
    """Match the detector's labels with the dataset's categories by name. The label with number i
    has the name names[i].

    Raise UserError if the detector lacks a category of the dataset. Measures leave out the
    detector's other categories.
    """
    known = set(map(plain_name, names))
    problems = Problems(message)
    labels = ", ".join(names)
    for name in categories:
        if plain_name(name) not in known:
            problems.add("unclear-category.label", model, name, names, labels=labels)
    problems.refuse()
    place_of = {plain_name(name): index for index, name in enumerate(categories)}
    index_of = {}
    # Several labels may have one name.
    for number, name in enumerate(names):
        plain = plain_name(name)
        if plain in place_of:
            index_of[number] = place_of[plain]
    others = len(names) - len(index_of)
    matched = ""
    if others:
        matched = f"{others} of its {len(names)} labels are no category of the dataset"
    return CategoryMap(index_of, matched)


@dataclass(frozen=True)
class _Reading:
    """A possible meaning of the numbers of categories."""

    order: str
    """The value of --class-order that names it, or empty if none does."""
    words: str
    index_of: Mapping[Any, int]
    """Number → index of the dataset's category."""
    others: frozenset[int] = frozenset()
    """Numbers of categories that the dataset lacks."""

    def explains(self, numbers: Iterable[int]) -> bool:
        return all(number in self.index_of or number in self.others for number in numbers)

    def kept(self, counts: Mapping[Any, int]) -> int:
        """Return how many detections are of the dataset's categories."""
        return sum(count for number, count in counts.items() if number in self.index_of)


def map_categories(
    detections: Mapping[Any, int],
    categories: Sequence[str],
    model: str,
    order: str | Sequence[str] | None,
    ids: Sequence[int] = (),
) -> CategoryMap:
    """Match the categories that a file uses, names or numbers, with those of the dataset.

    detections: category → number of its detections. order: what the numbers mean, if the user says
    it. ids: the numbers of the dataset's categories in its source, if known.

    Raise UserError for numbers that have several meanings or none, if no detection is of the
    dataset's categories, or if a name looks misspelled.
    """
    known = set(map(plain_name, categories))
    number_of: dict[Any, int] = {}
    counts: Counter[Any] = Counter()
    for value, count in detections.items():
        is_name = isinstance(value, str) and plain_name(value) in known
        number = written_id(value)  # tables may write numbers as text
        if not is_name and isinstance(number, int):
            number_of[value] = number
            counts[number] += count
    if not number_of:
        return _by_name(detections, categories, model)
    if len(number_of) < len(detections):
        raise refusal("unclear-category.mixed", model)
    readings = _readings(categories, ids)
    if order is None:
        chosen = _decided(counts, readings, model)
    elif isinstance(order, str):
        chosen = _ordered(order, readings, categories, model)
    else:
        by_name = map_names([str(name) for name in order], categories, model)
        chosen = _Reading("", by_name.matched, by_name.index_of)
    if not chosen.kept(counts):
        numbers = [f"{number} ({count:,})" for number, count in counts.most_common()]
        shown = format_list(numbers, _MOST_UNKNOWN)
        raise refusal("unclear-category.others", model, shown, meaning=chosen.words)
    matched = {}
    unmatched = {}
    for value, number in number_of.items():
        if number in chosen.index_of:
            matched[value] = chosen.index_of[number]
        else:
            unmatched[number] = counts[number]
    sentences = [chosen.words, _left_out(unmatched, counts.total())]
    return CategoryMap(matched, "; ".join(text for text in sentences if text))


def _readings(categories: Sequence[str], ids: Sequence[int]) -> list[_Reading]:
    """Return what numbers may mean: the dataset's order, its source's numbers, or COCO's if its
    names are COCO's."""
    count = len(categories)
    readings = []

    def add(
        order: str,
        words: str,
        numbers: Iterable[Any],
        others: Iterable[int] = (),
    ) -> None:
        index_of = {number: index for index, number in enumerate(numbers)}
        readings.append(_Reading(order, words, index_of, frozenset(others)))

    add(POSITION, f"numbers are 0 to {count - 1}, in the dataset's order", range(count))
    add(FROM_ONE, f"numbers are 1 to {count}, in the dataset's order", range(1, count + 1))
    if ids:
        add(IDS, "numbers are those of the dataset's source (source.category_ids)", ids)
    as_numbers = [written_id(name) for name in categories]
    if all(isinstance(number, int) for number in as_numbers):
        add("", "numbers are the names of categories", as_numbers)
    coco = _coco_indices(categories)
    if coco is not None:
        add(COCO_80, "numbers are COCO's, 0 to 79", coco, range(80))
        coco_ids = [COCO_IDS[index] for index in coco]
        add(COCO_91, "numbers are COCO's ids, 1 to 90", coco_ids, COCO_IDS)
    return readings


def _ordered(
    order: str,
    readings: Sequence[_Reading],
    categories: Sequence[str],
    model: str,
) -> _Reading:
    """Return the reading that --class-order names."""
    for reading in readings:
        if reading.order == order:
            return reading
    if order == IDS:
        raise refusal("unclear-category.ids", model)
    of_coco = set(map(plain_name, COCO_NAMES))
    unknown = next(name for name in categories if plain_name(name) not in of_coco)
    raise refusal("unclear-category.coco", model, unknown)


def _decided(
    counts: Mapping[Any, int],
    readings: Sequence[_Reading],
    model: str,
) -> _Reading:
    """Return the only reading that explains every number. Raise UserError if no reading does, or
    several.

    Readings that give every number the same category are the same reading. A reading that keeps no
    detection is considered only if no reading keeps a detection.
    """
    distinct = dict[Any, _Reading]()
    for reading in readings:
        if reading.explains(counts):
            indices = tuple(reading.index_of.get(number) for number in counts)
            distinct.setdefault(indices, reading)
    possible = list(distinct.values())
    keeping = [reading for reading in possible if reading.kept(counts)]
    if keeping:
        possible = keeping
    if len(possible) == 1:
        return possible[0]
    total = sum(counts.values())
    meanings = []
    for reading in possible or readings:
        kept = f"keeps {reading.kept(counts):,} of {total:,} detections"
        meanings.append(f"{reading.order or 'names'} ({reading.words}) {kept}")
    numbers = format_list([str(number) for number in sorted(counts)], _MOST_SHOWN)
    problem = "meaningless"
    if possible:
        problem = "meanings"
    raise refusal(f"unclear-category.{problem}", model, numbers, meanings="; ".join(meanings))


def _left_out(unmatched: Mapping[Any, int], total: int) -> str:
    """Return a sentence on the detections of categories that the dataset does not have, or an empty
    text."""
    if not unmatched:
        return ""
    most = sorted(unmatched.items(), key=lambda entry: -entry[1])
    shown = format_list([f"{category} ({count:,})" for category, count in most], _MOST_UNKNOWN)
    left_out = f"{sum(unmatched.values()):,} of {total:,} detections left out"
    return f"{left_out}, because the dataset lacks their categories: {shown}"


def _by_name(
    detections: Mapping[str, int],
    categories: Sequence[str],
    model: str,
) -> CategoryMap:
    known = {plain_name(name): index for index, name in enumerate(categories)}
    index_of = {}
    others = {}
    for name, count in detections.items():
        plain = plain_name(name)
        if plain in known:
            index_of[name] = known[plain]
        else:
            others[name] = count
    if detections and not index_of:
        raise refusal("unclear-category.none", model, ", ".join(others), categories)
    used = set(index_of.values())
    unused = [name for name in categories if known[plain_name(name)] not in used]
    problems = Problems(message)
    for name in others:
        meant = did_you_mean(name, unused)
        if meant:
            problems.add("unclear-category.near", model, name, categories, meant)
    problems.refuse()
    return CategoryMap(index_of, _left_out(others, sum(detections.values())))


def given_names(order: Any, name: str, classes: Sequence[str], what: str) -> Sequence[str] | None:
    """Return the names of a model's numbers that the user gives; None if none are. classes: the
    dataset's. Raise UserError for an order that only files have."""
    names = given_order(order, name)
    if names == POSITION:
        return classes
    if isinstance(names, str):
        raise refusal("class-order.order", name, names, what=what)
    return names


def given_order(order: Any, name: str) -> str | Sequence[str] | None:
    """Return the order of a model's labels that the user gives: a known order, or the names in a
    file or a list."""
    if isinstance(order, Mapping):
        order = order.get(name)
    if order is None or not isinstance(order, str) or order in ORDERS:
        return order
    try:
        text = read_regular(named_path(order), _LONGEST_LIST).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = "is not UTF-8 text"
        if isinstance(error, OSError):
            reason = error
        raise refusal(
            "class-order.unread", f"class_order: {order[:200]}", reason, ORDERS
        ) from error
    return [line.strip() for line in text.splitlines() if line.strip()]
