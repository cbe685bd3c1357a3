"""Write evaluation-result entries for the Hub, one file a model: a number on the base or on one
shift, with notes.

The Hub's format (`EvalResultEntry` of huggingface_hub) has no field for a metric or an interval:
notes begin with the metric's name and say the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from counterfoil.recipe.prompts import BASE
from counterfoil.report.results import GroupFacts, ModelFacts, Results
from counterfoil.stats import Estimate

# Returns the value (a fraction) and the notes of a model's entry in a group; None without a number.
EntryOf = Callable[[Results, ModelFacts, GroupFacts], tuple[float, str] | None]
NEAR_CHANCE = "; near chance, so its drops mean nothing"


def entry_files(
    results: Results,
    entry_of: EntryOf,
    dataset_id: str,
    revision: str | None = None,
) -> dict[str, bytes]:
    """Return one YAML file for each model: file name → content.

    dataset_id: the dataset's `user/name`. revision: a commit.
    """
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    taken: Counter[str] = Counter()
    files = {}
    for model in results.models:
        safe = re.sub(r"[^A-Za-z0-9._-]+", "-", model.name)
        stem = safe.strip("-.") or "model"
        while taken[stem.lower()]:  # some file systems ignore case
            taken[stem.lower()] += 1
            stem = f"{stem}-{taken[stem.lower()]}"
        taken[stem.lower()] = 1
        entries = []
        for group in results.groups:
            entry = entry_of(results, model, group)
            if entry is None:
                continue
            value, notes = entry
            of_group = EvalResultEntry(
                dataset_id,
                BASE if group is results.base_group else group.name,
                round(100 * value, 3),
                dataset_revision=revision,
                notes=notes,
            )
            entries.append(of_group)
        document = eval_result_entries_to_yaml(entries)
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)
        files[f"{stem}.yaml"] = text.encode()
    return files


def interval_words(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "no interval"
    return f"95 % interval {100 * estimate.low:z.1f} to {100 * estimate.high:z.1f}"


def drop_words(drop: Estimate, before: float | None, over: str) -> str:
    """Return the note on a drop. before: the number on the base. over: the classes that both are
    over."""
    of = "" if before is None else f" of {100 * before:.1f} %"
    return f"; drop from the base{over} {100 * drop.value:z.1f} points{of}, {interval_words(drop)}"
