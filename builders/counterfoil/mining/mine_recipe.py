"""`mine`: audit a classifier on a recipe's images, name what it gets wrong, test that, and write it as a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from counterfoil.engines import engine_for
from counterfoil.errors import UserError
from counterfoil.mining import interventions
from counterfoil.mining.audited import Audited, audit_steps, clip_doubts
from counterfoil.mining.collected import collect_findings
from counterfoil.mining.findings import findings_json
from counterfoil.mining.findings_layer import HARD, VECTORS, laid_over, layer_of, origin_of
from counterfoil.mining.findings_table import findings_csv
from counterfoil.mining.method import CandidateCaptions, DiscoverHalf, Found, Method
from counterfoil.mining.methods import METHODS
from counterfoil.mining.mined_files import (
    FINDINGS,
    LAYER,
    RELABEL,
    REPORT,
    TABLE,
    MineResult,
    refuse_others,
    write_files,
)
from counterfoil.mining.other_classifiers import other_failures, other_models
from counterfoil.mining.pools import asked_pool, filter_steps
from counterfoil.mining.relabelling import with_checked_labels
from counterfoil.mining.rendered_round import refuse_unrendered, rendered_steps
from counterfoil.mining.report import pictures_wanted, report_html
from counterfoil.mining.thumbnails import thumbnails
from counterfoil.mining.train_weights import need_train_split, weight_steps
from counterfoil.models.devices import resolve_devices
from counterfoil.prediction.spread import Spread
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.method_settings import unknown_method, validated
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_mine import CONFIRM, Mine
from counterfoil.regular_files import named_path
from counterfoil.sources.resolved_classes import resolve_classes
from counterfoil.store.atomic import make_folder, remove_stale, try_folder
from counterfoil.store.directory_lock import directory_lock
from counterfoil.under_way import Stage, UnderWay, finish

WEIGHTS = "weights.parquet"
_POOLED = "Their failures choose contexts beside the target's; name others, or none: --set 'mine.settings.pooled=[]'"
_MOST_TEXT_STEPS = 500


def mine(
    recipe: str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    method: str | None = None,
    target: str | None = None,
    on: Sequence[str] | None = None,
    confirm: str | None = None,
    device: str = "auto",
    workers: int | None = None,
    pool: str | None = None,
    pool_rows: int | None = None,
    pool_labels: str | None = None,
    weights: bool = False,
) -> MineResult:
    """Find what a classifier gets wrong and leave in `out`: findings, vectors, a report, and a recipe of the failures.

    `recipe` is a bundled name or a path; its section `mine` says what is audited on what, and what tests it, unless
    `method`, `target`, `on` and `confirm` do. `overrides` are `a.b=c` strings, which the written recipe carries.
    `pool` names a split of the source or another dataset, whose `pool_rows` hardest rows a class become a recipe of
    their own; `pool_labels` is the column of its labels, or `predicted`. `weights` asks for a weight of each row of the
    train split. The same inputs give the same bytes, and what a run that was killed had computed is not computed again;
    what it had rendered lies in `out` as a dataset of its own. With more than one of `workers`, a script that calls
    this needs the usual `if __name__ == "__main__":`. Raises UserError for input that cannot be used, RunFailure where
    the run cannot go on.
    """
    steps = mine_steps(
        recipe,
        out,
        overrides=overrides,
        method=method,
        target=target,
        on=on,
        confirm=confirm,
        device=device,
        workers=workers,
        pool=pool,
        pool_rows=pool_rows,
        pool_labels=pool_labels,
        weights=weights,
    )
    return finish(steps)


def mine_steps(
    recipe: str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    method: str | None = None,
    target: str | None = None,
    on: Sequence[str] | None = None,
    confirm: str | None = None,
    device: str = "auto",
    workers: int | None = None,
    pool: str | None = None,
    pool_rows: int | None = None,
    pool_labels: str | None = None,
    weights: bool = False,
) -> UnderWay[Stage, MineResult]:
    """`mine`, which tells how far each of its stages is."""
    loaded = load_recipe(recipe, overrides)
    told = loaded.mine or Mine()
    if method in METHODS and method != told.method:
        # What the recipe says is another method's; what the command line says is this one's, in what is written too.
        overrides = (*(f"mine.settings.{key}=null" for key in told.settings), f"mine.method={method}", *overrides)
        loaded = load_recipe(recipe, overrides)
    loaded = resolve_classes(loaded)
    mined = _chosen(loaded.mine, method=method, target=target, on=tuple(on) if on else None, confirm=confirm)
    chosen, settings = chosen_method(mined)
    folder = named_path(out)
    devices = resolve_devices(device)
    used_device = devices[0]
    try_folder(folder)
    make_folder(folder)
    with directory_lock(folder):
        if chosen.search is not None:
            refuse_unused(mined, on=on, confirm=confirm, pool_rows=pool_rows, pool_labels=pool_labels)
            refuse_pools(pool, weights, mined)
            return (yield from chosen.search(loaded, mined, settings, recipe, overrides, folder, used_device, workers))
        assert chosen.find is not None
        refuse_unrendered(loaded, mined)
        assert chosen.captions is not None
        gathered, notes = yield from chosen.captions(loaded, settings, folder, used_device)
        texts, references, candidates = gathered
        wanted_pool = asked_pool(pool, pool_rows, pool_labels, loaded, mined)
        if weights:
            need_train_split(loaded)
        others = other_models(loaded, mined)
        beside = mined.model_copy(update={"others": chosen.pooled(settings)})
        pooled_maps = other_models(loaded, beside, _POOLED)
        audits, clip, embedder = yield from audit_steps(
            loaded, mined, used_device, _elsewhere(loaded, devices, workers)
        )
        refuse_others(folder, loaded, mined, [part.content for part in audits[0].parts])
        vectors = yield from _encoded(texts, clip.embed_texts)
        captions = CandidateCaptions(texts, vectors, references, candidates)
        pooled = yield from other_failures(loaded, mined, audits, pooled_maps, used_device)
        several: list[Found] = []
        for audited, theirs in zip(audits, pooled, strict=True):
            half = discover_half(audited, loaded, captions, theirs)
            several.append((yield from chosen.find(half, mined, settings, workers)))
        found = found_together(audits, several)
        rendered = yield from rendered_steps(
            loaded, mined, found, recipe, overrides, folder, ",".join(devices), workers
        )
        findings = yield from collect_findings(
            loaded, mined, settings, audits, captions, found, others, used_device, rendered
        )
        notes = (*notes, *audits[0].unreadable_note())
        findings = replace(findings, notes=(*notes, *chosen.notes(findings, loaded, settings)))
        doubts = clip_doubts(loaded, clip, audits, "words")
        findings = findings.doubted(doubts)
        findings, relabel = with_checked_labels(findings, loaded, clip, audits, found.hypotheses, doubts)
        wanted = frozenset(pictures_wanted(findings))
        images = audits[0].images_of(wanted) | ({} if rendered is None else rendered.images_of(wanted))
        pictures = thumbnails(images, audits[0].parts[0].decoded)
        files = {
            FINDINGS: findings_json(findings).encode(),
            TABLE: findings_csv(findings).encode(),
            VECTORS: vectors_file(loaded, audits[0], found),
            REPORT: report_html(findings, pictures).encode(),
            **({} if relabel is None else {RELABEL: relabel.encode()}),
        }
        decoded = frozenset(cls.id for cls in loaded.classes if f"{cls.label}_{HARD}" in found.vectors)
        if chosen.layer is not None:
            layer = chosen.layer(findings, loaded, recipe, overrides, folder)
        else:
            layer = layer_of(findings, loaded, recipe, overrides, folder, decoded)
        if layer is not None:
            files[LAYER] = layer.encode()
        filtered, pool_layer = None, None
        if wanted_pool is not None:
            filtered = yield from filter_steps(*wanted_pool, loaded, mined, audits, found, embedder, used_device)
            if filtered.count:
                below, changes, extends = laid_over(recipe, overrides, folder)
                origin = origin_of(findings) | {"shared": filtered.shared}
                pool_layer = interventions.pool_files(
                    filtered.hardest, filtered.origin, loaded, below, extends, changes, origin
                )
        of_rows = (yield from weight_steps(loaded, found, embedder)) if weights else None
        # What an earlier run left would lie beside findings that are not its own.
        remove_stale(folder, (FINDINGS, LAYER, RELABEL, interventions.LAYER, interventions.TABLE, WEIGHTS))
        if pool_layer is not None:
            pool_layer.write(folder)
        if of_rows is not None:
            of_rows.write(folder / WEIGHTS, findings)
        write_files(folder, files)
    named = {
        "findings": FINDINGS,
        "table": TABLE,
        "vectors": VECTORS,
        "report": REPORT,
        "relabel": RELABEL,
        "recipe": LAYER,
    }
    there = {what: (folder / name).resolve() for what, name in named.items() if name in files}
    if pool_layer is not None:
        there["pool"] = (folder / interventions.LAYER).resolve()
    if weights:
        there["weights"] = (folder / WEIGHTS).resolve()
    return MineResult(folder, findings, there, filtered)


def refuse_unused(mine: Mine, **given: object) -> None:
    """UserError for options of methods that audit images, where one draws its own."""
    asked = [f"--{option.replace('_', '-')}" for option, value in given.items() if value is not None]
    if asked:
        raise UserError(
            f"{' and '.join(asked)}: the method '{mine.method}' draws the images that it audits",
            "Leave it out; mine.settings.seeds names images that exist, whose failures are described.",
        )


def refuse_pools(pool: str | None, weights: bool, mine: Mine) -> None:
    """UserError for what only methods can do that score any image of a class."""
    asked = [option for option, given in (("--pool", pool is not None), ("--weights", weights)) if given]
    if asked:
        raise UserError(
            f"{' and '.join(asked)}: the method '{mine.method}' describes failures and gives rows no score",
            "Leave it out, or mine by another method: --method directions",
        )


def chosen_method(mine: Mine) -> tuple[Method, Any]:
    """The method that `mine` names, and its settings. UserError for one that there is not, and for wrong settings."""
    if mine.method not in METHODS:
        raise unknown_method(mine.method, METHODS)
    method = METHODS[mine.method]
    return method, validated(method.settings, mine.settings, "mine.settings")


def discover_half(
    audited: Audited, recipe: Recipe, captions: CandidateCaptions, pooled: Mapping[str, NDArray[np.bool_]]
) -> DiscoverHalf:
    """What a method is given of the audited images. pooled: by name, all rows' failures of further classifiers."""
    rows = audited.halves.discover
    return DiscoverHalf(
        features=audited.features[rows],
        labels=audited.labels[rows],
        failed=audited.failed[rows],
        answers=audited.target.predictions.answers[audited.rows[rows]],
        units=audited.units[rows],
        centre=audited.centre,
        spread=audited.spread,
        captions=captions,
        class_names=tuple(cls.name for cls in recipe.classes),
        # A row is in every audit of a condition: what such audits have in common is not pooled over them.
        categories=tuple(
            cls.category if len(audited.classes) == len(recipe.classes) else None for cls in recipe.classes
        ),
        pooled={name: failed[rows] for name, failed in pooled.items()},
    )


def found_together(audits: Sequence[Audited], several: Sequence[Found]) -> Found:
    """What was found in each audit as one: a class's note is from the audit whose class it is."""
    if len(several) == 1:
        return several[0]
    notes = {label: one.notes[label] for audited, one in zip(audits, several, strict=True) for label in audited.classes}
    return Found(
        hypotheses=tuple(hypothesis for one in several for hypothesis in one.hypotheses),
        notes=tuple(notes[label] for label in sorted(notes)),
        vectors={name: vector for one in several for name, vector in one.vectors.items()},
        decide={label: decide for one in several for label, decide in one.decide.items()},
    )


def vectors_file(recipe: Recipe, audited: Audited, found: Found) -> bytes:
    """What `vectors.safetensors` holds: directions by class id, captions by hypothesis, how features are whitened."""
    from safetensors.numpy import save

    ids = [cls.id for cls in recipe.classes]
    arrays: dict[str, Any] = {"centre": audited.centre, "spread": audited.spread}
    for name, vector in found.vectors.items():
        label, _, what = name.partition("_")
        arrays[f"{ids[int(label)]}_{what}" if label.isdecimal() else name] = np.asarray(vector)
    arrays |= {f"caption_{one.name}": np.asarray(one.vector) for one in found.hypotheses}
    return save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})


def _elsewhere(recipe: Recipe, devices: Sequence[str], workers: int | None) -> Spread | None:
    """Whose workers look at the images: those of several devices; one device is this process's."""
    if len(devices) == 1:
        return None
    return Spread(engine_for(devices, workers), devices[0], tuple(recipe.classes))


def _chosen(mine: Mine | None, **given: Any) -> Mine:
    """The recipe's section with what the command line says instead."""
    if given["confirm"] not in (None, *CONFIRM):
        close = did_you_mean(given["confirm"], CONFIRM)
        raise UserError(f"mine.confirm: found '{given['confirm']}', expected {', '.join(CONFIRM)}{close}")
    values = {} if mine is None else mine.model_dump(exclude_none=True)
    return validated(Mine, values | {key: value for key, value in given.items() if value is not None}, "mine")


def _encoded(texts: Sequence[str], embed: Callable[[Sequence[str]], np.ndarray]) -> UnderWay[Stage, Any]:
    parts = []
    for start in range(0, len(texts), _MOST_TEXT_STEPS):
        parts.append(embed(texts[start : start + _MOST_TEXT_STEPS]))
        yield Stage("captions", min(start + _MOST_TEXT_STEPS, len(texts)), len(texts))
    return cast(Any, np.concatenate(parts).astype(np.float32))
