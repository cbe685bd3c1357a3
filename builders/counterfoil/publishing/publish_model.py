"""`publish --model`: send a model's folder to a repository of the Hub: verify it, commit once,
compare.

A folder with anything but a timm configuration, safetensors, the note of its mending, a card and a
licence is refused, since leaving files out might not be what its owner wants.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counterfoil import progress
from counterfoil.data.hub import PATIENCE, attentive_client
from counterfoil.dataset.card.markdown import marked_text, split_card, with_marks
from counterfoil.dataset.card.metadata import license_metadata
from counterfoil.errors import CounterfoilError, RunFailure, UserError, first_of, raise_together
from counterfoil.models.classifiers import ClassifierFacts, describe_classifier, load_classifier
from counterfoil.models.config_files import is_text, read_config, shown_setting
from counterfoil.models.mended import MENDED, MendedNote, read_mended
from counterfoil.models.names import HUB, LOCAL
from counterfoil.options import takes
from counterfoil.publishing.files import (
    CONFIG,
    MODEL_FILES,
    WEIGHTS,
    LocalFile,
    hash_file,
    whole_content,
)
from counterfoil.publishing.options import FILES_PER_COMMIT, PublishModelOptions, PublishOptions
from counterfoil.publishing.remote import MOST_TEXT_BYTES, Remote
from counterfoil.publishing.sending import (
    Published,
    Sender,
    Sending,
    checked_repository,
    preview_sending,
)
from counterfoil.recipe.strict_yaml import dump_yaml
from counterfoil.regular_files import named_path
from counterfoil.store.layout import CARD


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel(Published):
    """The published model, and the metadata of its card."""

    metadata: ModelMetadata


@dataclass(frozen=True)
class _Verified:
    """A model's folder that may be published."""

    files: dict[str, LocalFile]
    texts: dict[str, str]
    facts: ClassifierFacts
    config: dict[str, object]
    note: MendedNote | None
    """The note of its mending."""


@takes(PublishModelOptions)
def publish_model(given: PublishModelOptions) -> PublishedModel | None:
    """Publish a timm model's folder, such as `counterfoil mend` writes, as a model repository on
    the Hub.

    The model is loaded first. The folder may hold only config.json, model.safetensors, README.md,
    mended.json and a licence; a text that holds a secret is refused. The card gets the metadata
    that it lacks: licence, base model, public datasets and tags. The branch always receives one
    commit. If a run stops, call the function again.

    Returns:
        A PublishedModel, or None if `confirm` returns False.

    Raises:
        UserError: The model cannot be published, or the Hub refuses it.
        RunFailure: The model is damaged, or the Hub fails and retries do not help.
    """
    directory = named_path(given.directory)
    tell = given.tell or (lambda line: None)
    options = PublishOptions(
        directory,
        given.repo,
        public=given.public,
        revision=given.revision,
        tag=given.tag,
    )
    patience = given.patience or PATIENCE
    license = given.license
    if license is not None and not (license.isprintable() and license.strip()):
        raise UserError(
            f"--license is {license[:80]!r}, expected the name of a licence",
            "For example: --license apache-2.0",
        )
    repo = checked_repository(given.repo)
    progress.report_event(Sending("verifying", 0, 0, 0, 0))
    verified = _verified(directory)
    with (
        attentive_client(patience),
        tempfile.TemporaryDirectory(prefix="counterfoil-card-") as folder,
    ):
        beside = Path(folder)
        remote = Remote(repo, tell, patience, "model")
        user = remote.user()
        metadata = _metadata(remote, verified, license)
        own_card = verified.texts.get(CARD, "")
        text = published_card(own_card, repo, metadata, verified.note is not None)
        (beside / CARD).write_bytes(text.encode())
        files = verified.files | {CARD: hash_file(beside, CARD)}
        ahead, local = preview_sending(remote, files, options, images=None, beside=beside)
        remote.check_card(whole_content(local[CARD]).decode())
        lines = [f"license: {metadata.license}"]
        if metadata.license == UNKNOWN:
            lines[0] += " (name it with --license)"
        for key, names in (("base model", metadata.base_model), ("datasets", metadata.datasets)):
            if names:
                lines.append(f"{key}: {', '.join(names)}")
        ahead = replace(ahead, card_notes=(*lines, *ahead.card_notes))
        if given.confirm is not None and not given.confirm(ahead):
            return None
        message = f"{repo.partition('/')[2]}: a model"
        sender = Sender(remote, user, local, ahead, message, FILES_PER_COMMIT)
        done, _ = sender.carry_out(
            lambda commit: _refuse_other_facts(f"{HUB}{repo}@{commit}", verified.facts)
        )
    return PublishedModel(**done, metadata=metadata)


def _verified(directory: Path) -> _Verified:
    """Hash the folder's files and load its model. UserError for what cannot be published, such as
    secrets."""
    name = f"{LOCAL}{directory}"
    files = {path: hash_file(directory, path) for path in _model_paths(directory)}
    texts = {}
    errors = list[CounterfoilError]()
    for path, file in files.items():
        if path == WEIGHTS:
            continue
        if file.size > MOST_TEXT_BYTES:
            what = f"has {file.size:,} bytes, expected at most {MOST_TEXT_BYTES:,}"
            errors.append(UserError(f"{file.place} {what}"))
            continue
        try:
            texts[path] = whole_content(file).decode("utf-8")
        except UnicodeDecodeError as error:
            errors.append(UserError(f"{file.place} is not UTF-8 text (byte {error.start})"))
        except UserError as error:
            errors.append(error)
    raise_together(errors)
    note = read_mended(directory, name)
    config = read_config(directory / CONFIG, name)
    facts = describe_classifier(name)
    load_classifier(name)
    from safetensors import safe_open

    # its metadata may hold secrets too
    with safe_open(directory / WEIGHTS, framework="pt") as opened:
        notes = sorted((opened.metadata() or {}).items())
        texts[WEIGHTS] = "\n".join(f"{key}: {value}" for key, value in notes)
    problems = []
    for path, text in texts.items():
        for what, pattern in _SECRETS:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                problems.append(f"{path}, line {line}: contains what looks like {what}")
    if problems := list(dict.fromkeys(problems)):
        raise UserError(
            [f"{directory}: {problem}" for problem in problems[:20]],
            "Remove it, and revoke it if anyone may have seen it. Nothing was sent.",
        )
    return _Verified(files, texts, facts, config, note)


def _metadata(remote: Remote, verified: _Verified, license: str | None) -> ModelMetadata:
    """Return a card's metadata: a licence from the card, the configuration or the base model, and
    names on the Hub."""
    card, _ = split_card(verified.texts.get(CARD, ""), CARD)
    bases = _base_models(verified.note)
    described = verified.config.get("pretrained_cfg")
    of_config = described.get("license") if isinstance(described, dict) else None
    for declared in (card.get("license"), of_config):
        if license is not None or declared in (None, ""):
            continue
        if not is_text(declared):
            raise UserError(
                f"{CARD}: license is {shown_setting(declared)}, expected the name of a licence",
                "Name it with --license.",
            )
        license = None if declared == UNKNOWN else str(declared)
    if license is None:
        licences = map(remote.license_of_model, bases)
        license = next(filter(None, licences), UNKNOWN)
    # A name that looks like the Hub's may be a local folder; private datasets are not named.
    sets = () if verified.note is None else (*verified.note.datasets, *verified.note.on)
    matches = [_ON_THE_HUB.fullmatch(dataset.name) for dataset in sets]
    named = dict.fromkeys(match["repo"] for match in matches if match)
    datasets = tuple(name for name in named if remote.is_public_dataset(name))
    return ModelMetadata(license, bases, datasets)


def _base_models(note: MendedNote | None) -> tuple[str, ...]:
    """Return the Hub name of the model that a mended one was made from; empty for a folder's or the
    lab's."""
    if note is None:
        return ()
    name = note.model.name
    if name.startswith(HUB):
        return (name.removeprefix(HUB).partition("@")[0],)
    if ":" in name or "/" in name:
        return ()
    import timm

    architecture, _, _ = name.partition(".")
    config = timm.get_pretrained_cfg(name) if timm.is_model(architecture) else None
    if config is None or not config.hf_hub_id:
        return ()
    hub_id = config.hf_hub_id
    if hub_id.endswith("/"):
        # timm's own repositories are named after architecture and tag.
        hub_id += f"{config.architecture}.{config.tag}"
    return (hub_id,)


def _refuse_other_facts(name: str, facts: ClassifierFacts) -> None:
    published = describe_classifier(name)
    known = (facts.architecture, facts.num_classes, facts.label_names)
    if (published.architecture, published.num_classes, published.label_names) != known:
        raise RunFailure(
            f"{name} is not the folder's model, but {published.architecture} with"
            f" {published.num_classes} outputs",
            "Someone else may have published at the same time. Run the same command again.",
        )


LIBRARY = "timm"
TASK = "image-classification"
UNKNOWN = "unknown"
# `user/name`, perhaps followed by a revision or a split.
_ON_THE_HUB = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:[@:/].*)?")
# The text of a card that a folder lacks, with the repository's name.
_BODY = """
# {0}

```python
import timm

model = timm.create_model("hf-hub:{0}", pretrained=True).eval()
```
"""
# A card's lists are a handful of names.
_MOST_LISTED = 200


@dataclass(frozen=True)
class ModelMetadata:
    """Metadata that the Hub reads in a card: the licence, and the names of base models and
    datasets."""

    license: str
    base_model: tuple[str, ...]
    datasets: tuple[str, ...]


def published_card(text: str, name: str, added: ModelMetadata, mended: bool) -> str:
    """Build the card from the folder's own, or from an empty text. Equal arguments give equal
    texts."""
    metadata, body = split_card(text, CARD)
    license, license_name = license_metadata(added.license)
    metadata["license"] = license
    if license_name is not None:
        metadata["license_name"] = license_name
    else:
        metadata.pop("license_name", None)
    metadata |= {"library_name": LIBRARY, "pipeline_tag": TASK}
    tags = [LIBRARY, TASK]
    if mended:
        tags += ["counterfoil", "mended"]
    metadata["tags"] = _joined(metadata, "tags", tags)
    for key, names in (("base_model", added.base_model), ("datasets", added.datasets)):
        if listed := _joined(metadata, key, names):
            metadata[key] = listed
    if added.base_model and mended:
        metadata.setdefault("base_model_relation", "finetune")
    card = f"---\n{dump_yaml(metadata)}---\n{body or _BODY.format(name)}"
    return card if marked_text(body) else with_marks(card)


def _joined(metadata: Mapping[str, Any], key: str, added: Iterable[str]) -> list[str]:
    """Return the names that a card lists by a key, one or several, and then added ones that are
    missing."""
    value = metadata.get(key)
    listed: Any = [] if value is None else value
    if isinstance(value, str):
        listed = [value]
    is_short = isinstance(listed, list) and len(listed) <= _MOST_LISTED
    if not is_short or not all(is_text(name) for name in listed):
        raise UserError(f"{CARD}: {key} is {shown_setting(value)}, expected a list of names")
    return list(dict.fromkeys([*listed, *added]))


# Published too; files of these names already in the repository stay.
_BESIDE = frozenset({"LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE"})
_MOST_TOLD = 10

# The prefixes of keys to accounts; messages never repeat the keys.
_SECRETS = (
    ("a token of the Hub", re.compile(r"\bhf_[A-Za-z0-9]{20,}")),
    ("a key of a language model's service", re.compile(r"\bsk-[A-Za-z0-9_-]{20,}")),
    ("a token of GitHub", re.compile(r"\b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}")),
    ("a key of a cloud", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}")),
    ("a token of Slack", re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("a password in an address", re.compile(r"\bhttps?://[^\s/:@]+:[^\s/@]+@")),
)


def _model_paths(directory: Path) -> list[str]:
    """List the files of a model's folder without opening them. UserError with all that are unfit or
    missing."""
    if not directory.is_dir():
        raise UserError(
            f"{directory} is not a folder, expected a model's folder",
            "Name a folder that `counterfoil mend` saved.",
        )
    names = []
    problems = []
    for entry in sorted(directory.iterdir()):
        if wrong := _wrong(entry):
            problems.append(f"{directory}: {ascii(entry.name)[1:-1]} {wrong}")
        else:
            names.append(entry.name)
    for name in (CONFIG, WEIGHTS):
        if not (directory / name).exists():
            problems.append(f"{directory}: {name} is missing")
    if problems:
        shown = first_of(problems, _MOST_TOLD)
        raise UserError(
            shown,
            f"A model's folder has {CONFIG} and {WEIGHTS}, and may have {CARD}, {MENDED} and a"
            " LICENSE. Move everything else out of it.",
        )
    return names


def _wrong(entry: Path) -> str | None:
    """Return what is wrong with an entry of the folder; None for a file that is published."""
    if entry.is_symlink():
        return "is a link, expected a regular file"
    if entry.name.startswith("."):
        return "is hidden"
    if entry.name not in MODEL_FILES | _BESIDE:
        if entry.is_dir():
            return "is a folder, and a timm model has none"
        return "is not a file of a timm model with safetensors"
    return None if entry.is_file() else "is not a regular file"
