"""Read `mended.json`, in which a mended model lists the images that it has seen. The file is not
trusted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from counterfoil.documents import STRICT, Count, Form, Printable, Sha256, plain_value, read_document
from counterfoil.models.loading_errors import while_loading
from counterfoil.models.names import HUB, LAB, LOCAL, local_folder
from counterfoil.recipe.names import PYTHON

MENDED = "mended.json"
FORMAT = 1

# Twice the images of a thousand classes with a hundred images each. The file has a hash of 64
# digits for each image.
MOST_CONTENTS = 200_000
MOST_BYTES = 16_000_000
MOST_SETS = 1_000
# Seeds of recipes have at most 53 bits, because every JSON parser can represent such a number
# exactly.
LARGEST_SEED = 2**53 - 1
LARGEST_LAMBDA = 1e9
_MOST_ROWS = 1_000_000_000
_HINT = (
    "It lists images that the model must not be measured on. Mend it again (`counterfoil"
    " mend`), or ask its author."
)

_Weight = Annotated[float, Field(ge=0, le=LARGEST_LAMBDA)]
_Rows = Annotated[Count, Field(le=_MOST_ROWS)]


@dataclass(frozen=True)
class MendedModelName:
    """The model whose head was mended, and the hash of its weights."""

    name: Printable
    sha256: Sha256 | None


@dataclass(frozen=True)
class MendedOn:
    """A set of images that a mended model has seen. `content` is the hash that the data source
    computes."""

    name: Printable
    content: Sha256


@dataclass(frozen=True)
class EditsOf:
    """The source rows whose edits a dataset contains: ascending row numbers in one split of a pool.

    pool: a hash of the pool's pin.
    """

    pool: Sha256
    split: Printable
    rows: Annotated[tuple[_Rows, ...], Field(max_length=MOST_CONTENTS)]


@dataclass(frozen=True)
class MendedWith:
    """A built dataset that a head was mended with.

    seed: the recipe's `samples.seed`, if the generator drew the images from noise. edits: the
    source rows, if the images of the dataset are edits.
    """

    name: Printable
    content: Sha256
    group: Printable | None
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] | None
    recipe: Printable | None
    edits: EditsOf | None = None


def _one_or_several(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class MendedNote:
    """The content of mended.json."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    FORM: ClassVar[Form] = Form(
        f"of format {FORMAT}, as this version writes it", _HINT, longest=MOST_CONTENTS
    )
    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)]
    model: MendedModelName
    on: Annotated[tuple[MendedOn, ...], Field(max_length=MOST_SETS)]
    """The sets whose rows were used for training, for finding failures or for choosing λ."""
    train_content: Annotated[
        tuple[Sha256, ...],
        Field(max_length=MOST_CONTENTS),
        BeforeValidator(_one_or_several),
    ]
    """Hashes of the images that the head was fitted to; a fitted edit adds the hash of its source
    row. Each hash is the sha256 of an image's size and pixels (`store.decoding.pixels_sha256`). A
    single hash of a whole set may replace the list."""
    datasets: Annotated[tuple[MendedWith, ...], Field(max_length=MOST_SETS)]
    lam: Annotated[_Weight | None, Field(alias="lambda")]
    """Λ, or None if the method has no λ; the file's key is `lambda`."""
    fit: Literal["lbfgs", "sgd", "network"]
    weight_decay: _Weight
    rows: Annotated[
        dict[Printable | Literal[""], _Rows],
        Field(min_length=1, max_length=MOST_SETS),
        BeforeValidator(lambda value: {"": value} if isinstance(value, int) else value),
    ]
    """The number of rows that the head was fitted to, by kind of row. The kind "" means all rows;
    the file then holds a number instead of a mapping."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document that is written to mended.json."""
        document = plain_value(self)
        document["lambda"] = document.pop("lam")
        for dataset in document["datasets"]:
            if dataset["edits"] is None:
                del dataset["edits"]
        if set(self.rows) == {""}:
            document["rows"] = self.rows[""]
        return document


def mended_of(name: str) -> MendedNote | None:
    """Read the mended.json of the model `name`. Return None if the model has no such file.

    UserError for an invalid file.
    """
    if name.startswith(PYTHON):
        return None
    if name.startswith((LAB, LOCAL)):
        folder = local_folder(name)
        return None if folder is None else read_mended(folder, name)
    if not name.startswith(HUB):
        return None
    from huggingface_hub import errors as hub
    from huggingface_hub import hf_hub_download

    repository, _, revision = name.removeprefix(HUB).partition("@")

    def fetch() -> Path | None:
        config = Path(hf_hub_download(repository, "config.json", revision=revision or None))
        try:
            return Path(hf_hub_download(repository, MENDED, revision=config.parent.name)).parent
        # also when offline: loading a mended model has cached its mended.json
        except hub.EntryNotFoundError:
            return None

    cached = while_loading(name, fetch)
    return None if cached is None else read_mended(cached, name)


def read_mended(folder: Path, model: str) -> MendedNote | None:
    """Read the mended.json in a model's folder. Return None if the folder has no such file.

    UserError with all problems of an invalid file.
    """
    file = folder / MENDED
    if not file.exists() and not file.is_symlink():
        return None
    return read_document(file, MendedNote, MOST_BYTES, where=f"model {model!r}: {MENDED}")
