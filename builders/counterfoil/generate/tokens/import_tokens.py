"""Import class tokens from files of torch: a zip or a folder of `{label}.bin`, as of ImageNet*
(Vendrow 2023).

Each file has one tensor, alone or in the form of diffusers (`{placeholder: tensor}`) or of A1111
(`string_to_param`). Files are read with `weights_only=True`, so they cannot run code. Names in an
archive are never used as paths.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.documents import document_bytes
from counterfoil.errors import RunFailure, UserError, first_of
from counterfoil.generate.tokens.class_tokens import (
    MOST_BYTES,
    MOST_VECTORS,
    TOKENS_MANIFEST,
    TokenFile,
    placeholder_of,
    token_bytes,
    token_file_name,
)
from counterfoil.generate.tokens.learn_tokens import TokenResult
from counterfoil.generate.tokens.options import ImportOptions
from counterfoil.models.diffusion import text_widths
from counterfoil.models.loading_errors import error_line
from counterfoil.models.names import pin_model
from counterfoil.options import takes
from counterfoil.recipe import load_recipe
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder, try_folder, write_atomically
from counterfoil.store.directory_lock import directory_lock

if TYPE_CHECKING:
    import torch


@takes(ImportOptions)
def import_tokens(options: ImportOptions) -> TokenResult:
    """Import class tokens from `{source_label}.bin` files, one for each class of a recipe, and
    write `CLASS_ID.safetensors` and manifest.json.

    Returns:
        A TokenResult.

    Raises:
        UserError: A file is missing, is not a tensor, or does not have the width of the generator's
            text encoder.
    """
    recipe = resolve_classes(load_recipe(options.recipe, options.overrides))
    folder = named_path(options.out)
    try_folder(folder)
    widths = text_widths(recipe.drawing.model, recipe.drawing.revision)
    if len(widths) != 1:
        encoders = f"{recipe.drawing.model} has {len(widths)} text encoders"
        raise UserError(
            f"{encoders}, but a bare tensor holds the vectors of only one",
            "Choose a Stable Diffusion 1.x or 2.x generator, or learn tokens for this one.",
        )
    problems: list[str] = []
    tokens: dict[str, TokenFile] = {}
    with ExitStack() as stack:
        read = _reader(named_path(options.source), stack)
        for cls in recipe.classes:
            name = f"{cls.source_label}.bin"
            try:
                vectors = _vectors(name, read(name), widths[0], recipe.drawing.model)
            except UserError as error:
                problems += error.problems
                continue
            notes = {"method": "imported", "class_id": cls.id, "file": name}
            tokens[cls.id] = TokenFile(placeholder_of(cls.id, cls.name), (vectors,), notes)
    if problems:
        raise UserError(
            first_of(problems), "Tokens fit only the text encoder they were learned with."
        )
    make_folder(folder)
    with directory_lock(folder):
        classes = {}
        for class_id, token in tokens.items():
            content = token_bytes(token)
            digest = write_atomically(folder / token_file_name(class_id), content).sha256
            classes[class_id] = {
                "placeholder": token.placeholder,
                "sha256": digest,
                "file": token.notes["file"],
            }
        generator = pin_model(recipe.drawing.model, recipe.drawing.revision).document()
        manifest = {"method": "imported", "generator": generator, "classes": classes}
        digest = write_atomically(folder / TOKENS_MANIFEST, document_bytes(manifest)).sha256
    return TokenResult(folder, dict.fromkeys(tokens), tuple(tokens), {}, digest)


def _reader(source: Path, stack: ExitStack) -> Callable[[str], bytes]:
    """Return a function from the name of a file to its content.

    The source is a folder, or a zip with files at any depth.
    """

    folder = source.is_dir()
    if not folder and not source.is_file():
        raise UserError(
            f"--import: there is no {source}", "Name a zip or a folder of {label}.bin files."
        )
    members: dict[str, zipfile.ZipInfo] = {}
    if not folder:
        try:
            archive = stack.enter_context(zipfile.ZipFile(source))
        except (zipfile.BadZipFile, OSError) as error:
            raise UserError(
                f"--import: {source.name} is not a readable zip file ({error})"
            ) from error
        for member in archive.infolist():
            name = member.filename.rsplit("/", 1)[-1]
            if name in members and not member.is_dir():
                raise UserError(
                    f"--import: {source.name} holds {name} twice",
                    "Name a zip with one file per label.",
                )
            members[name] = member

    def read(name: str) -> bytes:
        path = source / name
        exists = path.is_file() if folder else name in members
        if not exists:
            raise UserError(f"--import: {source.name} has no {name}")
        size = path.stat().st_size if folder else members[name].file_size
        if size > MOST_BYTES:
            raise UserError(f"--import: {name} has {size} bytes, too many for a class token")
        if folder:
            return path.read_bytes()
        try:
            if members[name].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise NotImplementedError("it is compressed in another way than released tokens")
            with archive.open(members[name]) as file:
                # Whatever the header says, read at most one byte more than a token may have.
                return file.read(MOST_BYTES + 1)
        except Exception as error:  # of any type: a damaged archive raises zlib.error, EOFError, …
            raise RunFailure(
                f"--import: {name} in {source.name} cannot be read: {error_line(error)}"
            ) from error

    return read


def _vectors(name: str, content: bytes, width: int, model: str) -> torch.Tensor:
    """Return the tensor of a file as float32 [n, width].

    Raise UserError for any other content, for a tensor that is too large, and for numbers that are
    not finite.
    """
    import torch

    try:
        _refuse_inflated(content)
        tensor = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # of any type: the file may have any content
        raise UserError(f"--import: {name} is not a tensor that can be read safely") from error
    if isinstance(tensor, dict):
        named = tensor.get("string_to_param", tensor)
        tensor = None
        if isinstance(named, dict) and len(named) == 1:
            (tensor,) = named.values()
    # A few bytes may describe a tensor of any size, or a tensor without numbers.
    plain = (
        isinstance(tensor, torch.Tensor)
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
    )
    if not plain or not tensor.is_floating_point() or tensor.ndim not in (1, 2):
        raise UserError(f"--import: {name} holds no vector or list of vectors of one token")
    if tensor.shape[-1] != width:
        raise UserError(
            f"--import: {name}: width {tensor.shape[-1]}, expected {width} by {model}'s text"
            " encoder"
        )
    count = tensor.numel() // width
    if not 1 <= count <= MOST_VECTORS:
        raise UserError(
            f"--import: {name} holds {count:,} vectors, expected 1 to {MOST_VECTORS} of a token"
        )
    vectors = tensor.detach().float().reshape(-1, width).clone()
    if not bool(torch.isfinite(vectors).all()):
        raise UserError(f"--import: {name} holds numbers that are not finite")
    return vectors


def _refuse_inflated(content: bytes) -> None:
    """Raise ValueError for a torch file whose parts are compressed, or declare more bytes than a
    token may have."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = archive.infolist()
    if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
        raise ValueError("its parts are compressed, as torch never writes them")
    if sum(part.file_size for part in parts) > MOST_BYTES:
        raise ValueError("its parts are larger than those of a token")
