"""The folder `evaluation/` of a dataset: what was measured on its images, sealed together with them.

It holds for the content of the data that it names, and for no other (`sealed_folder.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

from counterfoil.report.results import Results, results_from
from counterfoil.store.sealed_folder import EVALUATED

RESULTS = EVALUATED.document


def read_results(directory: Path, content: str) -> Results | None:
    """The results in a dataset directory, where they are whole and of data with this content; else None.

    UserError for results of an earlier version, and for what is sealed and not of the form that is written.
    """
    document = EVALUATED.read(directory, content, earlier=True)
    if document is None:
        return None
    del document["files"]
    return results_from(json.dumps(document), EVALUATED.path)
