"""Write the JSON Schemas beside the recipes: of recipes, findings, results, mended heads and the output of commands.

Run it after changing their models.
"""

from __future__ import annotations

import json
from pathlib import Path

from counterfoil.documents import schema_text
from counterfoil.mending.document import Mended
from counterfoil.mining.findings import Findings
from counterfoil.recipe.json_schema import recipe_json_schema_text
from counterfoil.report.results import Results
from output_documents import output_json_schema

RECIPES = Path(__file__).resolve().parent.parent / "recipes"


def main() -> None:
    for name, text in (
        ("recipe.schema.json", recipe_json_schema_text()),
        ("findings.schema.json", schema_text(Findings, "Counterfoil findings")),
        ("results.schema.json", schema_text(Results, "Counterfoil results")),
        ("mend.schema.json", schema_text(Mended, "Counterfoil mended heads")),
        ("output.schema.json", json.dumps(output_json_schema(), indent=2, ensure_ascii=False) + "\n"),
    ):
        (RECIPES / name).write_text(text, encoding="utf-8")
        print(RECIPES / name)


if __name__ == "__main__":
    main()
