"""Kind `retrieve`: take the rows of a pool that CLIP ranks nearest to each prompt. No row is taken
twice, unless rows may repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.data.labelled_sources import every_row
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import pool_of
from counterfoil.errors import UserError
from counterfoil.generate.kinds.kind import ChosenTable
from counterfoil.generate.kinds.rows import RowsMaker
from counterfoil.generate.nearest_rows import nearest_rows
from counterfoil.models.arithmetic import one_thread
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.models.names import Pin
from counterfoil.plan.layout import RowTable
from counterfoil.prediction.embedding import clip_embedder, contents_of, embed, first_of_content
from counterfoil.progress import report_progress
from counterfoil.recipe import Recipe
from counterfoil.recipe.kinds import RETRIEVAL, RetrieveKind
from counterfoil.recipe.prompts import prompt_for
from counterfoil.recipe.rows_table import MOST_BYTES, PoolRow


class RetrieveMaker(RowsMaker):
    def pins(self, recipe: Recipe) -> dict[str, Any]:
        clip = recipe.ranking_clip
        return {RETRIEVAL: pin_clip(clip.model, clip.weights).document()}

    def device_of_rows(self, recipe: Recipe, device: str) -> str:
        return device

    def choose_rows(
        self,
        recipe: Recipe,
        pool: SourcePin,
        models: Mapping[str, Any],
        device: str,
    ) -> ChosenTable:
        import numpy as np

        clip = Pin(**models[RETRIEVAL])
        images, rows = every_row(pool_of(recipe), pool)
        rows.need(license_column=recipe.generator.get("license_column"))
        repeats: bool = recipe.generator.get("repeats")
        cells = []
        prompts = []
        counts = []
        for shift in recipe.all_shifts():
            for label in shift.class_labels:
                cls = recipe.classes[label]
                cells.append((shift.name, cls.id))
                prompts.append(prompt_for(shift, cls) or "")
                counts.append(shift.candidates)
        wanted = max(counts) if repeats else sum(counts)
        if len(images) < wanted:
            raise _too_few(recipe, rows.place, wanted, f"{len(images):,} rows")
        ranking = recipe.ranking_clip
        with one_thread():
            loaded = load_clip(ranking.model, ranking.weights, device, revision=clip.revision)
            features = embed(images, clip_embedder(loaded, clip))
            # An image that cannot be read has NaN for every feature, so one column suffices.
            readable = np.isfinite(features[:, 0])
            first = first_of_content(contents_of(images))
            usable = readable & first
            count = int(usable.sum())
            copies = int((readable & ~first).sum())
            unreadable = int((~readable).sum())
            if count < wanted:
                available = (
                    f"{count:,} usable images ({len(images):,} rows: {unreadable:,} cannot be read,"
                    f" {copies:,} are copies)"
                )
                raise _too_few(recipe, rows.place, wanted, available)
            texts = loaded.embed_texts(prompts)
        finding = f"{images.name}: finding nearest rows"
        report_progress(finding, 0, wanted)
        nearest = nearest_rows(features, texts, counts, usable, repeats=repeats)
        table: dict[tuple[str | None, str], list[PoolRow]] = {}
        for cell, near in zip(cells, nearest, strict=True):
            scores = near.scores.astype("float32").tolist()
            table[cell] = list(map(PoolRow, near.rows.tolist(), near.ranks.tolist(), scores))
        retrieved = RowTable.of(table, "retrieved")
        if len(retrieved.content) > MOST_BYTES:
            raise UserError(
                f"samples: {sum(counts):,} rows of a pool are too many for one dataset: their table"
                f" takes {len(retrieved.content):,} bytes, expected at most {MOST_BYTES:,}",
                "Build fewer candidates, classes or shifts.",
            )
        report_progress(finding, wanted, wanted)
        skipped = []
        if unreadable:
            skipped.append(f"{unreadable:,} cannot be read")
        if copies:
            are_copies = "is a copy" if copies == 1 else "are copies"
            skipped.append(f"{copies:,} {are_copies} of an earlier one")
        notes = ()
        if skipped:
            notes = (f"{rows.place}: {' and '.join(skipped)}; these rows are not retrieved",)
        return ChosenTable(retrieved, {"sha256": retrieved.sha256}, notes)

    def notes(self, recipe: Recipe) -> tuple[str, ...]:
        """Return a note if the pool is a split of the input dataset."""
        generator = recipe.generator
        source = recipe.source
        assert isinstance(generator, RetrieveKind)
        is_source = (generator.dataset, generator.config) == (source.dataset, source.config)
        pool = f"The pool is {source.dataset}, split {generator.split}"
        if generator.dataset is not None and not is_source:
            return ()
        if generator.split == source.validation_split:
            return (
                f"{pool}, the input dataset's own validation images: object thresholds that are"
                " percentiles come from the same images that they screen",
            )
        if generator.split == source.train_split:
            return (
                f"{pool}: classifiers that learned from the input dataset have seen these images,"
                " so their accuracy here means nothing",
            )
        return ()


def _too_few(recipe: Recipe, pool: str, wanted: int, available: str) -> UserError:
    if recipe.generator.get("repeats"):
        needed = f"a cell needs {wanted:,} samples, each a different image"
    else:
        cells = sum(len(shift.class_labels) for shift in recipe.all_shifts())
        needed = f"{wanted:,} samples are needed ({cells:,} cells), each a different image"
    return UserError(
        f"generator: the pool {pool} has {available}, but {needed}",
        "Name a larger pool, or fewer samples.candidates, shifts or classes.",
    )
