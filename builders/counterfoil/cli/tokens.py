"""`counterfoil tokens`: learn a class token for every class of a recipe, or import released ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterfoil.cli.options import (
    AddressOption,
    CollectOption,
    EngineOption,
    JsonOption,
    RecipeArgument,
    SetOption,
    print_json,
)
from counterfoil.cli.terminal import say

if TYPE_CHECKING:
    from counterfoil.tokens.learn_tokens import TokenResult

_PLAIN_EVERY = 10.0  # seconds between lines

Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the tokens. Default: NAME-tokens.")]
Import = Annotated[
    Path | None,
    typer.Option("--import", metavar="PATH", help="Zip or folder of {label}.bin tensors (ImageNet*), not learned."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda (every GPU), cuda:1, cuda:0,cuda:2 …")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes a device; default one a CPU core, one on each GPU.")
]


def register(app: typer.Typer) -> None:
    @app.command(epilog="Example: counterfoil tokens wardrobe-star --set 'tokens={path: null, learn: {}}' --out mine")
    def tokens(
        recipe: RecipeArgument,
        out: Out = None,
        import_from: Import = None,
        overrides: SetOption = None,
        device: Device = "auto",
        workers: Workers = None,
        engine: EngineOption = "local",
        address: AddressOption = None,
        collect: CollectOption = False,
        json: JsonOption = False,
    ) -> None:
        """Learn a recipe's class tokens (textual inversion), or import released ones; run again to resume."""
        from counterfoil.cli.progress import TokenLines, note
        from counterfoil.errors import UserError
        from counterfoil.recipe import load_recipe

        loaded = load_recipe(recipe, overrides or ())
        folder = out or Path(f"{loaded.name}-tokens")
        note(f"{loaded.name} → {folder}: loading libraries and resolving inputs")
        if import_from is not None:
            if (device, workers, engine, address, collect) != ("auto", None, "local", None, False):
                raise UserError(
                    "--device, --workers, --engine, --address and --collect go with learning, not with --import:"
                    " nothing is computed"
                )
            from counterfoil.tokens.import_tokens import import_tokens

            result = import_tokens(loaded, import_from, folder)
        else:
            from counterfoil.engines import EngineChoice
            from counterfoil.progress import listening
            from counterfoil.tokens.learn_tokens import learn_tokens

            choice = EngineChoice(engine, address, collect)
            with listening(TokenLines().draw):
                result = learn_tokens(loaded, folder, device=device, workers=workers, engine=choice)
        if json:
            print_json(_as_json(result))
        else:
            _print_summary(result, recipe)


def _as_json(result: TokenResult) -> dict[str, Any]:
    return {
        "folder": str(result.folder),
        "classes": len(result.losses),
        "learned_now": list(result.learned),
        "losses": dict(result.losses),
        "manifest_sha256": result.manifest_sha256,
    }


def _print_summary(result: TokenResult, recipe: str) -> None:
    from counterfoil.cli.progress import next_command

    losses = [loss for loss in result.losses.values() if loss is not None]
    mean = f", mean loss {sum(losses) / len(losses):.4f}" if losses else ""
    say(f"{len(result.losses)} class tokens in {result.folder}{mean}; {len(result.learned)} of them made now.")
    shown = result.folder if result.folder.is_absolute() else f"./{result.folder}"
    built = f"{result.folder}-built"
    next_command("counterfoil", "build", recipe, "--set", f"tokens={{path: {shown}}}", "--out", built)
