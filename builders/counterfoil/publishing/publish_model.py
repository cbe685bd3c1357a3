"""`publish --model`: a model's folder to a repository of the Hub, verified before, in one commit, compared after."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from counterfoil import progress
from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together
from counterfoil.hub.client import attentive_client
from counterfoil.hub.retries import PATIENCE, Patience
from counterfoil.models.classifiers import ClassifierFacts, describe_classifier, load_classifier
from counterfoil.models.config_files import MOST_CONFIG_BYTES
from counterfoil.models.mended import MendedNote, read_mended
from counterfoil.models.names import HUB, LOCAL
from counterfoil.publishing.after import refuse_differences
from counterfoil.publishing.contents import hash_file
from counterfoil.publishing.files import LocalFile
from counterfoil.publishing.kinds import MODEL
from counterfoil.publishing.model_card import (
    UNKNOWN,
    ModelMetadata,
    base_models,
    named_datasets,
    published_card,
    split_card,
    told_license,
)
from counterfoil.publishing.model_folder import CONFIG, WEIGHTS, model_paths, secret_problems
from counterfoil.publishing.preview import Preview, preview
from counterfoil.publishing.remote import MAIN, Remote
from counterfoil.publishing.sending import (
    FILES_PER_COMMIT,
    Sender,
    Sending,
    checked_repository,
    make_ready,
    refuse_options,
)
from counterfoil.publishing.unchanged import whole_content
from counterfoil.regular_files import named_path
from counterfoil.store.layout import CARD

# A card or a licence is read whole.
_MOST_TEXT_BYTES = 16_000_000


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """What was published: `commit` is the head of the branch, `commits` those made now (0 where nothing differed)."""

    repo: str
    url: str
    branch: str
    commit: str
    commits: int
    private: bool
    tag: str | None
    files: int
    files_changed: int
    bytes_changed: int
    metadata: ModelMetadata
    preview: Preview


@dataclass(frozen=True)
class _Verified:
    """A folder's files as they were hashed, what the model in it is, and what it says of its mending."""

    files: dict[str, LocalFile]
    texts: dict[str, str]
    facts: ClassifierFacts
    config: dict[str, object]
    note: MendedNote | None


def publish_model(
    directory: str | Path,
    repo: str,
    *,
    public: bool | None = None,
    revision: str | None = None,
    tag: str | None = None,
    license: str | None = None,
    confirm: Callable[[Preview], bool] | None = None,
    tell: Callable[[str], None] | None = None,
    patience: Patience = PATIENCE,
) -> PublishedModel | None:
    """Publish a timm model's folder, such as `counterfoil mend` leaves, as the model repository `repo` (`user/name`).

    The model is loaded first; a folder with anything but config.json, model.safetensors, README.md, mended.json and a
    licence is refused, as is a text that holds a secret. The card gets the metadata that it lacks: `license` (by
    default the card's own, the configuration's, or that of the model it was mended from), base model, datasets that
    everybody may see, tags. The repository is private unless `public`. Otherwise as `publish`, in one commit always.
    Raises UserError for what cannot be published or is refused, RunFailure for a damaged model, and where the Hub
    fails for good.
    """
    directory = named_path(directory)
    tell = tell or (lambda line: None)
    refuse_options(revision, tag, False, FILES_PER_COMMIT)
    if license is not None and not (license.isprintable() and license.strip()):
        raise UserError(f"--license is {license[:80]!r}, expected the name of one", "As in --license apache-2.0")
    repo = checked_repository(repo)
    progress.tell(Sending("verifying", 0, 0, 0, 0))
    found = _verified(directory)
    with attentive_client(patience), tempfile.TemporaryDirectory(prefix="counterfoil-card-") as beside:
        remote = Remote(repo, tell, patience, MODEL)
        user = remote.user()
        metadata = _metadata(remote, found, license)
        text = published_card(found.texts.get(CARD, ""), repo, metadata, found.note is not None)
        (Path(beside) / CARD).write_bytes(text.encode())
        local = found.files | {CARD: hash_file(Path(beside), CARD)}
        remote.check_card(text)
        ahead = preview(
            remote,
            local,
            images=None,
            public=bool(public),
            private=public is False,
            branch=revision or MAIN,
            tag=tag,
            create_pr=False,
            files_per_commit=FILES_PER_COMMIT,
        )
        ahead = replace(ahead, told=_told(metadata))
        if confirm is not None and not confirm(ahead):
            return None
        make_ready(remote, ahead)
        sender = Sender(remote, user, local, ahead, f"{repo.partition('/')[2]}: a model", FILES_PER_COMMIT)
        head = sender.commit(ahead.branch)
        progress.tell(Sending("comparing", len(local), len(local), ahead.bytes, ahead.bytes))
        refuse_differences(repo, local, head, MODEL.owns)
        _refuse_other_facts(f"{HUB}{repo}@{head.head}", found.facts)
        if tag is not None:
            remote.tag(tag, head.head)
        if ahead.becomes_public:
            remote.make_public()
    return PublishedModel(
        repo=repo,
        url=f"{remote.api.endpoint}/{repo}",
        branch=ahead.branch,
        commit=head.head,
        commits=remote.commits,
        private=ahead.private and not ahead.becomes_public,
        tag=tag,
        files=len(local),
        files_changed=ahead.changes.operations,
        bytes_changed=ahead.bytes,
        metadata=metadata,
        preview=ahead,
    )


def _verified(directory: Path) -> _Verified:
    """The folder's files, hashed, and the model that was loaded from them."""
    from counterfoil.models.config_files import read_config

    name = f"{LOCAL}{directory}"
    files = {path: hash_file(directory, path) for path in model_paths(directory)}
    texts, errors = {}, list[CounterfoilError]()
    for path, file in files.items():
        if path == WEIGHTS:
            continue
        try:
            texts[path] = _text(file)
        except UserError as error:
            errors.append(error)
    raise_together(errors)
    note = read_mended(directory, name)
    config = read_config(directory / CONFIG, name, MOST_CONFIG_BYTES)
    facts = describe_classifier(name)
    load_classifier(name)
    texts[WEIGHTS] = _head_of_weights(directory / WEIGHTS)
    if problems := secret_problems(texts):
        raise UserError(
            [f"{directory}: {problem}" for problem in problems[:20]],
            "Take it out, and revoke it where anybody may have seen it. Nothing was sent.",
        )
    return _Verified(files, texts, facts, config, note)


def _text(file: LocalFile) -> str:
    if file.size > _MOST_TEXT_BYTES:
        raise UserError(f"{file.place} has {file.size:,} bytes, expected at most {_MOST_TEXT_BYTES:,}")
    try:
        return whole_content(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file.place} is no UTF-8 text (byte {error.start})") from error


def _head_of_weights(file: Path) -> str:
    """What a file of weights says besides numbers, a line each."""
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        return "\n".join(f"{key}: {value}" for key, value in sorted((opened.metadata() or {}).items()))


def _metadata(remote: Remote, found: _Verified, license: str | None) -> ModelMetadata:
    card, _ = split_card(found.texts.get(CARD, ""))
    bases = base_models(found.note)
    told = license or told_license(card, found.config)
    if told is None:
        told = next((known for base in bases if (known := remote.license_of_model(base))), None)
    # A name that looks like one of the Hub may be a folder here; a private dataset is nobody's business.
    datasets = tuple(name for name in named_datasets(found.note) if remote.is_public_dataset(name))
    return ModelMetadata(told or UNKNOWN, bases, datasets)


def _told(metadata: ModelMetadata) -> tuple[str, ...]:
    lines = [f"license: {metadata.license}"]
    if metadata.license == UNKNOWN:
        lines[0] += " (name it by --license)"
    if metadata.base_model:
        lines.append(f"base model: {', '.join(metadata.base_model)}")
    if metadata.datasets:
        lines.append(f"datasets: {', '.join(metadata.datasets)}")
    return tuple(lines)


def _refuse_other_facts(name: str, facts: ClassifierFacts) -> None:
    """RunFailure where what was published is read as another model than the folder's."""
    found = describe_classifier(name)
    there = (found.architecture, found.num_classes, found.label_names)
    if there != (facts.architecture, facts.num_classes, facts.label_names):
        raise RunFailure(
            f"{name} is another model than the folder's: {found.architecture} with {found.num_classes} outputs",
            "Somebody else may have published meanwhile. Run the same command again.",
        )
