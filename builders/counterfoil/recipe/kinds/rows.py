"""Kind `rows`: chosen rows of a pool, by shift and class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from counterfoil.recipe.kinds.kind import PoolKind
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, as_mapping, as_sequence
from counterfoil.recipe.section import NonEmpty, written_keys

# Keys of images that were drawn elsewhere.
_GIVEN = ("shift_column", "prompt_column", "seed_column", "index_column")


class RowsKind(PoolKind):
    """Images that exist: chosen rows of a dataset (the pool), or all images of a table that were
    drawn elsewhere."""

    kind: Literal["rows"] = "rows"
    dataset: NonEmpty | None = None
    """The pool, named like source.dataset; null: source.dataset itself. Without `rows`: the images
    that were drawn elsewhere, a folder with one CSV file, or a table."""
    label_column: str = "label"
    """Column of the pool's labels. The label of a row must match its class."""
    shift_column: NonEmpty = "shift"
    """Images drawn elsewhere: column with the name of the shift, or `base`."""
    prompt_column: NonEmpty = "prompt"
    """Images drawn elsewhere: column with the prompt of each image, if there is one."""
    seed_column: NonEmpty = "seed"
    """Images drawn elsewhere: column with the seed of each image, if there is one. Images of one
    class and seed are pairs."""
    index_column: NonEmpty | None = None
    """Images drawn elsewhere: column with the number of each image in its cell. Pairs then share
    class, seed and index. null: seeds order the images."""
    labels: Literal["column", "predicted"] = "column"
    """Where a row's class comes from. `column`: the pool's labels, which are checked. `predicted`:
    a classifier's answers, which nothing checks."""
    rows: dict[str, dict[str, tuple[int, ...]]] | None = None
    """A mapping shift → class id → rows of the pool, or a CSV file with columns shift,class_id,row.
    null: the images were drawn elsewhere, and the columns of `dataset` say what each is."""

    def problem(self) -> str | None:
        if not self.rows:
            return message("missing-key.rows")
        keys = written_keys(self, _GIVEN)
        return message("wrong-kind.columns", found=" and ".join(keys)) if keys else None

    @property
    def reads_labels(self) -> bool:
        return self.labels == "column"

    @classmethod
    def problems(cls, parts: RecipeParts) -> Iterator[RecipeProblem]:
        yield from super().problems(parts)
        names = ("base", *parts.shifts)
        for name, classes in as_mapping(parts.generator.rows).items():
            where = ("generator", "rows", name)
            if name not in names:
                hint = did_you_mean(str(name), names)
                yield where, message("unknown-name.shift", found=name, hint=hint)
                continue
            chosen = parts.ids_of(as_mapping(parts.shifts.get(name)))
            for class_id, rows in as_mapping(classes).items():
                numbers = [row for row in as_sequence(rows) if isinstance(row, int)]
                path = (*where, class_id)
                if parts.every and class_id not in chosen:
                    hint = did_you_mean(str(class_id), list(chosen))
                    yield path, message("unknown-class.shift", found=class_id, hint=hint)
                elif any(row < 0 for row in numbers):
                    yield path, message("out-of-range.row", found=min(numbers))
                elif len(set(numbers)) < len(numbers):
                    yield path, message("duplicate.row")
