"""Kind `retrieve`: CLIP ranks the images of a pool by each prompt, and every row is taken once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.data.labelled_sources import every_row
from counterfoil.data.pool import pool_of
from counterfoil.errors import UserError
from counterfoil.generate.kinds.kind import ChosenTable, NamedInput
from counterfoil.generate.kinds.rows import RowsMaker
from counterfoil.generate.nearest_rows import nearest_rows
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.models.devices import one_thread
from counterfoil.models.names import Pin
from counterfoil.plan import RowTable, make_plan
from counterfoil.prediction.embedding import clip_embedder, contents_of, embed, first_of_content
from counterfoil.progress import report
from counterfoil.recipe.kinds import RETRIEVAL
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.prompts import prompt_for
from counterfoil.recipe.rows_table import MOST_BYTES, PoolRow
from counterfoil.store.layout import user_cache

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from counterfoil.data.pins import SourcePin
    from counterfoil.recipe import Recipe


class RetrieveMaker(RowsMaker):
    """Takes the rows of a pool that are nearest to each prompt, none of them twice."""

    tags = ((), ())
    names_pool = True

    def pins(self, recipe: Recipe) -> dict[str, Any]:
        clip = recipe.ranking_clip
        return {RETRIEVAL: pin_clip(clip.model, clip.weights).document()}

    def device_of_rows(self, recipe: Recipe, device: str) -> str:
        return device

    def choose_rows(self, recipe: Recipe, pool: SourcePin, models: Mapping[str, Any], device: str) -> ChosenTable:
        """Return the rows nearest to each prompt."""
        clip = Pin(**models[RETRIEVAL])
        images, rows = every_row(pool_of(recipe), pool)
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
                unreadable = int((~readable).sum())
                left = f"{int(usable.sum()):,} usable images ({len(images):,} rows: {unreadable:,} cannot be read,"
                raise _too_few(recipe, rows.place, wanted, f"{left} {copies:,} are copies)")
            cells = [(shift, recipe.classes[label]) for shift in recipe.all_shifts() for label in shift.class_labels]
            prompts = [prompt_for(shift, cls) or "" for shift, cls in cells]
            texts = loaded.embed_texts(prompts)
        report(f"{images.name}: finding nearest rows", 0, wanted)
        found = nearest_rows(features, texts, [shift.candidates for shift, _ in cells], usable)
        table: dict[tuple[str | None, str], list[PoolRow]] = {}
        for (shift, cls), near in zip(cells, found, strict=True):
            scores = near.scores.astype("float32").tolist()
            table[shift.name, cls.id] = list(map(PoolRow, near.rows.tolist(), near.ranks.tolist(), scores))
        retrieved = RowTable.of(table, "retrieved")
        if len(retrieved.content) > MOST_BYTES:
            raise UserError(
                f"samples: {wanted:,} rows of a pool are too many for one dataset: their table takes"
                f" {len(retrieved.content):,} bytes, expected at most {MOST_BYTES:,}",
                "Build fewer candidates, classes or shifts.",
            )
        report(f"{images.name}: finding nearest rows", wanted, wanted)
        notes = _not_retrieved(rows.place, int((~readable).sum()), copies)
        return ChosenTable(retrieved, {"sha256": retrieved.sha256}, tuple(notes))

    def notes(self, recipe: Recipe) -> tuple[str, ...]:
        """Return a note if the pool is a split of the input dataset."""
        generator, source = recipe.generator, recipe.source
        own = generator.dataset is None
        if not own and (generator.dataset, generator.config) != (source.dataset, source.config):
            return ()
        if generator.split == source.validation_split:
            return (
                f"The pool is {source.dataset}, split {generator.split}, the input dataset's own validation images:"
                " object thresholds that are percentiles come from the same images that they screen",
            )
        if generator.split == source.train_split:
            return (
                f"The pool is {source.dataset}, split {generator.split}: classifiers that learned from the input"
                " dataset have seen these images, so their accuracy here means nothing",
            )
        return ()

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> list[NamedInput]:
        clip, models = recipe.ranking_clip, pinned.get("models") or {}
        name = without_folders(clip.model) + (f" ({clip.weights})" if clip.weights else "")
        return [*super().inputs(recipe, pinned), ("retrieval", name, models.get(RETRIEVAL) or {})]


def _not_retrieved(place: str, unreadable: int, copies: int) -> list[str]:
    parts = [
        f"{unreadable:,} cannot be read" if unreadable else None,
        f"{copies:,} {'is a copy' if copies == 1 else 'are copies'} of an earlier one" if copies else None,
    ]
    joined = " and ".join(part for part in parts if part is not None)
    return [f"{place}: {joined}; these rows are not retrieved"] if joined else []


def _too_few(recipe: Recipe, place: str, wanted: int, found: str) -> UserError:
    cells = sum(len(shift.class_labels) for shift in recipe.all_shifts())
    return UserError(
        f"generator: the pool {place} has {found}, but {wanted:,} samples are needed ({cells:,} cells), each a"
        f" different image",
        "Name a larger pool, or fewer samples.candidates, shifts or classes.",
    )


def _readable(features: NDArray[Any]) -> NDArray[np.bool_]:
    import numpy as np

    # The whole row is NaN where there is no image, and a pool may be larger than memory.
    return np.isfinite(np.asarray(features[:, 0]))
