"""The JSON Schema of results.json: shipped as the document's class has it, and what evaluations
write fits it."""

from __future__ import annotations

import json

from test_findings import misfits

from counterfoil.evaluation.results import Evaluation
from counterfoil.recipe.layering import bundled_folder
from counterfoil.report.results import Results
from write_schema import schema_text


def test_documents_fit_the_schema_that_is_shipped(
    evaluation: Evaluation, graded: Evaluation, photographed: Evaluation
) -> None:
    text = (bundled_folder() / "results.schema.json").read_text(encoding="utf-8")
    assert text == schema_text(Results, "Counterfoil results"), "run scripts/write_schema.py"
    schema = json.loads(text)
    for result in (evaluation, graded, photographed):
        document = json.loads(result.files["document"].read_text())
        assert misfits(document, schema, schema) == []
        # The printed document has a few more keys, which the documentation lists.
        more = {
            "source",
            "headline",
            "directory",
            "unreadable_images",
            "unreadable_paths",
            "notes",
            "files",
        }
        assert result.to_json().keys() - document.keys() == more
        document["rows"][0]["value"] = "much"
        assert misfits(document, schema, schema)
