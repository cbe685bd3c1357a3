"""Write the JSON Schemas beside the recipes: of recipes, findings, results, mended heads and the
output of commands.

Run it after changing their models.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pydantic import TypeAdapter

from counterfoil.documents import STRICT, unwrapped_schema
from counterfoil.mending.document import Mended
from counterfoil.mining.findings import Findings
from counterfoil.recipe.json_schema import recipe_json_schema
from counterfoil.report.results import Results
from output_documents import output_json_schema, without_titles

RECIPES = Path(__file__).resolve().parent.parent / "recipes"


def schema_text(kind: type[Any], title: str) -> str:
    """Return the JSON Schema of a kind of document. The string below a field is its description."""
    # Finding these strings takes seconds, so commands do without.
    with patch.dict(STRICT, use_attribute_docstrings=True):
        schema = TypeAdapter(kind).json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    body = without_titles(unwrapped_schema(schema))
    return printed(head | body)


def printed(schema: Any) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    for name, text in (
        ("recipe.schema.json", printed(recipe_json_schema())),
        ("findings.schema.json", schema_text(Findings, "Counterfoil findings")),
        ("results.schema.json", schema_text(Results, "Counterfoil results")),
        ("mend.schema.json", schema_text(Mended, "Counterfoil mended heads")),
        ("output.schema.json", printed(output_json_schema())),
    ):
        (RECIPES / name).write_text(text, encoding="utf-8")
        print(RECIPES / name)


if __name__ == "__main__":
    main()
