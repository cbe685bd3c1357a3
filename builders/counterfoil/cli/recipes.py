"""`counterfoil recipes`: list the bundled recipes."""

from __future__ import annotations

import typer

from counterfoil.cli.options import JsonOption, print_json
from counterfoil.cli.terminal import terminal


def register(app: typer.Typer) -> None:
    @app.command(epilog="Example: counterfoil recipes --json")
    def recipes(json: JsonOption = False) -> None:
        """List the bundled recipes."""
        from counterfoil.recipe import bundled_recipes, load_recipe

        found = {name: load_recipe(path) for name, path in bundled_recipes().items()}
        if json:
            print_json([{"name": name, "description": recipe.description} for name, recipe in found.items()])
            return
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 1, 0), show_header=False)
        table.add_column(no_wrap=True, style="bold")
        table.add_column()
        for name, recipe in found.items():
            table.add_row(name, recipe.description)
        terminal().print(table)
