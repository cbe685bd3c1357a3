"""Datasets with a fault that no hash shows: shards with other rows, whose receipts and manifest
were made to match."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from counterfoil.dataset.closing import close_again
from counterfoil.dataset.verification import Problem, Verification
from counterfoil.documents import document_bytes
from counterfoil.recipe import load_recipe
from counterfoil.store.atomic import atomic_file
from counterfoil.store.layout import What
from counterfoil.store.manifest import write_manifest
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.receipts import Receipt, StoredFile, write_receipt
from counterfoil.store.rows import TableForm, arrow_schema, table_columns, unique_names
from counterfoil.store.shard_files import write_parquet, write_tar
from tiny_builds import published

Rows = list[dict[str, Any]]

# The datasets of conftest.py.
KINDS = ("parquet", "webdataset", "tokens")
# Kinds of files, or files, that only datasets of tar files have.
OF_TARS = {"_info.json", "candidates/*.tar", "data/*.tar", "rejected/*.tar"}


def kind_of(path: str) -> str:
    """Return the folder and suffix of a file, or its name outside folders: files of one kind are
    damaged alike."""
    folder, _, name = path.rpartition("/")
    return f"{folder.partition('/')[0]}/*{Path(name).suffix}" if folder else name


def one_of_each_kind(directory: Path) -> dict[str, str]:
    """Return a file of each kind; in a dataset of tar files, only kinds that Parquet ones lack."""
    files = {kind_of(path): path for path in published(directory)}
    if "_info.json" not in files:
        return files
    return {kind: path for kind, path in files.items() if kind in OF_TARS}


def receipt_with(directory: Path, what: What, rows: int = 2) -> Receipt:
    return next(receipt for receipt in read_receipts(directory) if receipt.rows[what] >= rows)


def path_of(receipt: Receipt, what: What) -> str:
    file = receipt.file(what)
    assert file is not None
    return file.path


def doctor(directory: Path, receipt: Receipt, what: What, change: Callable[[Rows], Rows]) -> str:
    """Write a shard's table again with changed rows; its path. Receipt and manifest say that all is
    well."""
    form = TableForm.of(load_recipe(directory))
    rows = change(
        list(read_shard(directory, receipt, what=what, columns=columns_of(what, form), form=form))
    )
    path = path_of(receipt, what)
    with atomic_file(directory / path) as file:
        if path.endswith(".tar"):
            write_tar(file, rows)
        else:
            recipe = load_recipe(directory)
            names = unique_names(recipe.classes)
            write_parquet(file, rows, arrow_schema(what, names, TableForm.of(recipe)))
    restate(directory, receipt, path, len(rows))
    return path


def columns_of(what: What, form: TableForm) -> list[str]:
    return list(table_columns(what, form))


def restate(directory: Path, receipt: Receipt, path: str, rows: int | None = None) -> None:
    """Write what a file is now into receipt, card and manifest."""
    content = (directory / path).read_bytes()
    old = next(file for file in receipt.files if file.path == path)
    new = StoredFile(
        path, len(content), hashlib.sha256(content).hexdigest(), old.rows if rows is None else rows
    )
    files = tuple(new if file.path == path else file for file in receipt.files)
    write_receipt(directory, replace(receipt, files=files))
    write_manifest(directory, {})


def with_receipt(directory: Path, receipt: Receipt, **changes: Any) -> None:
    """Write a receipt with other values, and a manifest that proves it."""
    (directory / receipt.path).write_bytes(document_bytes(json.loads(receipt.content()) | changes))
    write_manifest(directory, {})


def with_stack(directory: Path, **fields: Any) -> None:
    """Change the dataset as if another stack had rendered everything."""
    for path in [directory / "lock.json", *(directory / "receipts").iterdir()]:
        document = json.loads(path.read_text())
        document["stack"] |= fields
        path.write_bytes(document_bytes(document))
    # Where there is a manifest, closing asks it first. Card and croissant.json name the stack too.
    (directory / "manifest.json").unlink()
    close_again(directory)


def decoded(image: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(image)) as picture:
        return np.asarray(picture.convert("RGB"))


def problem_of(verification: Verification, path: str) -> list[Problem]:
    return [problem for problem in verification.problems if problem.path == path]


def named(verification: Verification) -> set[str]:
    """Return the files that have problems."""
    return {problem.path for problem in verification.problems}
