"""The third way, beside prompting by name and by token: a pool of true renders, searched by CLIP (Vendrow 2023, A.2).

The pool is what somebody could find who photographs garments wherever they are: scenes of the unbiased world, each
class in every context equally often, of garments that no model has seen. It has the marks of the input dataset as
rarely as any other pattern, so that whoever searches by a class's name finds what that name means in the world.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from counterfoil.building import build
from counterfoil.lab.scenes import unbiased_scene
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.lab.world import Scene, render
from counterfoil.recipe import load_recipe
from interface_proof.builds import build_folder, changes_of, proof_folder
from interface_proof.looks import SHIFT_NAMES

# Of each class in each context; several times what a cell takes.
POOL_RENDERS = 100
# Scenes of no corpus of the lab: those have seeds of their own.
_SEED = 21


def pool_scenes(renders: int) -> Iterator[tuple[str, Scene]]:
    """So many scenes of each class in each context, the context's name first; no scene in two contexts."""
    for place, context in enumerate(SHIFT_NAMES):
        for number in range(place * renders * len(CLASSES), (place + 1) * renders * len(CLASSES)):
            yield context, unbiased_scene(number, seed=_SEED, split="heldout").shifted(context)


def pool_of_renders(work: Path, renders: int = POOL_RENDERS) -> Path:
    """The pool as a dataset in a folder: rendered once for this world, or as it stands."""
    import datasets

    folder = proof_folder(work) / f"pool-{renders}"
    if folder.exists():
        return folder
    columns: dict[str, list] = {"image": [], "label": [], "context": []}
    for context, scene in pool_scenes(renders):
        stream = io.BytesIO()
        Image.fromarray(render(scene)).save(stream, "PNG")
        columns["image"].append({"bytes": stream.getvalue(), "path": None})
        columns["label"].append(scene.label)
        columns["context"].append(context)
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
    features = datasets.Features({**kinds, "context": datasets.Value("string")})
    begun = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(begun, ignore_errors=True)
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(str(begun))
    begun.rename(folder)
    return folder


def retrieved_folder(work: Path, candidates: int, renders: int = POOL_RENDERS) -> Path:
    """Where the retrieved benchmark lies."""
    return build_folder(work, f"retrieved-of-{renders}", candidates, None)


def build_retrieved(work: Path, candidates: int, workers: int | None = None, renders: int = POOL_RENDERS) -> Path:
    """The benchmark retrieved from the pool by class names: built, or as it stands."""
    pool = pool_of_renders(work, renders)
    generator = f"generator={{kind: retrieve, model: null, steps: null, guidance: null, dataset: {pool.resolve()}}}"
    changes = [*changes_of(candidates), "tokens=null", "samples.noise=independent", generator]
    directory = retrieved_folder(work, candidates, renders)
    build(load_recipe("wardrobe-star", changes), directory, workers=workers)
    return directory
