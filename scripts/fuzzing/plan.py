"""Which kinds of cases there are, how often each comes, and the cases of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from fuzzing.answers import answers
from fuzzing.archives import archive
from fuzzing.cases import Bench, Case, Prepared
from fuzzing.documents import document, random_bytes
from fuzzing.mined import captions, vectors
from fuzzing.places import place
from fuzzing.recipes import cut, override, recipe, recipe_bytes
from fuzzing.released import generator, model, released
from fuzzing.sources import earlier, source
from fuzzing.tables import table


@dataclass(frozen=True, slots=True)
class Kind:
    """`light` cases need no built dataset and no heavy library; `often` is the share, in
    hundredths."""

    prepare: Callable[[Bench], Prepared]
    what: str
    often: int
    light: bool = False


KINDS: dict[str, Kind] = {
    "recipe": Kind(
        recipe,
        "a bundled recipe with changes: loaded, planned, written; shown or checked",
        14,
        light=True,
    ),
    "override": Kind(
        override, "a bundled recipe with odd `--set` options, the same", 5, light=True
    ),
    "recipe-bytes": Kind(recipe_bytes, "a recipe's file of damaged bytes, the same", 4, light=True),
    "bytes": Kind(random_bytes, "a file of a built dataset with damaged bytes", 11),
    "document": Kind(document, "JSON, YAML or the card of a built dataset with changes", 15),
    "table": Kind(table, "Parquet with other columns, types, rows, values, images", 10),
    "answers": Kind(answers, "files of answers, boxes and keys with odd columns", 8),
    "archive": Kind(archive, "tar files with other members, names, kinds, sizes, documents", 7),
    "place": Kind(place, "FIFOs, links, folders, endless files, models, where files should be", 7),
    "cut": Kind(cut, "`calibrate --apply` with a changed cut", 2),
    "model": Kind(model, "a classifier's folder with another configuration or other weights", 2),
    "generator": Kind(generator, "a diffusion or CLIP model's folder, changed likewise", 1),
    "captions": Kind(
        captions, "a file of candidate captions, YAML or text, with changes: read and gathered", 2
    ),
    "vectors": Kind(vectors, "a file of image embeddings that a shift names, changed likewise", 1),
    "source": Kind(
        source,
        "COCO, YOLO, VOC, tables beside images with odd numbers and columns: `init`, some built",
        6,
    ),
    "earlier": Kind(earlier, "an earlier evaluation or a gate with changes: `evaluate --gate`", 4),
    "tokens": Kind(released, "released class tokens, changed, damaged or running", 1),
}


def dealt(count: int, seed: int, kinds: Sequence[str] = ()) -> list[Case]:
    """Return `count` cases, each kind by its weight; a longer run begins with the cases of a
    shorter one."""
    return list(islice(_all(seed, kinds or tuple(KINDS)), count))


def _all(seed: int, kinds: Sequence[str]) -> Iterator[Case]:
    total = sum(KINDS[name].often for name in kinds)
    due = dict.fromkeys(kinds, 0)
    number = dict.fromkeys(kinds, 0)
    while True:
        for name in kinds:
            due[name] += KINDS[name].often
        name = max(kinds, key=lambda kind: due[kind])
        due[name] -= total
        yield Case(name, number[name], seed)
        number[name] += 1
