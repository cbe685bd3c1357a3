"""`evaluate --into-card`: the evaluation becomes part of the dataset that it was made on, and of its card.

The files of `evaluation/` are written first, then card, croissant.json and, last of all, the manifest anew, under the
directory's lock. A kill in between leaves a dataset without a manifest, which `verify` names and `build` closes, as
does the same evaluation run again.
"""

from __future__ import annotations

from pathlib import Path

from counterfoil.building.closing import close_again
from counterfoil.dataset import read_dataset
from counterfoil.errors import UserError
from counterfoil.evaluation.hub_entries import FOLDER, entry_files
from counterfoil.evaluation.public_names import with_public_names
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tables import result_tables
from counterfoil.hub import DatasetReference
from counterfoil.regular_files import named_path
from counterfoil.report.results import Results
from counterfoil.store.layout import EVALUATION, MANIFEST
from counterfoil.store.sealed_folder import EVALUATED


def make_ready(source: str | Path) -> None:
    """Refuse a dataset that can take no results before any model is scored; close one that a killed run left open.

    UserError for a published dataset and for one that is not finished.
    """
    directory = named_path(source)
    if not directory.is_dir():
        if reference := DatasetReference.parse(str(source)):
            revision = f" --revision {reference.revision}" if reference.revision else ""
            raise UserError(
                f"{source} is a published dataset; results are stored in a dataset's directory",
                f"Fetch it (hf download {reference.repo}{revision} --repo-type dataset --local-dir DIR), evaluate"
                " DIR with --into-card and publish it again; or leave --into-card away.",
            )
        return  # opening it says what is wrong
    dataset = read_dataset(directory, "receipts").sound()
    if not (directory / MANIFEST).is_file() and len(dataset.receipts) == dataset.plan.n_shards:
        close_again(directory)
    else:
        dataset.refuse_unfinished()


def store_results(evaluation: Evaluation, dataset_id: str | None) -> Path:
    """Write the results into the dataset and close it again; the folder that holds them."""
    assert evaluation.directory is not None  # only a built dataset takes results
    close_again(evaluation.directory, _stored_files(evaluation.results, dataset_id), evaluation.results.content)
    return evaluation.directory / EVALUATION


def _stored_files(results: Results, dataset_id: str | None) -> dict[str, bytes]:
    """Path below `evaluation/` → content. No clock, host or path is in them; entries for the Hub with `dataset_id`."""
    public = with_public_names(results)
    files = {name: text.encode() for name, text in result_tables(public).values()}
    if dataset_id is not None:
        files |= {f"{FOLDER}/{name}": content for name, content in entry_files(public, dataset_id).items()}
    return EVALUATED.files(public.to_json(), files)
