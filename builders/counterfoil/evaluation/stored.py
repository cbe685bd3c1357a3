"""An evaluation as files of the dataset that it was made on: results.json, the tables, entries for the Hub.

No clock, no host and no path is in them: equal answers give equal bytes.
"""

from __future__ import annotations

from counterfoil.evaluation.hub_entries import FOLDER, entry_files
from counterfoil.evaluation.public_names import with_public_names
from counterfoil.evaluation.tables import result_tables
from counterfoil.report.results import Results
from counterfoil.store.sealed_folder import EVALUATED


def stored_files(results: Results, dataset_id: str | None) -> dict[str, bytes]:
    """Path below `evaluation/` → content. Without `dataset_id` there are no entries for the Hub."""
    public = with_public_names(results)
    files = {name: text.encode() for name, text in result_tables(public).values()}
    if dataset_id is not None:
        files |= {f"{FOLDER}/{name}": content for name, content in entry_files(public, dataset_id).items()}
    return EVALUATED.files(public.to_json(), files)
