"""`mend`: fit a model's head again with drawn images, judge it beside its controls, and leave it as a model folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from counterfoil.errors import UserError
from counterfoil.mending.arms import SAVED_ROLES, role_of
from counterfoil.mending.choosing import GRID, lambda_grid
from counterfoil.mending.fitting import FITS
from counterfoil.mending.given import given_arms
from counterfoil.mending.mended_files import MendResult, refuse_another_run, write_mended
from counterfoil.mending.one_model import MendedModel, mend_one
from counterfoil.mending.opening import open_source
from counterfoil.mending.prepared import MendSettings, prepare
from counterfoil.mending.seen import refuse_unmendable
from counterfoil.mending.told import asked_names, told_run
from counterfoil.models.classifiers.of_python import PREFIX, HandedOver, Transform, handed_over
from counterfoil.models.devices import resolve_device
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import did_you_mean
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder, try_folder
from counterfoil.store.directory_lock import directory_lock

BEST, NONE = "best", "none"
Models: TypeAlias = "str | Sequence[str] | Callable[[Any], Any] | Mapping[str, Callable[[Any], Any] | str]"


def mend(
    models: Models,
    on: Recipe | str | Path,
    using: str | Sequence[str],
    out: str | Path,
    *,
    transform: Transform | Mapping[str, Transform] | None = None,
    overrides: Sequence[str] = (),
    audited: Sequence[str] | None = None,
    test: str | None = None,
    lambdas: Sequence[float] = GRID,
    fit: Literal["lbfgs", "sgd"] = "lbfgs",
    per_class: int | None = None,
    seed: int = 0,
    save: str | None = None,
    own: Mapping[str, str] | None = None,
    effects: bool = False,
    device: str = "auto",
) -> MendResult:
    """Fit heads of `models` again with the images of `using`; leave in `out` what that gains, and a model folder.

    `models` may be a torch module, or a mapping from names to modules and names of models, as `evaluate` takes them,
    with `transform`; such a module is left as it is, and `heads` of the result has the new one. A function has no head.
    `on` is a recipe, by a bundled name, a path or as a value, whose source gives training rows, and whose section
    `mine` says what is audited; `audited` names other splits than that. `using` are built datasets (`DATASET` or
    `DATASET:GROUP`), weights of training rows (a file of `mine --weights`), and `dfr:clip`, `dfr:COLUMN` or
    `dfr:FILE`, whose groups are balanced. λ is chosen on the discover half; what is told is measured on the confirm
    half and on the split `test`, beside the head retrained without any of these and, where the dataset has them, images
    of class names and of random contexts. `per_class` training rows are used a class (None: 30, or more of few classes,
    30,000 in all), `seed` draws them.
    `save` is the arm whose head is left, `best` by the discover half, or `none`; None leaves the best where it is
    shown to help, and no model else. `own` says which dataset is each model's own, for several models; `effects` also
    fits heads with fewer contexts and images. Run again, it goes on where it stood, to the same bytes. Raises UserError
    for input that cannot be used, images that are learned from and judged by among it, and a dataset on whose base a
    model is near chance; RunFailure where the run cannot go on.
    """
    with handed_over(models, transform) as (called, held):
        return _mended(
                called, held, on, using, out, overrides=overrides, audited=audited, test=test, lambdas=lambdas, fit=fit,
                per_class=per_class, seed=seed, save=save, own=own, effects=effects, device=device,
        )  # fmt: skip


def _mended(
    models: Sequence[str],
    held: Sequence[HandedOver],
    on: Recipe | str | Path,
    using: str | Sequence[str],
    out: str | Path,
    *,
    overrides: Sequence[str],
    audited: Sequence[str] | None,
    test: str | None,
    lambdas: Sequence[float],
    fit: Literal["lbfgs", "sgd"],
    per_class: int | None,
    seed: int,
    save: str | None,
    own: Mapping[str, str] | None,
    effects: bool,
    device: str,
) -> MendResult:
    names = tuple(dict.fromkeys(models))
    owned = {PREFIX + name if PREFIX + name in names else name: written for name, written in (own or {}).items()}
    strange = [name for name in owned if name not in names]
    if strange:
        raise UserError(f"--own {strange[0]}: it is no model that is mended{did_you_mean(strange[0], names)}")
    given = given_arms([using] if isinstance(using, str) else list(using))
    theirs = {name: given_arms([written])[0] for name, written in owned.items()}
    if fit not in FITS:
        raise UserError(f"--fit: found '{fit}', expected {' or '.join(FITS)}{did_you_mean(fit, FITS)}")
    settings = MendSettings(lambda_grid(lambdas), fit, per_class, seed, save, effects)
    known = (BEST, NONE, *(one.name for one in given if role_of(one) in SAVED_ROLES))
    if save is not None and save not in known and save in (one.name for one in given):
        raise UserError(
            f"--save {save}: its groups are true ones, so that its head is a bound and no model to use",
            f"Name another: {', '.join(known)}.",
        )
    if save is not None and save not in known:
        raise UserError(f"--save: found '{save}', expected {', '.join(known)}{did_you_mean(save, known)}")
    source = open_source(on, overrides, test, per_class, seed, audited)
    for one in held:
        one.images = lambda: [source.train]
    refuse_unmendable(names, source)
    folder = named_path(out)
    used_device = resolve_device(device)
    try_folder(folder)
    make_folder(folder)
    with directory_lock(folder):
        refuse_another_run(folder, source, names, settings, asked_names(given, theirs, source.mine))
        prepared = prepare(source, given, theirs, settings)
        found: list[MendedModel] = []
        for name in names:
            found.append(mend_one(name, prepared, folder, used_device))
        mended = told_run(prepared, found)
        return write_mended(folder, mended, found, prepared)
