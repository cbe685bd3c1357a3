"""Files as an attacker writes them: pickles that run code when they are loaded, in every form that
torch reads."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import torch


class Attack:
    """Unpickling it writes a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.proof, "code of a stranger ran"))


def zipped(attack: Any) -> bytes:
    """Write as torch.save does today: a weight by name, and beside it the attack."""
    with io.BytesIO() as file:
        torch.save({"fc.weight": torch.zeros(2), "other": attack}, file)
        return file.getvalue()


def legacy(attack: Any) -> bytes:
    """Write as torch.save did before version 1.6: no archive."""
    with io.BytesIO() as file:
        torch.save({"fc.weight": attack}, file, _use_new_zipfile_serialization=False)
        return file.getvalue()


def bare(attack: Any) -> bytes:
    return pickle.dumps({"fc.weight": attack})


def tarred(attack: Any) -> bytes:
    """Write as torch did before version 0.1.10, which its readers knew long afterwards."""
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name in ("sys_info", "pickle", "storages", "tensors"):
                content = pickle.dumps(attack)
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return file.getvalue()


FORMS = {"zipped": zipped, "legacy": legacy, "bare": bare, "tarred": tarred}


def assert_that_it_works(form: str, proof: Path) -> None:
    """Check that the attack is real: a reader that trusts the file runs it. Otherwise a test would
    prove nothing."""
    content = FORMS[form](Attack(proof))
    if form == "tarred":
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            member = archive.extractfile("pickle")
            assert member is not None
            content = member.read()
    if form in ("bare", "tarred"):
        pickle.loads(content)
    else:
        torch.load(io.BytesIO(content), weights_only=False)
    assert proof.is_file()
    proof.unlink()
