"""A small input dataset of bags and sandals in a folder, which a test can take away."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from counterfoil.lab.scenes import load_wardrobe

GARMENT_CLASSES = (
    "source.classes=[{id: bag, name: bag, source_label: 0}, {id: sandal, name:"
    " sandal, source_label: 1}]"
)


def garment_folder(
    folder: Path, splits: tuple[str, ...] = ("train", "validation"), images: int = 4
) -> Path:
    """Write an image folder: split, class, picture."""
    for split in splits:
        labels, pixels = load_wardrobe(split)
        for name, label in (("bag", 8), ("sandal", 5)):
            class_folder = folder / split / name
            class_folder.mkdir(parents=True)
            for number, row in enumerate((labels == label).nonzero()[0][:images]):
                Image.fromarray(pixels(int(row))).save(class_folder / f"{number}.png")
    return folder
