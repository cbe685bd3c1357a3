"""What a mended model says that it was mended with and on: `mended.json` in its folder, read as a stranger's file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from counterfoil.documents import STRICT, Count, Printable, Sha256, parse_document, plain
from counterfoil.errors import UserError
from counterfoil.models.loading_errors import while_loading
from counterfoil.models.names import HUB, local_folder, resolve_name
from counterfoil.regular_files import read_regular

MENDED = "mended.json"
FORMAT = 1

# A thousand classes of a hundred images, twice over; each is a hash of 64 digits.
MOST_CONTENTS = 200_000
MOST_BYTES = 16_000_000
MOST_SETS = 1_000
# Seeds of recipes have at most 53 bits, which every reader of JSON holds.
LARGEST_SEED = 2**53 - 1
LARGEST_LAMBDA = 1e9
_MOST_ROWS = 1_000_000_000
_HINT = "It lists images that the model must not be measured on. Mend it again (`counterfoil mend`), or ask its author."

_Weight = Annotated[float, Field(ge=0, le=LARGEST_LAMBDA)]
_Rows = Annotated[Count, Field(le=_MOST_ROWS)]


@dataclass(frozen=True)
class MendedModelName:
    """The model whose head was mended, and the hash of its weights."""

    name: Printable
    sha256: Sha256 | None


@dataclass(frozen=True)
class MendedOn:
    """A set of images that a mended model has seen: its name, and its content as the sources hash it."""

    name: Printable
    content: Sha256


@dataclass(frozen=True)
class EditsOf:
    """The rows, ascending, of a pool's split that images are edits of. pool: a hash of what it was pinned to."""

    pool: Sha256
    split: Printable
    rows: Annotated[tuple[_Rows, ...], Field(max_length=MOST_CONTENTS)]


@dataclass(frozen=True)
class MendedWith:
    """A built dataset that a head was mended with; `seed` is its recipe's `samples.seed`, None where no noise began the
    images; group and recipe are None where there is none. edits: of images that are edits of rows."""

    name: Printable
    content: Sha256
    group: Printable | None
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] | None
    recipe: Printable | None
    edits: EditsOf | None = None


def _one_or_several(value: Any) -> Any:
    """The content of a whole set as the only one; a list as the tuple that a check of Python's values expects."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class MendedNote:
    """What mended.json says.

    on: the sets whose rows chose anything (training rows, failures, λ). train_content: of each image that the head was
    fitted to, and of each row of the source that one of them is an edit of, the sha256 of its size and pixels
    (`store.decoding.pixels_sha256`); or the content of a whole set. lam: `lambda` in the file, None where nothing is
    weighed by one. rows: how many rows it was fitted to, by kind ("": all of them, in the file a bare number).
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)]
    model: MendedModelName
    on: Annotated[tuple[MendedOn, ...], Field(max_length=MOST_SETS)]
    train_content: Annotated[
        tuple[Sha256, ...],
        Field(max_length=MOST_CONTENTS),
        BeforeValidator(_one_or_several),
    ]
    datasets: Annotated[tuple[MendedWith, ...], Field(max_length=MOST_SETS)]
    lam: Annotated[_Weight | None, Field(alias="lambda")]
    fit: Literal["lbfgs", "sgd"]
    weight_decay: _Weight
    rows: Annotated[
        dict[Printable | Literal[""], _Rows],
        Field(min_length=1, max_length=MOST_SETS),
        BeforeValidator(lambda value: {"": value} if isinstance(value, int) else value),
    ]

    def to_json(self) -> dict[str, Any]:
        """The same as the file has it."""
        document = plain(self)
        document["lambda"] = document.pop("lam")
        for one in document["datasets"]:
            if one["edits"] is None:
                del one["edits"]
        return document | ({"rows": self.rows[""]} if set(self.rows) == {""} else {})


def mended_of(name: str) -> MendedNote | None:
    """What the model called `name` was mended with; None for one that says nothing of the kind.

    Only folders and repositories of timm can say it. UserError for a mended.json that cannot be understood.
    """
    if name.startswith("python:"):
        return None
    folder = local_folder(name) if name.startswith(("lab:", "local-dir:")) else _fetched(name)
    return None if folder is None else read_mended(folder, name)


def read_mended(folder: Path, model: str) -> MendedNote | None:
    """What a model's folder says that it was mended with; None where it has no mended.json.

    UserError with all that is wrong with one: what it was mended with is then not known, and it may not be measured.
    """
    file = folder / MENDED
    if not file.exists() and not file.is_symlink():
        return None
    where = f"model {model!r}: {MENDED}"
    try:
        text = read_regular(file, MOST_BYTES)
    except OSError as error:
        raise UserError(f"{where} {error.strerror or error}", _HINT) from error
    what = f"of format {FORMAT}, as this version writes it"
    return parse_document(MendedNote, text, where, version=FORMAT, hint=_HINT, called=what, longest=MOST_CONTENTS)


def _fetched(name: str) -> Path | None:
    """The folder in the Hub's cache of the one commit whose mended.json lies there; None where there is none."""
    resolved = resolve_name(name)
    if not resolved.startswith(HUB):
        return None
    from huggingface_hub import errors as hub
    from huggingface_hub import hf_hub_download

    repository, _, revision = resolved.removeprefix(HUB).partition("@")

    def fetch() -> Path | None:
        config = Path(hf_hub_download(repository, "config.json", revision=revision or None))
        try:
            return Path(hf_hub_download(repository, MENDED, revision=config.parent.name)).parent
        except hub.EntryNotFoundError:  # offline too: whoever fetched the model with its note has the note
            return None

    return while_loading(name, fetch)
