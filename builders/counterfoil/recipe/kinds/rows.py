"""Kind `rows`: chosen rows of a pool, by shift and class; and the base of all kinds whose images are rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.kinds.kind import ROW, GeneratorKind, written
from counterfoil.recipe.layering import embedding_specs
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, mapping, sequence

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Generator

POOL = ("dataset", "config", "split", "image_column", "license_column")
# Keys of images that were drawn elsewhere.
GIVEN = ("shift_column", "prompt_column", "seed_column", "index_column")


class RowsKind(GeneratorKind):
    """Rows of a pool that the recipe lists, or that a table names.

    noiseless: whether samples have no noise that they could share.
    """

    keys = (*POOL, "label_column", "labels", "rows")
    row_columns: ClassVar[Mapping[str, Column]] = {ROW: Column("int64", "Number of the row in its pool.")}
    noiseless: ClassVar[bool] = True
    no_tokens: ClassVar[str] = "rows of a pool are not drawn from prompts, expected null"

    def problem(self, generator: Generator) -> str | None:
        if not generator.rows:
            return "missing rows, which kind rows needs; or dataset: images that were drawn elsewhere"
        keys = written(generator, GIVEN)
        return f"found {' and '.join(keys)}, expected none with rows" if keys else None

    def reads_labels(self, generator: Generator) -> bool:
        return generator.labels == "column"

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        if self.noiseless and parts.samples.get("noise") != "independent":
            yield ("samples", "noise"), "rows of a pool have no noise to share, expected independent"
        if parts.recipe.get("tokens") is not None:
            yield ("tokens",), self.no_tokens
        for path, _ in embedding_specs(parts.recipe):
            yield path, "rows of a pool are not drawn from embeddings, expected null"
        names = ("base", *parts.shifts)
        for name, classes in mapping(parts.generator.get("rows")).items():
            where = ("generator", "rows", name)
            if name not in names:
                yield where, f"found '{name}', expected base or a shift{did_you_mean(str(name), list(names))}"
                continue
            chosen = parts.ids_of(mapping(parts.shifts.get(name)))
            for class_id, rows in mapping(classes).items():
                numbers = [row for row in sequence(rows) if isinstance(row, int)]
                if parts.every and class_id not in chosen:
                    near = did_you_mean(str(class_id), list(chosen))
                    yield (*where, class_id), f"found '{class_id}', expected a class of the shift{near}"
                elif any(row < 0 for row in numbers):
                    yield (*where, class_id), f"found {min(numbers)}, expected rows from 0"
                elif len(set(numbers)) < len(numbers):
                    yield (*where, class_id), "found a row again, expected each once"
