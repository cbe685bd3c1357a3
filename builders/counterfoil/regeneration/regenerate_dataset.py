"""Make a dataset again from what it tells of itself, without its input dataset; and in its own directory, repair it.

Beside the original, the new dataset is compared with the original's manifest, file by file. In the original's own
directory only shards are made again that are not as they were written; nothing else of a shard is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from counterfoil.building.build_dataset import BuildResult, make_dataset
from counterfoil.engines import EngineChoice, engine_and_device
from counterfoil.hub import locate_dataset
from counterfoil.regeneration.comparison import Comparison, compare, readable_receipts
from counterfoil.regeneration.original import WANTED, read_original, refuse_other_models
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import try_folder
from counterfoil.store.replacement import settle_directory


@dataclass(frozen=True, slots=True)
class Regeneration(BuildResult):
    """What a build made, and how it is to the original; `comparison` is None where the original had no manifest.

    `repaired` says that it was made in the original's own directory.
    """

    comparison: Comparison | None = None
    repaired: bool = False


def regenerate(
    source: str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    allow_mixed: bool = False,
    engine: EngineChoice | None = None,
) -> Regeneration:
    """Make the dataset `source`, a directory or `user/name[@revision]`, again in the directory `out`; or go on there.

    Its recipe, lock, thresholds and tokens are enough: the input dataset may be gone. `overrides` (`a.b=c`) may say
    where a model's folder lies now; models are those that the lock pins, or it is refused. With `out` the directory of
    `source` itself, it is repaired: only damaged or missing shards are made, then card and manifest. The other
    arguments are those of `build`. Raises UserError for input that cannot be used, such as a source whose recipe was
    edited; RunFailure for one whose recipe, lock, thresholds or tokens are damaged.
    """
    out = named_path(out)
    try_folder(out)
    located = locate_dataset(source, WANTED)
    here = located.reference is None
    in_place = here and out.resolve() == located.directory.resolve()
    original = read_original(located.directory, overrides, own=here)
    settle_directory(out)
    made_by, here_on = engine_and_device(device, workers, engine)
    refuse_other_models(original.recipe, original.dataset.lock)
    before = readable_receipts(located.directory)
    described = original.recipe_yaml == original.dataset.recipe_yaml
    result = make_dataset(
        original.recipe,
        original.inputs,
        out,
        device=here_on,
        engine=made_by,
        allow_mixed=allow_mixed,
        recipe_yaml=original.recipe_yaml,
        repair=original.dataset.listed if in_place else None,
    )
    comparison = compare(original, before, out, described=described, images=here and not in_place)
    made = {field.name: getattr(result, field.name) for field in fields(BuildResult)}
    return Regeneration(**made, comparison=comparison, repaired=in_place)
