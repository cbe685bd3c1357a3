"""Write `recipes/recipe.schema.json` from the recipe's models; run it after changing them."""

from __future__ import annotations

from pathlib import Path

from counterfoil.recipe.json_schema import recipe_json_schema_text

SCHEMA = Path(__file__).resolve().parent.parent / "recipes" / "recipe.schema.json"


def main() -> None:
    SCHEMA.write_text(recipe_json_schema_text(), encoding="utf-8")
    print(SCHEMA)


if __name__ == "__main__":
    main()
