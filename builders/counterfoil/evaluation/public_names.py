"""Models as people see them: short in tables, and where anybody may see them by names that hold no folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from counterfoil.recipe.names import is_local, without_folders
from counterfoil.report.comparison import MEASURES as COMPARED
from counterfoil.report.labels import MEASURES as CHECKED
from counterfoil.report.results import ResultRows, Results

_UNSHOWN = {*COMPARED, *CHECKED}


def short_name(name: str) -> str:
    """The name without its source; of a folder or file, the last part; of timm's own repositories, timm's name."""
    if is_local(name) and not name.startswith((".", "/", "~")):
        return Path(without_folders(name)).name
    source, _, rest = name.partition(":")
    return rest.removeprefix("timm/") if source in ("lab", "hf-hub") else name


def with_public_names(results: Results) -> Results:
    """The same results, models renamed: folders of one name are told apart by the hash of their weights.

    Why something was skipped may name a place of this machine, and is left out. So is what no card shows.
    """
    names = _public_names({model.name: model.sha256 for model in results.models})
    # A judge that was not scored has the name by which the recipe that is published knows it; features are no model.
    names |= {one.features: names.get(one.features, without_folders(one.features)) for one in results.distances}

    def called(name: str) -> str:
        return names.get(name, name)

    reference = results.reference
    return replace(
        results,
        models=tuple(
            replace(model, name=names[model.name], short_name=short_name(names[model.name])) for model in results.models
        ),
        rows=ResultRows(
            replace(one, model=called(one.model), against=called(one.against))
            for one in results.rows
            if one.measure not in _UNSHOWN
        ),
        findings=tuple(
            replace(one, models=tuple(replace(model, name=called(model.name)) for model in one.models))
            for one in results.findings
        ),
        transfer=tuple(
            replace(
                one,
                models=tuple(
                    # A model that tells no architecture is a family by its own name.
                    replace(model, name=called(model.name), family=called(model.family))
                    for model in one.models
                ),
            )
            for one in results.transfer
        ),
        reference=reference
        and replace(reference, skipped=None if reference.skipped is None else "it was not at hand", left_out={}),
        distances=tuple(
            replace(one, features=called(one.features)) for one in results.distances if one.skipped is None
        ),
        comparison=None,
        label_checks=None,
    )


def _public_names(sha256: Mapping[str, str]) -> dict[str, str]:
    """Name → public name, of models with these hashes."""
    shown = {name: without_folders(name) for name in sha256}
    times = Counter(shown.values())
    named = {name: one if times[one] == 1 else f"{one}-{sha256[name][:8]}" for name, one in shown.items()}
    taken: Counter[str] = Counter()
    for name, one in named.items():  # the same weights in two folders
        taken[one] += 1
        if taken[one] > 1:
            named[name] = f"{one}-{taken[one]}"
    return named
