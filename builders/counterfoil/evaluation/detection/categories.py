"""Match the categories of a detector with those of a dataset, by name or by number.

A number alone is ambiguous: detectors of COCO number its 80 categories from 0 to 79, or by COCO's own ids from 1 to 90.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.errors import UserError, first_of
from counterfoil.recipe.names import did_you_mean, plain_name
from counterfoil.report.words import listed

COCO_NAMES = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant",
    "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard",
    "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli",
    "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant", "bed", "dining table", "toilet",
    "tv", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator",
    "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip
# The numbers from 1 to 90 that are no id of COCO.
_GAPS = frozenset((12, 26, 29, 30, 45, 66, 68, 69, 71, 83))
COCO_IDS = tuple(number for number in range(1, 91) if number not in _GAPS)
POSITION, COCO_80, COCO_91 = "position", "coco80", "coco91"
_HINT = (
    "Write names of categories, or say which category each number is with --class-order MODEL=position, coco80,"
    " coco91 or a file with a name on each line."
)
_MOST_UNKNOWN = 5


def category_ids(categories: Sequence[str]) -> tuple[int, ...]:
    """Return the number of each category in a COCO file: COCO's own id if all are COCO's, else 1, 2 and so on."""
    of_coco = {plain_name(name): number for name, number in zip(COCO_NAMES, COCO_IDS, strict=True)}
    coco_ids = tuple(of_coco.get(plain_name(name), 0) for name in categories)
    return coco_ids if all(coco_ids) else tuple(range(1, len(categories) + 1))


@dataclass(frozen=True)
class CategoryMap:
    """Where each category of a detector is in the dataset's list of categories.

    place: the detector's name or number of a category → its index in the list. A name or number that is missing here is
    no category of the dataset. matched: a sentence on how the categories were matched, or empty if it is obvious.
    """

    place: Mapping[Any, int]
    matched: str = ""


def map_names(names: Sequence[str], categories: Sequence[str], model: str) -> CategoryMap:
    """Match the detector's labels with the dataset's categories by name. The label with number i has the name names[i].

    Raise UserError if the detector lacks a category of the dataset. Measures leave out the detector's other categories.
    """
    known = set(map(plain_name, names))
    lacking = [name for name in categories if plain_name(name) not in known]
    if lacking:
        raise UserError(
            first_of([f"{model}: no label is called '{name[:80]}'{did_you_mean(name, names)}" for name in lacking]),
            f"Its labels are {', '.join(names)[:300]}. Rename categories in the recipe (source.categories) as the"
            " detector calls them, or give its names in order as class_order.",
        )
    place_of = {plain_name(name): at for at, name in enumerate(categories)}
    # Several labels may have one name.
    index_of = {number: place_of[plain] for number, name in enumerate(names) if (plain := plain_name(name)) in place_of}
    others = len(names) - len(index_of)
    return CategoryMap(
        index_of, f"{others} of its {len(names)} labels are no category of the dataset" if others else ""
    )


def map_found(
    found: Iterable[str | int],
    categories: Sequence[str],
    model: str,
    order: str | Sequence[str] | None,
    *,
    from_one: bool = False,
) -> CategoryMap:
    """Match the categories that a file of detections uses, names or numbers. `order` says what the numbers mean.

    from_one: whether numbers from 1 to the number of categories count from 1 if nothing else says what they mean.

    If the dataset has COCO's names, the numbers themselves show whether they are COCO's ids or count from 0. Raise
    UserError for numbers whose meaning is unknown, if the dataset has none of the names, or if a name looks misspelled.
    """
    values = list(found)
    numbers = [value for value in values if isinstance(value, int)]
    if not numbers:
        return _by_name([value for value in values if isinstance(value, str)], categories, model)
    if len(numbers) < len(values):
        raise UserError(f"{model}: some categories are numbers and some are names", _HINT)
    if order is not None and not isinstance(order, str):
        return map_names([str(name) for name in order], categories, model)
    if order == POSITION:
        beyond = [number for number in numbers if not 0 <= number < len(categories)]
        if beyond:
            raise UserError(f"{model}: there is no category {beyond[0]}; the dataset has {len(categories)}, from 0 on")
        return CategoryMap({index: index for index in range(len(categories))}, "category i is the dataset's category i")
    of_coco = {plain_name(name): index for index, name in enumerate(COCO_NAMES)}
    unknown = [name for name in categories if plain_name(name) not in of_coco]
    if unknown and order is not None:
        raise UserError(f"{model}: '{unknown[0][:80]}' is no category of COCO", _HINT)
    if unknown:
        return _by_own_number(numbers, len(categories), model, from_one)
    looks_80 = 0 in numbers or any(number in _GAPS for number in numbers)
    looks_91 = any(number > 79 for number in numbers)
    if any(not 0 <= number <= 90 for number in numbers) or (looks_80 and looks_91 and order is None):
        raise UserError(f"{model}: its categories are numbered neither from 0 to 79 nor by COCO's ids", _HINT)
    from_zero = order == COCO_80 or (order is None and looks_80)
    index_of = {}
    for at, name in enumerate(categories):
        coco = of_coco[plain_name(name)]
        index_of[coco if from_zero else COCO_IDS[coco]] = at
    numbered = "0 to 79, in COCO's order" if from_zero else "COCO's ids, 1 to 90"
    return CategoryMap(index_of, f"categories are numbered {numbered}")


def _by_own_number(numbers: Sequence[int], count: int, model: str, from_one: bool) -> CategoryMap:
    """Match numbers that count the dataset's categories from 0 or from 1. Raise UserError if they do not show which."""
    first = 0 if 0 in numbers else 1 if from_one or count in numbers else None
    if first is None or any(not first <= number < first + count for number in numbers):
        raise UserError(
            f"{model}: its numbers of categories may count from 0 or from 1"
            if first is None
            else f"{model}: its numbers of categories are not those of {count} categories",
            _HINT,
        )
    return CategoryMap({first + index: index for index in range(count)}, f"categories are numbered from {first}")


def _by_name(names: Sequence[str], categories: Sequence[str], model: str) -> CategoryMap:
    known = {plain_name(name): index for index, name in enumerate(categories)}
    index_of = {name: known[plain_name(name)] for name in names if plain_name(name) in known}
    others = [name for name in names if name not in index_of]
    if names and not index_of:
        raise UserError(
            f"{model}: none of its categories is one of the dataset's: {', '.join(others)[:200]}",
            f"The dataset's categories are {', '.join(categories)[:300]}.",
        )
    unused = [name for name in categories if known[plain_name(name)] not in index_of.values()]
    alike = [(name, hint) for name in others if (hint := did_you_mean(name, unused))]
    if alike:
        raise UserError(
            first_of([f"{model}: there is no category '{name[:80]}'{hint}" for name, hint in alike]),
            f"The dataset's categories are {', '.join(categories)[:300]}.",
        )
    note = f"left out, as no category of the dataset: {listed(others, _MOST_UNKNOWN)}" if others else ""
    return CategoryMap(index_of, note)
