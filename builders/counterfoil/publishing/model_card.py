"""The card of a published model: the folder's own text, and metadata by which the Hub finds and loads it.

What the card says stays; what is added comes from the note of its mending and from the person who publishes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.card.licenses import license_metadata
from counterfoil.errors import UserError
from counterfoil.models.config_files import is_text, shown
from counterfoil.models.mended import MendedNote
from counterfoil.models.names import HUB
from counterfoil.recipe.strict_yaml import dump_yaml, read_yaml
from counterfoil.store.layout import CARD

LIBRARY, TASK = "timm", "image-classification"
UNKNOWN = "unknown"
_BLOCK = re.compile(r"\A---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*\r?\n?", re.DOTALL | re.MULTILINE)
# `user/name`, with a revision or a split behind it.
_ON_THE_HUB = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:[@:/].*)?")
# A card's lists are a handful of names.
_MOST_LISTED = 200


@dataclass(frozen=True)
class ModelMetadata:
    """What the Hub is told: a licence, the models that it was made from and the datasets, by their names there."""

    license: str
    base_model: tuple[str, ...]
    datasets: tuple[str, ...]


def split_card(text: str) -> tuple[dict[str, Any], str]:
    """The metadata of a card and its text. UserError for metadata that is not understood."""
    match = _BLOCK.match(text)
    if match is None:
        return {}, text
    found = read_yaml(match["yaml"], CARD)
    found = {} if found is None else found
    if not isinstance(found, dict):
        raise UserError(f"{CARD}: its metadata is {shown(found)}, expected a mapping")
    return json.loads(json.dumps(found, default=str)), text[match.end() :]


def told_license(metadata: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """The licence that a card gives, or the model's configuration; None where neither does."""
    described = config.get("pretrained_cfg")
    for found in (metadata.get("license"), described.get("license") if isinstance(described, dict) else None):
        if found is not None and found != "":
            if not is_text(found):
                raise UserError(f"{CARD}: license is {shown(found)}, expected the name of one", "Name it by --license.")
            if found != UNKNOWN:
                return str(found)
    return None


def base_models(note: MendedNote | None) -> tuple[str, ...]:
    """The model that a mended one was made from, by its name on the Hub; nothing for one of a folder or of the lab."""
    if note is None:
        return ()
    name = note.model.name
    if name.startswith(HUB):
        return (name.removeprefix(HUB).partition("@")[0],)
    if ":" in name or "/" in name:
        return ()
    import timm

    config = timm.get_pretrained_cfg(name) if timm.is_model(name.partition(".")[0]) else None
    place = getattr(config, "hf_hub_id", None)
    if not place:
        return ()
    # timm's own repositories are called after architecture and tag.
    return (f"{place}{config.architecture}.{config.tag}" if place.endswith("/") and config else place,)


def named_datasets(note: MendedNote | None) -> tuple[str, ...]:
    """What of a note's sets may be a dataset of the Hub, by its name; whether there is one the Hub must be asked."""
    if note is None:
        return ()
    matches = (_ON_THE_HUB.fullmatch(one.name) for one in (*note.datasets, *note.on))
    return tuple(dict.fromkeys(match["repo"] for match in matches if match))


def published_card(text: str, name: str, told: ModelMetadata, mended: bool) -> str:
    """The whole card. Equal arguments give equal texts. `text`: the folder's own card, empty where it has none."""
    metadata, body = split_card(text)
    license, license_name = license_metadata(told.license)
    metadata |= {"license": license}
    if license_name is not None:
        metadata |= {"license_name": license_name}
    else:
        metadata.pop("license_name", None)
    metadata |= {"library_name": LIBRARY, "pipeline_tag": TASK}
    tags = (LIBRARY, TASK, *(("counterfoil", "mended") if mended else ()))
    metadata["tags"] = _joined(metadata, "tags", tags)
    for key, names in (("base_model", told.base_model), ("datasets", told.datasets)):
        if listed := _joined(metadata, key, names):
            metadata[key] = listed
    if told.base_model and mended:
        metadata.setdefault("base_model_relation", "finetune")
    return f"---\n{dump_yaml(metadata)}---\n{body or _own_body(name)}"


def _joined(metadata: Mapping[str, Any], key: str, added: Iterable[str]) -> list[str]:
    """The names that a card lists by a key, one or several, and those that it lacks."""
    found = metadata.get(key)
    listed: Sequence[Any] = [found] if isinstance(found, str) else [] if found is None else found
    if not isinstance(listed, list) or len(listed) > _MOST_LISTED or not all(is_text(one) for one in listed):
        raise UserError(f"{CARD}: {key} is {shown(found)}, expected a list of names")
    return list(dict.fromkeys([*listed, *added]))


def _own_body(name: str) -> str:
    return f"""
# {name}

```python
import timm

model = timm.create_model("hf-hub:{name}", pretrained=True).eval()
```
"""
