"""Close a dataset: write the card of its finished shards, then the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from counterfoil.dataset.card.card import make_card
from counterfoil.dataset.card.index_page import write_index
from counterfoil.dataset.reading import SoundDataset, read_dataset
from counterfoil.plan.layout import make_plan
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.layout import LOCK, MANIFEST
from counterfoil.store.lock import read_lock
from counterfoil.store.manifest import content_of_receipts
from counterfoil.store.messages import failure
from counterfoil.store.replacement import closed_or_as_before
from counterfoil.store.sealed_folder import EVALUATED, SEALED_FOLDERS, SealedFolder


def close_dataset(
    store: DatasetStore,
    results: Mapping[str, bytes] | None = None,
    into: SealedFolder = EVALUATED,
) -> str:
    """Write the card, the figures, croissant.json and the manifest of a dataset whose shards are
    all done.

    Return the hash of the manifest. results: the new files of the folder `into`. Complete results
    of evaluations and reviews of these data are kept, and other results are removed. If the process
    is killed, a dataset that was finished before stays as it was.
    """
    lock = read_lock(store.directory)
    if lock is None:
        raise failure("changed-meanwhile.lock", store.directory / LOCK)
    receipts = store.checked_receipts()
    with closed_or_as_before(store.directory):
        if results is not None:
            into.write(store.directory, results)
        for folder in SEALED_FOLDERS:
            if folder.read(store.directory, content_of_receipts(receipts), earlier=True) is None:
                folder.drop(store.directory)
        plan = make_plan(store.plan.recipe.portable, store.plan.placeholders)
        card = make_card(store.directory, plan, lock.document(), receipts)
        manifest = store.finish(card.readme, card.figures, card.documents)
    write_index(store.directory)
    return manifest


def closed_dataset(directory: Path) -> SoundDataset:
    """Read a finished dataset, or first close a dataset that a killed run left open.

    Raise UserError if shards are missing.
    """
    dataset = read_dataset(directory, "receipts").sound()
    if not (directory / MANIFEST).is_file() and len(dataset.receipts) == dataset.plan.n_shards:
        close_again(directory)
    else:
        dataset.refuse_unfinished()
    return dataset


def close_again(
    directory: Path,
    results: Mapping[str, bytes] | None = None,
    content: str | None = None,
    folder: SealedFolder = EVALUATED,
) -> str:
    """Close a finished dataset again, with new results, and return the hash of the manifest.

    results: the files of an evaluation or a review, by path in `folder`. content: the hash of the
    data that the results are about. Raise UserError if there is no dataset or if another process
    works in the directory. Raise RunFailure if the data have changed.
    """
    dataset = read_dataset(directory).sound()
    lock = dataset.lock
    with DatasetStore.open(
        directory,
        dataset.plan,
        lock.hashes,
        lock.inputs,
        lock.stack,
        recipe_yaml=dataset.recipe_yaml,
        allow_mixed=True,
    ) as store:
        if results is not None and content != content_of_receipts(store.receipts()):
            raise failure("changed-meanwhile.data", directory)
        return close_dataset(store, results, folder)
