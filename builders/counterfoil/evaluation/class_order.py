"""Which class each output of a model is, where a person says so: `--class-order`, or `class_order` in Python.

An order is `position` (output i is label i of the dataset: of class folders, torchvision's order), `timm` (the folders'
names as timm sorts them), a file with a class on each line, or the names themselves. It holds for every model of a run,
or for those that it names, and goes before what a model says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.config_files import MOST_CLASSES
from counterfoil.prediction.class_map import Order
from counterfoil.recipe.names import OPEN_CLIP, PREDICTIONS, did_you_mean
from counterfoil.regular_files import named_path, read_regular

ClassOrder = str | Path | Sequence[str]
_MOST_BYTES = 16_000_000
# Their answers bring the classes' names with them.
_NAMED = (PREDICTIONS, OPEN_CLIP)


def class_orders(
    asked: ClassOrder | Mapping[str, ClassOrder] | None, stands_for: Mapping[str, Any]
) -> dict[str, Order]:
    """Return the order of each model that has one. stands_for: what each model's name stands for.

    Raise UserError, with all that is wrong, for models that are not there, for those whose answers are names, and for
    files that list no names.
    """
    if asked is None:
        return {}
    named = {name for name, model in stands_for.items() if isinstance(model, str) and model.startswith(_NAMED)}
    if not isinstance(asked, Mapping):
        order = _order(asked)
        return {name: order for name in stands_for if name not in named}
    orders: dict[str, Order] = {}
    problems: list[str] = []
    for name, value in asked.items():
        if name not in stands_for:
            problems.append(f"class order: {name!r} is not one of the models{did_you_mean(name, [*stands_for])}")
        elif name in named:
            problems.append(f"class order: the answers of {name!r} bring the names of their classes")
        else:
            try:
                orders[name] = _order(value)
            except UserError as error:
                problems += error.problems
    if problems:
        raise UserError(problems, "As in --class-order timm, or --class-order local-dir:my-model=classes.txt.")
    return orders


def _order(value: ClassOrder) -> Order:
    if value in ("position", "timm"):
        return value  # type: ignore[return-value]
    if not isinstance(value, str | Path):
        names = tuple(value)
        if not names or not all(isinstance(name, str) for name in names):
            raise UserError("class order: expected the names of classes, a file of them, position or timm")
        return names
    file = named_path(value)
    try:
        text = read_regular(file, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise UserError(
            f"class order: there is no file {file}, and it is neither position nor timm",
            "Write a file with the class of each output on a line, in the order of the outputs.",
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"class order: {file} is not plain text with a class on each line") from error
    except OSError as error:
        raise UserError(f"class order: {file} cannot be read: {error.strerror or error}") from error
    names = tuple(line.strip() for line in text.rstrip().splitlines())
    if not 0 < len(names) <= MOST_CLASSES:
        raise UserError(f"class order: {file} has {len(names):,} lines, expected 1 to {MOST_CLASSES:,}")
    if empty := [number for number, name in enumerate(names, start=1) if not name]:
        raise UserError(f"class order: line {empty[0]} of {file} is empty, expected a class on each line")
    return names
