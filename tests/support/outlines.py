"""Folders of images with the outlines of objects, as COCO writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pycocotools import mask as pycocotools

from support.boxes import coco_folder


def runs_of(polygons: Any, height: int, width: int) -> Any:
    """Return the compressed run lengths of pycocotools."""
    return pycocotools.merge(pycocotools.frPyObjects(polygons, height, width))


def outlined_folder(folder: Path, count: int = 6) -> dict[str, Any]:
    """Write a COCO folder with outlines: rectangles as polygons, ellipses as run lengths, and a
    crowd; return the document."""
    coco_folder(folder, count)
    path = folder / "annotations.json"
    document = json.loads(path.read_text())
    for number, entry in enumerate(document["annotations"]):
        x, y, width, height = entry["bbox"]
        entry["segmentation"] = [[x, y, x + width, y, x + width, y + height, x, y + height]]
        if number % 3 == 1:
            runs = runs_of(entry["segmentation"], 120, 160)
            entry["segmentation"] = {"size": [120, 160], "counts": runs["counts"].decode()}
    document["annotations"][0]["iscrowd"] = 1
    path.write_text(json.dumps(document))
    return document
