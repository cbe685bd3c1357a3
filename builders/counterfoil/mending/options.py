"""The options of `mend`, for the command and the function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from counterfoil.errors import UserError
from counterfoil.options import (
    DATA,
    MODELS,
    OUTPUT,
    Option,
    Overriding,
    argument,
    in_python,
    named_values,
    option,
    options,
)

if TYPE_CHECKING:
    from counterfoil.models.classifiers.of_python import Transform
    from counterfoil.recipe import Recipe

Models: TypeAlias = (
    "str | Sequence[str] | Callable[[Any], Any] | Mapping[str, Callable[[Any], Any] | str]"
)
EPOCHS = 30  # of a network (Jain 2023, B.1.5)
_FIT = "How heads are fitted"


def _numbers(option: Option, text: str) -> list[float]:
    numbers = []
    for part in text.split(","):
        try:
            numbers.append(float(part))
        except ValueError:
            raise UserError(
                f"{option.spelling}: found '{part.strip()}', expected numbers",
                f"For example: {option.spelling} {option.example}",
            ) from None
    return numbers


@options
class MendOptions(Overriding):
    """What `mend` takes."""

    models: Models = argument("--model", "-m", typed=list[str], metavar="MODEL...")
    """Models to mend, named as for evaluate.

    In Python also a torch module, or a mapping from names to modules or names of models. A module
    is not changed; `heads` of the result and NAME-head.safetensors have the new head. A plain
    function has no head to refit."""
    on: Recipe | str | Path = argument("--on", metavar="RECIPE")
    """The recipe whose source the head is fitted on, as for mine.

    Its source gives the training rows, and its section `mine` says which splits are audited."""
    using: str | Sequence[str] = argument("--with", metavar="DATASET[:GROUP]...")
    """What to mend with: a built dataset (its group contexts, else hard, else all shifts),
    weights.parquet from mine --weights, dfr:clip, dfr:COLUMN or dfr:FILE; or rows of a split that
    direction:SPLIT, confidence:, domino:, early: or lff: calls hard.

    `dfr:` balances groups. The methods of hard rows are followed by a split, as in
    `confidence:SPLIT`."""
    out: str | Path = argument("--out", "-o")
    """Folder for the model, the tables and the report."""
    audited: Sequence[str] | None = option(None, metavar="SPLIT|DATASET", key="mine.on")
    test: str | None = option(None, DATA, metavar="SPLIT")
    """The test split. Default: one that is neither trained on nor audited, else the confirm half.

    It is measured besides the confirm half."""
    lambdas: Sequence[float] | None = option(
        None, _FIT, "--lambda", typed=str, read=_numbers, metavar="NUMBERS", example="0,0.5,1"
    )
    """Weights of the images of --with to try. Default: 0,0.1,0.25,0.5,1,2; for a network 0,0.5."""
    fit: Literal["lbfgs", "sgd", "network"] = option("lbfgs", _FIT, metavar="lbfgs|sgd|network")
    """lbfgs refits the head to the minimum, sgd by 1,000 steps as in Chegini 2023, Table 4. network
    trains the whole network again from new weights."""
    epochs: int = option(EPOCHS, _FIT, least=1, metavar="N")
    """Epochs of --fit network."""
    per_class: int | None = option(
        None, _FIT, least=1, metavar="N", default_words="30, or 30,000 in all"
    )
    """Training images per class, at most.

    None: 30, or more if there are few classes; 30,000 in all."""
    seed: int = option(0, _FIT, least=0)
    """Seed for choosing training images and controls of equal number."""
    save: str | None = option(None, OUTPUT, metavar="WITH", default_words="best, if it helps")
    """Which head to save: that of one --with, best (on the discover half, in the contexts of all
    --with), or none.

    None: save the best if it is shown to help, otherwise save no model."""
    own: Mapping[str, str] | None = option(
        None,
        DATA,
        read=named_values,
        metavar="MODEL=DATASET...",
        example="lab:resnet10t=built:contexts",
    )
    """With several models: the dataset built from a model's own failures."""
    effects: bool = option(False, _FIT)
    """Also fit heads with fewer contexts and fewer images."""
    overrides: Sequence[str] = option((), MODELS, "--set", metavar="KEY=VALUE")
    """Change a value of the recipe, as in samples.candidates=5; null removes it. Repeatable."""
    device: str = option("auto", MODELS)
    """Where to compute: auto, cpu, cuda, cuda:1 …"""
    transform: Transform | Mapping[str, Transform] | None = in_python()
    """Prepares each PIL image for a module: one function for all, or a mapping by name."""


@options
class MendCommand(MendOptions):
    """What the command takes."""

    opened: bool = option(False, OUTPUT, "--open")
    """Open the page in a browser."""
