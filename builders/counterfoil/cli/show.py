"""`counterfoil show`: print a recipe with everything it extends, overrides and defaults filled in."""

from __future__ import annotations

import typer

from counterfoil.cli.options import JsonOption, RecipeArgument, SetOption, print_json


def register(app: typer.Typer) -> None:
    @app.command(epilog="Example: counterfoil show wardrobe-mini --set samples.candidates=5")
    def show(recipe: RecipeArgument, overrides: SetOption = None, json: JsonOption = False) -> None:
        """Print one recipe, resolved: a YAML file that needs no other."""
        from counterfoil.recipe import dump_recipe, load_recipe

        resolved = load_recipe(recipe, overrides or ())
        if json:
            print_json(resolved.model_dump(mode="json", exclude_none=True))
        else:
            typer.echo(dump_recipe(resolved), nl=False)
