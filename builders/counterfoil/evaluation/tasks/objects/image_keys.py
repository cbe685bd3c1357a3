"""The images of a dataset with objects, listed for a detector that runs elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterfoil.documents import csv_text, document_text
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.tasks.objects.categories import category_ids
from counterfoil.evaluation.tasks.objects.subject import DetectionSubject, open_objects
from counterfoil.store.atomic import write_atomically
from counterfoil.store.decoding import open_image

COLUMNS = ("key", "file_name", "shift")


def write_image_keys(dataset: OpenDataset, path: Path) -> int:
    """Write the list of a dataset's images, and return their number.

    If the name of the file ends in .json, the file is a COCO file (images, annotations, categories). A file of results
    may then name images and categories by the ids of the COCO file. Any other file is a CSV of keys.
    """
    if path.suffix.lower() == ".json":
        write_atomically(path, document_text(coco_document(open_objects(dataset))).encode())
        return len(dataset.keys)
    suffix = dataset.recipe.output.image.format
    rows = (
        dict(zip(COLUMNS, (key, f"{key}.{suffix}", dataset.groups[shift].name), strict=True))
        for key, shift in zip(dataset.keys, dataset.shifts.tolist(), strict=True)
    )
    write_atomically(path, csv_text(rows, COLUMNS).encode())
    return len(dataset.keys)


def coco_document(subject: DetectionSubject) -> dict[str, Any]:
    """Return the dataset as a COCO document. A file of results may name images and categories by the ids in it."""
    dataset, suffix = subject.dataset, subject.dataset.recipe.output.image.format
    ids = category_ids(subject.categories, subject.category_ids)
    images, annotations = [], []
    for row, (key, encoded) in enumerate(dataset.images()):
        with open_image(encoded) as picture:
            width, height = picture.size
        group = dataset.groups[dataset.shifts[row]].name
        image = {"id": row + 1, "file_name": f"{key}.{suffix}", "width": width, "height": height, "group": group}
        images.append(image)
        objects = subject.objects[row]
        for index, box in enumerate(objects["bbox"]):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": row + 1,
                    "category_id": ids[objects["category"][index]],
                    "bbox": box,
                    "area": objects["area"][index],
                    "iscrowd": int(objects["iscrowd"][index]),
                }
            )
    categories = [{"id": number, "name": name} for number, name in zip(ids, subject.categories, strict=True)]
    return {"images": images, "annotations": annotations, "categories": categories}
