"""Represent a dataset directory as it was read: the parts that can be relied on, and its faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.documents import in_one_line
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.screen import Thresholds
from counterfoil.generate.screen.thresholds import Measured, ThresholdEntry
from counterfoil.generate.tokens.class_tokens import ClassTokens
from counterfoil.plan import Plan
from counterfoil.recipe import Recipe
from counterfoil.recipe.layering import text_of
from counterfoil.store import Receipt
from counterfoil.store.layout import LOCK, MANIFEST, RECIPE
from counterfoil.store.lock import Lock
from counterfoil.store.manifest import Entry as FileEntry
from counterfoil.store.reading import no_dataset

if TYPE_CHECKING:
    from counterfoil.generate.image_embeddings import ImageEmbeddings


_MOST_FAULTS = 20  # shown where a command refuses


RESTORE = "These cannot be rebuilt: restore them from a copy, such as the published dataset."


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one file of a dataset; `what` continues its path, `lines` are details, `hint` is what to do.

    mistake: a person changed the file, and nothing is lost. consequence: another fault of the file explains this one.
    """

    path: str
    what: str
    lines: tuple[str, ...] = ()
    mistake: bool = False
    consequence: bool = False
    hint: str = RESTORE

    def __str__(self) -> str:
        return f"{self.what}: {in_one_line(self.lines)}" if self.lines else self.what


@dataclass(frozen=True, slots=True)
class StandingDataset:
    """A dataset as far as it can be relied on: None for a part that was not read, is damaged or contradicts others.

    listed: the manifest's files. measured: thresholds from validation images. plan: with the tokens' placeholders and
    the table's rows, if these could be read. unfit: why it is not opened (links, pipes).
    """

    directory: Path
    lock: Lock | None
    recipe: Recipe | None
    plan: Plan | None
    listed: Mapping[str, FileEntry] | None
    read_thresholds: Thresholds | None
    measured: Mapping[Measured, ThresholdEntry]
    tokens: ClassTokens | None
    receipts: Sequence[Receipt]
    faults: tuple[Fault, ...]
    unfit: RunFailure | None = None
    embeddings: ImageEmbeddings | None = None

    @property
    def embeddings_known(self) -> bool:
        """Whether all vectors that the images were rendered from were read."""
        drawn = self.recipe is not None and any(shift.embedding is not None for shift in self.recipe.all_shifts())
        return self.recipe is not None and (not drawn or self.embeddings is not None)

    @property
    def prompts_known(self) -> bool:
        """Whether the plan has the prompts that images were rendered from: tokens and the table were read."""
        if self.recipe is None or self.plan is None:
            return False
        counted = self.plan.counts or not self.recipe.kind.counts_rows
        return counted and (self.recipe.tokens is None or self.tokens is not None)

    @property
    def judges(self) -> Mapping[str, Any]:
        """The lock's pins of the classifiers that keep rules ask."""
        return (self.lock and self.lock.inputs.get("judges")) or {}

    def causes(self) -> list[Fault]:
        """Return the faults that no other fault of the same file explains."""
        changed = {fault.path for fault in self.faults if not fault.consequence}
        return [fault for fault in self.faults if not fault.consequence or fault.path not in changed]

    def sound(self) -> SoundDataset:
        """Return the dataset if it has no fault. UserError if there is no dataset, or a person changed its recipe;
        RunFailure, with every fault, for damage.
        """
        if self.unfit is not None:
            raise self.unfit
        if not (self.directory / LOCK).exists():
            raise no_dataset(self.directory)
        if faults := self.causes():
            lines = []
            for fault in faults[:_MOST_FAULTS]:
                lines.append(f"{self.directory / fault.path} {fault.what}" + (":" if fault.lines else ""))
                lines += [f"  {more}" for more in fault.lines]
            if len(faults) > _MOST_FAULTS:
                lines.append(f"… and {len(faults) - _MOST_FAULTS} more; `counterfoil verify` lists them all")
            kind = UserError if all(fault.mistake for fault in faults) else RunFailure
            hints = list(dict.fromkeys(fault.hint for fault in faults))
            raise kind(lines, hints[0] if len(hints) == 1 else RESTORE)
        known: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        known["listed"] = self.listed or {}
        return SoundDataset(**known)

    def finished(self) -> SoundDataset:
        """Return the dataset as `sound` does. UserError if shards or the manifest are missing."""
        dataset = self.sound()
        dataset.refuse_unfinished()
        return dataset


@dataclass(frozen=True, slots=True)
class SoundDataset(StandingDataset):
    """A dataset without a fault in the parts that were read; other parts are None or empty."""

    lock: Lock
    recipe: Recipe
    plan: Plan
    listed: Mapping[str, FileEntry]

    @property
    def recipe_yaml(self) -> str:
        """The text of recipe.yaml."""
        return text_of(self.directory / RECIPE)

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of all shifts and classes; the part "thresholds" must have been read."""
        assert self.read_thresholds is not None
        return self.read_thresholds

    def refuse_unfinished(self) -> None:
        """Raise UserError if shards (receipts must be read) or the manifest are missing."""
        if len(self.receipts) < self.plan.n_shards or not (self.directory / MANIFEST).is_file():
            raise UserError(
                f"{self.directory} is not finished: {len(self.receipts)} of {self.plan.n_shards} shards are done",
                "Run `counterfoil build` with the same --out first; it resumes where it stopped.",
            )
