"""Keep what people wrote in the README of a repository when it is published again.

Of the metadata, keys that the new card does not write stay, such as the questions of a gated
repository. Of the text, what is around the marked part stays. The preview says what cannot stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.dataset.card.markdown import marked_text, split_card, without_marks
from counterfoil.errors import UserError
from counterfoil.models.config_files import shown_setting
from counterfoil.recipe.strict_yaml import dump_yaml

_LICENSE = ("license", "license_name", "license_link")
# Keys that earlier cards may have written and this one does not. The others of its keys are in
# every card.
_OURS = frozenset({"license_name", "task_ids", "dataset_info", "base_model_relation"})
# These follow from the data, and change with it.
_OF_THE_DATA = frozenset(
    {"configs", "dataset_info", "size_categories", "source_datasets", "task_categories", "task_ids"}
)


def kept_card(
    ours: str,
    before: str,
    where: str,
    *,
    published: bool,
    untouched: bool,
) -> tuple[str, list[str]]:
    """Return our card with what people wrote in the one before, and a line for each thing that
    stays or is replaced.

    ours: the new card, with marks. before: the repository's. where: its name for messages.
    published: whether the repository holds an earlier version of ours. untouched: whether its card
    is as it was published.
    """
    mine, own_text = split_card(ours, where)
    others, text = split_card(before, where)
    metadata, lines = _kept_metadata(mine, others)
    new = marked_text(own_text)
    marked = marked_text(text)
    assert new is not None
    above = new.above
    below = new.below
    if marked is not None:
        above = marked.above
        below = marked.below
        if not marked.as_written:
            lines.append(
                "text that people changed between the two marks is replaced; the history of the Hub"
                " has it"
            )
    elif not published:
        above = text
    elif text.strip() and not untouched and text.strip() != without_marks(own_text).strip():
        raise UserError(
            f"{where} was changed on the Hub, and the marks around the part that Counterfoil writes"
            " are not in it, so publishing would replace what people wrote",
            "Copy their texts elsewhere, put back the README of the last version and publish. Then"
            " write them above or below the marked part: there they stay.",
        )
    around = f"{above}{below}".strip()
    if around and (above, below) != (new.above, new.below):
        lines.append("text around the part that Counterfoil writes stays")
    texts = [text.strip("\n") for text in (above, new.part, below) if text.strip()]
    body = "\n\n".join(texts)
    block = ours[: len(ours) - len(own_text)]
    if metadata != mine:
        block = f"---\n{dump_yaml(metadata)}---\n"
    return f"{block}\n{body}\n", lines


def _kept_metadata(
    mine: Mapping[str, Any],
    others: Mapping[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    replaced = {*mine, *_OURS, *_LICENSE}
    kept = {key: value for key, value in others.items() if key not in replaced}
    metadata = dict(mine)
    lines = []
    if kept:
        lines.append(f"metadata of the repository stays: {', '.join(map(str, kept))}")
    names_none = mine.get("license") in (None, "other", "unknown") and "license_name" not in mine
    if names_none and others.get("license") is not None:
        metadata = {key: value for key, value in metadata.items() if key not in _LICENSE}
        kept |= {key: others[key] for key in _LICENSE if key in others}
        lines.append(
            f"license stays {shown_setting(others['license'])}, as the repository says: none is named here"
        )
    compared = mine.keys() & others.keys() & metadata.keys()
    for key in sorted(compared - _OF_THE_DATA):
        if mine[key] != others[key]:
            lines.append(
                f"{key} of the repository, {shown_setting(others[key])}, is replaced by {shown_setting(mine[key])}"
            )
    return metadata | kept, lines
