"""A model whose measures are means over classes or labels: its drops are over those that it does
not answer near chance on the base."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from counterfoil.evaluation.dataset import Group
from counterfoil.evaluation.task import ResampledModel
from counterfoil.report.results import DROP, ResultRow, estimate_row
from counterfoil.report.words import over_classes
from counterfoil.resampled_stats import CategoryScores, Drawn, simultaneous_intervals
from counterfoil.stats import chance_line


@dataclass(frozen=True)
class ClassedModel(ResampledModel):
    """The numbers of a model of classes or labels. Arguments `label` are their numbers."""

    means: ClassVar[Mapping[str, str]]
    """Means over classes, as rows name them → the measures that they average."""
    lead: ClassVar[str]
    """The measure of a class that is compared with chance."""
    word: ClassVar[tuple[str, str]]
    """The noun of a class on pages, singular and plural."""
    unmeasured: ClassVar[str]
    """Why a class is not measured."""
    corrects_few: ClassVar[bool] = True
    """Whether a value of too few images for an interval is judged without its bias."""
    subject: Any
    """The images. `shares`: the share of each class. `preview`: whether these are some images."""
    answered: Any
    """The answers of the model, in the form of its task."""
    scores: tuple[CategoryScores, ...]
    """The measures in each group."""
    allowed: tuple[int, ...] | None = field(default=None, kw_only=True)
    """The only columns that drops may be over; None for all."""

    @cached_property
    @abstractmethod
    def columns(self) -> Mapping[int, int]:
        """The measured classes, by their numbers, and where each is in scores and shares."""

    @cached_property
    def sound(self) -> tuple[int, ...]:
        """The columns whose whole interval on the base is above chance.

        A preview has few images and long intervals. Its values are judged, so that its drops are
        over the same classes as those of the whole dataset.
        """
        sound = []
        subject = self.subject
        for column in self.columns.values():
            if self.allowed is not None and column not in self.allowed:
                continue
            number = self.scores[0].mean(self.lead, [column])
            least = number.interval().low
            if subject.preview or (least is None and self.corrects_few):
                least = number.value - number.bias  # intervals subtract the bias too
            elif least is None:
                least = number.value
            chance = float(subject.shares[column])
            if least >= chance_line(chance):
                sound.append(column)
        return tuple(sound)

    def drop_note(self, group: int, measure: str) -> str:
        _, several = self.word
        return over_classes(len(self.sound), len(self.columns), several)

    def compared_with(self, other: Self) -> Self:
        return replace(self, allowed=other.sound)

    def share(
        self,
        group: int,
        measure: str,
        label: int | None = None,
        of_drop: bool = False,
    ) -> Drawn:
        """Return a mean of `means` over classes, for drops over sound ones, or the measure of one
        class."""
        columns = self.columns
        chosen: Sequence[int] = self.sound if of_drop else tuple(columns.values())
        if label is not None:
            chosen = []
            if label in columns:
                chosen = [columns[label]]
        of_class = self.means.get(measure, measure)
        return self.scores[group].mean(of_class, chosen)

    def drop_problem(self, label: int | None) -> str:
        """Return why drops mean nothing, for all classes or for one; empty if they mean
        something."""
        word, _ = self.word
        if label is None:
            return "" if self.sound else f"is near chance on the base for every {word}"
        if label not in self.columns:
            return f"is not measured for this {word}: {self.unmeasured}"
        if self.columns[label] in self.sound:
            return ""
        return f"is near chance on the base for this {word}"

    def class_keys(
        self,
        groups: Sequence[Group],
        names: Sequence[str],
        images: Sequence[int],
    ) -> dict[tuple[int, int], dict[str, Any]]:
        """Return (group, label) → key of its rows.

        names: the id of each class, by label. images: how many know the class, by column.
        """
        keys = {}
        for group, facts in enumerate(groups):
            for label, column in self.columns.items():
                keys[group, label] = {
                    "model": self.name,
                    "group": facts.name,
                    "class_id": names[label],
                    "n": images[column],
                }
        return keys

    def class_drops(
        self,
        measure: str,
        keys: Mapping[tuple[int, int], Mapping[str, Any]],
    ) -> Iterator[ResultRow]:
        """Yield the drops of a measure of sound classes; intervals hold for all shifts and classes
        at once.

        keys: (group, label) → key of its rows.
        """
        lost = []
        drops = []
        for (group, label), key in keys.items():
            if group and self.columns[label] in self.sound:
                lost.append(key)
                drops.append(self.drop(group, measure, label))
        of_class = self.means.get(measure, measure)
        estimates = simultaneous_intervals(drops)
        for key, estimate in zip(lost, estimates, strict=True):
            yield estimate_row(DROP, estimate, at=of_class, **key)
