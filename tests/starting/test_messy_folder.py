"""One folder with all that people's folders hold: what `init` and `evaluate` read of it, refuse and
report."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder as TorchvisionFolder
from typer.testing import CliRunner

from counterfoil.cli.main import app
from counterfoil.data.labelled_sources import labelled_source
from counterfoil.evaluation.dataset import open_subject
from drawn_folders import draw_folder
from support.files import write_all
from support.images import encoded

NOT_TEXT = os.fsdecode(b"mug/b\xe9b\xe9.png")


def messy(folder: Path) -> Path:
    """Draw ladders, mugs and stars of test and train, and everything else that a NAS, a phone and a
    Mac leave."""
    draw_folder(folder, per_class=4, splits=("train", "test"))
    picture = encoded((9, 9, 9))
    write_all(
        folder,
        {
            "test/mug/@eaDir/000.png/SYNOPHOTO_THUMB_M.png": picture,
            "__MACOSX/test/mug/._000.png": b"Mac OS X",
            "#recycle/old.png": picture,
            "test/star/.ipynb_checkpoints/000-checkpoint.png": picture,
            "test/mug/IMG_1.HEIC": b"heic",
            "test/star/IMG_2.HEIC": b"heic",
            "test/mug/Thumbs.db": b"x",
            "test/mug/.DS_Store": b"x",
            "test/mug/photo_test_9.png": picture,
            "test/star/close/up.png": picture,
            "test/star/cut.png": (folder / "test" / "star" / "000.png").read_bytes()[:200],
            f"test/{NOT_TEXT}": picture,
        },
    )
    (folder / "test" / "kettle").mkdir()
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", (64, 48), (200, 0, 0)).save(folder / "test" / "mug" / "phone.jpg", exif=exif)
    deep = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    Image.fromarray(deep).save(folder / "test" / "star" / "scan.png")
    return folder


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "80"})
    output = done.output + ("" if done.exception is None else str(done.exception))
    return done.exit_code, " ".join(output.split())


def test_everything_in_a_messy_folder_is_read_skipped_refused_or_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = messy(tmp_path / "photos")
    for words in (
        ("init", "photos", "--device", "cpu"),
        ("evaluate", "photos:test", "--models", "lab:resnet10t"),
    ):
        code, output = run(*words)
        assert code != 0 and "test/mug/b\\xe9b\\xe9.png: the name is not UTF-8 text" in output
    (folder / "test" / NOT_TEXT).unlink()

    code, output = run("init", "photos", "--device", "cpu")
    assert code == 0, output
    for line in (
        "classes are the folders of level 1 below the splits: ladder, mug, star",
        "1 image in 1 subfolder (test/star/close/up.png)",
        "no image is in 1 class folder: test/kettle",
        "1 image in #recycle, 1 image in .ipynb_checkpoints, 1 image in @eaDir",
        "2 HEIC photographs cannot be read here",
        "2 hidden files ignored",
        "1 file of other kinds ignored",
        "1 image is grey of 16 or 32 bits",
        "1 image has an EXIF tag",
        "1 image cannot be read, and a build leaves out test/star/cut.png (OSError: ",
    ):
        assert line in output, line

    data = labelled_source(f"{folder}:test")
    images = TorchvisionFolder(
        str(folder / "test"), allow_empty=True, is_valid_file=_is_a_photograph
    )
    rows = {
        path: (data.class_names or ())[label]
        for path, label in zip(data.paths or (), data.labels, strict=True)
    }
    assert rows == {
        Path(path).relative_to(folder).as_posix(): images.classes[label]
        for path, label in images.samples
    }
    assert len(data) == len(rows) == 12 + 5
    notes = open_subject(f"{folder}:test", None, None, None, {}).notes
    for note in (
        "level 1 below the splits",
        "test/kettle",
        "@eaDir",
        "2 HEIC",
        "grey of 16",
        "EXIF",
    ):
        assert any(note in text for text in notes), note


def _is_a_photograph(path: str) -> bool:
    parts = Path(path).parts
    return path.endswith((".png", ".jpg")) and not any(
        part.startswith((".", "@")) for part in parts
    )
