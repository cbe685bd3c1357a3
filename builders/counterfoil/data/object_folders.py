"""Folders of images with boxes, in the form of COCO, YOLO or Pascal VOC, read as tables with a
column `objects`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from counterfoil.data.coco_folders import coco_folder
from counterfoil.data.image_folders import visible_files
from counterfoil.data.voc_folders import voc_folder
from counterfoil.data.written_objects import ObjectFolder
from counterfoil.data.yolo_folders import refuse_nameless, yolo_folder

if TYPE_CHECKING:
    from counterfoil.store.inside import Listing


def read_object_folder(
    folder: Path,
    listing: Listing,
    split: str | None = None,
    exif: Literal["apply", "ignore"] = "ignore",
) -> ObjectFolder | None:
    """Return a folder of COCO, YOLO or Pascal VOC files. Return None for other folders.

    split: the split whose boxes are needed; None: all. exif: as `source.exif`, whether photographs
    are turned.
    """
    names, images = visible_files(listing)
    if not images:
        return None
    of_boxes = (
        yolo_folder(folder, names, images, split)
        or coco_folder(folder, names, images)
        or voc_folder(folder, names, images)
    )
    if of_boxes is None:
        refuse_nameless(folder, names, images)
        return None
    return replace(of_boxes, exif=exif)
