"""Retrieval: the images of a pool that CLIP finds nearest to each prompt, chosen before the first is stored.

What is chosen is an input: a directory that was begun keeps its table, and nobody ranks a pool again for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.embedding import clip_embedder, contents_of, embed, first_of_content
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.generate.nearest_rows import nearest_rows
from counterfoil.models.clip import load_clip
from counterfoil.models.devices import one_thread
from counterfoil.models.names import Pin
from counterfoil.plan import Retrieved, make_plan
from counterfoil.progress import report
from counterfoil.recipe.prompts import prompt_for
from counterfoil.recipe.rows_table import MOST_BYTES, RetrievedRow
from counterfoil.sources.labelled_sources import Reference, every_row
from counterfoil.sources.pins import SourcePin
from counterfoil.sources.pool import Pool
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import ROWS
from counterfoil.store.lock import Lock
from counterfoil.user_cache import user_cache

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from counterfoil.recipe import Recipe

# What a lock's inputs call the table.
RETRIEVED = "retrieved"


def known_rows(recipe: Recipe, out: Path, lock: Lock | None) -> Retrieved | None:
    """The table of a directory that was begun, where it is the one that its lock pins; else None."""
    if lock is None or not isinstance(lock.inputs.get(RETRIEVED), dict):
        return None
    try:
        found = Retrieved.read(read_inside(out, ROWS, MOST_BYTES), ROWS)
    except (OSError, CounterfoilError):
        return None  # it is chosen again, and refused where it does not come out the same
    return found if found.pin() == lock.inputs[RETRIEVED] and not any(found.problems(recipe)) else None


def retrieve(recipe: Recipe, pool: SourcePin, clip: Pin, device: str) -> tuple[Retrieved, tuple[str, ...]]:
    """`retrieve` to its end."""
    named = Pool.of(recipe)
    split = recipe.generator.split
    place = Reference(named.dataset, split, named.revision, named.config, named.image_column, named.label_column)
    images, rows = every_row(place, pool)
    rows.need(license_column=recipe.generator.license_column)
    wanted = make_plan(recipe).n_samples
    if len(images) < wanted:
        raise _too_few(recipe, rows.place, wanted, f"{len(images):,} rows")
    cache = user_cache() / "embeddings"
    ranking = recipe.ranking_clip
    with one_thread():
        loaded = load_clip(ranking.model, ranking.weights, device, revision=clip.revision)
        features = embed(images, clip_embedder(loaded, clip), cache)
        contents = contents_of(images, cache)
        readable, first = _readable(features), first_of_content(contents)
        usable = readable & first
        copies = int((readable & ~first).sum())
        if usable.sum() < wanted:
            left = f"{int(usable.sum()):,} images: of {len(images):,} rows {int((~readable).sum()):,} cannot be read,"
            raise _too_few(recipe, rows.place, wanted, f"{left} and {copies:,} are copies of another")
        cells = [(shift, recipe.classes[label]) for shift in recipe.all_shifts() for label in shift.class_labels]
        prompts = [prompt_for(shift, cls) or "" for shift, cls in cells]
        texts = loaded.embed_texts(prompts)
    report(f"{images.name}: nearest", 0, wanted)
    found = nearest_rows(features, texts, [shift.candidates for shift, _ in cells], usable)
    table: dict[str, dict[str, list[RetrievedRow]]] = {}
    for (shift, cls), near in zip(cells, found, strict=True):
        scores = near.scores.astype("float32").tolist()
        chosen = map(RetrievedRow, near.rows.tolist(), near.ranks.tolist(), scores)
        table.setdefault(shift.name, {})[cls.id] = list(chosen)
    retrieved = Retrieved.of(table)
    if len(retrieved.content) > MOST_BYTES:
        raise UserError(
            f"samples: {wanted:,} rows of a pool are too many for one dataset: their table takes"
            f" {len(retrieved.content):,} bytes, expected at most {MOST_BYTES:,}",
            "Build fewer candidates, classes or shifts.",
        )
    report(f"{images.name}: nearest", wanted, wanted)
    return retrieved, tuple(_left_out(rows.place, int((~readable).sum()), copies))


def shared_with_source(recipe: Recipe) -> tuple[str, ...]:
    """What must be said of a pool that is a split of the input dataset itself."""
    generator, source = recipe.generator, recipe.source
    own = generator.dataset is None
    if not own and (generator.dataset, generator.config) != (source.dataset, source.config):
        return ()
    if generator.split == source.validation_split:
        return (
            f"The pool is {source.dataset}, split {generator.split}, the input dataset's own validation images: object"
            " thresholds that are percentiles are taken over the very images that they now decide about",
        )
    if generator.split == source.train_split:
        return (
            f"The pool is {source.dataset}, split {generator.split}: classifiers that learned from the input dataset"
            " have seen these images, and their accuracy on them tells nothing",
        )
    return ()


def _left_out(place: str, unreadable: int, copies: int) -> list[str]:
    told = [
        f"{unreadable:,} cannot be read" if unreadable else None,
        f"{copies:,} {'is a copy' if copies == 1 else 'are copies'} of an earlier one" if copies else None,
    ]
    said = " and ".join(one for one in told if one is not None)
    return [f"Of the rows of {place} {said}, and none of these is retrieved"] if said else []


def _too_few(recipe: Recipe, place: str, wanted: int, found: str) -> UserError:
    cells = sum(len(shift.class_labels) for shift in recipe.all_shifts())
    return UserError(
        f"generator: the pool {place} has {found}, and {wanted:,} samples are wanted ({cells:,} cells), each an"
        " image of its own",
        "Name a larger pool, or fewer samples.candidates, shifts or classes.",
    )


def _readable(features: NDArray[Any]) -> NDArray[np.bool_]:
    import numpy as np

    # The whole row is NaN where there is no image, and a pool may be larger than memory.
    return np.isfinite(np.asarray(features[:, 0]))
