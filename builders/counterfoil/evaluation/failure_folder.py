"""The images that models get wrong as a folder that other tools open: by class, as CSV, as COCO and for FiftyOne.

`images/CLASS/` holds the encoded images as the dataset has them, and every other file names them by their path in the
folder. Names of classes, images and models come from anybody, so a path or a field is made of their letters, digits,
`-` and `_` alone.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.documents import csv_text
from counterfoil.errors import UserError
from counterfoil.evaluation.failures import base_partners
from counterfoil.evaluation.scores import AllAnswers, answer_names
from counterfoil.progress import report
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import disk_errors, try_folder
from counterfoil.store.decoding import open_image

_LONGEST_STEM = 100
_SUFFIXES = {"jpeg": "jpg", "mpo": "jpg"}  # Pillow's name of a format → the usual ending, where they differ
_CSV = ("path", "model", "label", "class", "answered", "confidence", "shift", "key", "base_key", "source_path")


def check_new_folder(folder: str | Path) -> Path:
    """Return the path of a folder that is not there yet, or empty. UserError for another, or where none can be made."""
    path = named_path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is not an empty folder", "Name a new one: existing files are kept.")
    try_folder(path)
    return path


def write_failure_folder(answered: AllAnswers, folder: str | Path) -> Path:
    """Write the readable images that at least one model gets wrong; return the folder, which appears whole.

    UserError as `check_new_folder`.
    """
    target = check_new_folder(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(target), tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=target.parent) as temporary:
        made = Path(temporary) / target.name
        _write(answered, made)
        made.rename(target)  # also over an empty folder
    return target


def _write(answered: AllAnswers, folder: Path) -> None:
    subject, answers = answered.subject, answered.answers
    rows = np.flatnonzero((~answers.correct & answers.readable[:, None]).any(axis=1)).tolist()
    paired = [index for index, group in enumerate(subject.groups) if index and group.paired] if subject.base else []
    partners = base_partners(subject.labels, subject.shifts, subject.indices, answers.readable, paired)
    row_of = {subject.keys[row]: row for row in rows}
    taken: set[str] = set()
    class_folders = [_stem(cls.name, label, taken) for label, cls in enumerate(subject.classes)]
    fields: set[str] = set()
    columns = [_stem(re.sub(r"\W+", "_", name), index, fields) for index, name in enumerate(answered.models)]
    called = [answer_names(subject.classes, class_map) for class_map in answered.maps]
    stems: set[str] = set()
    lines: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    coco: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": [], "answers": []}
    for number, (key, encoded) in enumerate(subject.images(frozenset(row_of)), start=1):
        report("images of failures", number, len(rows))
        row = row_of[key]
        with open_image(encoded, photograph=True) as picture:
            (width, height), suffix = picture.size, str(picture.format).lower()
        label, shift = int(subject.labels[row]), subject.groups[subject.shifts[row]].name
        path = f"images/{class_folders[label]}/{_stem(key, row, stems)}.{_SUFFIXES.get(suffix, suffix)}"
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded or b"")
        origin = {
            "shift": shift,
            "key": key,
            "base_key": subject.keys[partners[row]] if partners[row] >= 0 else None,
            "source_path": None if subject.paths is None else subject.paths[row],
        }
        sample = {
            "filepath": path,
            "tags": [shift],
            "ground_truth": {"_cls": "Classification", "tags": [], "label": subject.classes[label].name},
            **origin,
        }
        coco["images"].append({"id": row, "file_name": path, "width": width, "height": height, **origin})
        coco["annotations"].append({"id": row, "image_id": row, "category_id": label})
        for place, model in enumerate(answered.models):
            output, share = int(answers.prediction[row, place]), float(answered.confidence[row, place])
            confidence = None if np.isnan(share) else round(share, 6)
            answer, correct = called[place](output), bool(answers.correct[row, place])
            classification = {"_cls": "Classification", "tags": [], "label": answer, "confidence": confidence}
            sample |= {f"answer_{columns[place]}": classification, f"right_{columns[place]}": correct}
            coco["answers"].append(
                {"image_id": row, "model": model, "answer": answer, "score": confidence, "right": correct}
            )
            if not correct:
                named = {"label": label, "class": subject.classes[label].name, "answered": answer}
                lines.append({"path": path, "model": model, **named, "confidence": confidence, **origin})
        samples.append(sample)
    folder.mkdir(exist_ok=True)
    info = {
        "description": f"Images of {subject.name} that a classifier gets wrong",
        "content": subject.content,
        "models": dict(zip((f"answer_{column}" for column in columns), answered.models, strict=True)),
        "classes": [cls.name for cls in subject.classes],
    }
    categories = [{"id": label, "name": cls.name} for label, cls in enumerate(subject.classes)]
    documents = {
        "coco.json": {"info": info, "categories": categories, **coco},
        # FiftyOne's format of datasets without a version of its database: fields are those of the samples.
        "metadata.json": {"media_type": "image", "info": info},
        "samples.json": {"samples": samples},
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    (folder / "failures.csv").write_text(csv_text(lines, _CSV), encoding="utf-8")


def _stem(name: str, number: int, taken: set[str]) -> str:
    """Return a name for a file or field of one's own: its safe characters, and a number where that is not enough."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:_LONGEST_STEM] or f"{number}"
    while stem.lower() in taken:  # also where a file system knows no upper case
        stem = f"{stem}_{number}"
    taken.add(stem.lower())
    return stem
