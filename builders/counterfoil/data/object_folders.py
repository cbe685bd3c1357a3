"""Folders of images with boxes, in the form of COCO or of YOLO, read as tables with a column `objects`.

An image is opened only if the folder's own listing has its name. Boxes are [x, y, width, height] in pixels from the top
left.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from counterfoil.data.image_folders import DEFAULT_SPLIT, in_junk, shown_name, split_of_name
from counterfoil.documents import parse_json
from counterfoil.errors import MOST_SHOWN, RunFailure, UserError, first_of, some_of
from counterfoil.recipe.names import did_you_mean, quoted
from counterfoil.recipe.objects import OBJECTS, categories_problem, no_objects, objects_feature
from counterfoil.recipe.strict_yaml import refuse_unbounded
from counterfoil.regular_files import read_regular
from counterfoil.store.decoding import PHOTOGRAPH_ENDINGS, UnreadableImage, open_image

if TYPE_CHECKING:
    from counterfoil.store.inside import Listing

ObjectLists = dict[str, list[Any]]
# COCO's annotations of its 118,287 training images take 450 MB.
_MOST_JSON = 1 << 30
_MOST_TEXT = 16_000_000
_MOST_IMAGE = 1 << 28
# Prefixes of COCO's annotation files without boxes. These files list the same images as the files with boxes.
_NO_BOXES = ("captions_", "person_keypoints_", "panoptic_", "stuff_", "image_info_")
_COCO_KEYS = ("images", "annotations", "categories")
_FORM = "A COCO file has the lists images (id, file_name), annotations (image_id, category_id, bbox) and categories."


@dataclass(frozen=True)
class ObjectFolder:
    """A folder of images with boxes.

    names: the categories, in the order of their numbers. splits: split → the images and their objects. absent: split →
    the number of listed images that the folder lacks.
    """

    folder: Path
    form: Literal["COCO", "YOLO"]
    names: tuple[str, ...]
    splits: Mapping[str, Sequence[tuple[str, ObjectLists]]]
    absent: Mapping[str, int]

    def table(self, split: str) -> Any:
        """Return a split's rows as a table of `datasets`."""
        import datasets
        import pyarrow
        from datasets.table import InMemoryTable

        if split not in self.splits:
            raise UserError(
                f"source: '{self.folder}' has no split '{split[:80]}'{did_you_mean(split, self.splits)}",
                f"Its splits are {', '.join(self.splits)}.",
            )
        rows = self.splits[split]
        features = datasets.Features.from_dict({"image": {"_type": "Image"}, OBJECTS: objects_feature(self.names)})
        files = pyarrow.array([f"{self.folder}/{path}" for path, _ in rows], pyarrow.string())
        nothing = pyarrow.nulls(len(rows), pyarrow.binary())
        columns = {
            "image": pyarrow.StructArray.from_arrays([nothing, files], names=["bytes", "path"]),
            OBJECTS: pyarrow.array([objects for _, objects in rows], features.arrow_schema.field(OBJECTS).type),
        }
        return datasets.Dataset(
            InMemoryTable(pyarrow.table(columns)),
            info=datasets.DatasetInfo(features=features),
            split=datasets.NamedSplit(split),
            fingerprint="counterfoil",  # unused; without a fingerprint `datasets` would hash the content
        )


def read_object_folder(folder: Path, listing: Listing, split: str | None = None) -> ObjectFolder | None:
    """Return a folder of COCO or YOLO files with the boxes of every split, or of one split. Return None for other
    folders.
    """
    names = [name for name in listing.files if not in_junk(name)]
    images = [name for name in names if posixpath.splitext(name)[1].lower() in PHOTOGRAPH_ENDINGS]
    if not images:
        return None
    return _yolo(folder, names, images, split) or _coco(folder, names, images, split)


def _text(path: Path) -> str:
    return _content(path, _MOST_TEXT).decode("utf-8", "replace")


def _content(path: Path, most: int) -> bytes:
    """Read at most `most` bytes of a file. Raise RunFailure if it cannot be read."""
    try:
        return read_regular(path, most, follow=False)
    except OSError as error:
        raise RunFailure(f"{path} {error.strerror or 'cannot be read'}") from error


@dataclass
class _Problems:
    """The problems of a file. Only the first problem lines are kept, because there may be millions."""

    file: str
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        self.count += 1
        if len(self.lines) < MOST_SHOWN:
            self.lines.append(f"{self.file}: {text}")

    def refuse(self, hint: str) -> None:
        if self.count:
            raise UserError(first_of(self.lines, count=self.count), hint)


# ---- COCO


def _coco(folder: Path, names: Sequence[str], images: Sequence[str], split: str | None) -> ObjectFolder | None:
    files = [name for name in names if name.lower().endswith(".json") and not _basename(name).startswith(_NO_BOXES)]
    documents: dict[str, Any] = {}
    for name in files:
        content = _content(folder / name, _MOST_JSON)
        # Other JSON files are skipped without parsing them.
        if all(f'"{key}"'.encode() in content for key in _COCO_KEYS):
            try:
                document = parse_json(content)
            except ValueError as error:
                raise UserError(f"{folder / name}: is not JSON: {error}", _FORM) from error
            if isinstance(document, Mapping) and all(isinstance(document.get(key), list) for key in _COCO_KEYS):
                documents[name] = document
    if not documents:
        return None
    by_split: dict[str, list[str]] = {}
    for name in documents:
        # The split is in the name of the file, or else in the name of the file's folder (train/_annotations.coco.json).
        split_name = split_of_name(posixpath.splitext(_basename(name))[0]) or split_of_name(name.rpartition("/")[0])
        by_split.setdefault(split_name or DEFAULT_SPLIT, []).append(name)
    if twice := [files for files in by_split.values() if len(files) > 1]:
        raise UserError(
            [f"{folder}: {some_of([*map(shown_name, files)])} are annotations of one split" for files in twice],
            "Keep one COCO file for each split, named after it: annotations/train.json, annotations/val.json.",
        )
    categories = {name: _coco_categories(folder / name, documents[name]) for name in documents}
    first, *others = documents
    if other := next((name for name in others if [*categories[name].values()] != [*categories[first].values()]), None):
        raise UserError(
            f"{folder}: {shown_name(first)} and {shown_name(other)} have other categories, or in another order",
            "Give every split the same list of categories.",
        )
    by_basename: dict[str, list[str]] = {}
    for image in images:
        by_basename.setdefault(_basename(image), []).append(image)
    splits, absent = {}, {}
    for split_name, (name,) in sorted(by_split.items()):
        rows = _coco_rows(folder / name, name, documents[name], categories[name], by_basename)
        splits[split_name], absent[split_name] = rows
    return ObjectFolder(folder, "COCO", tuple(categories[first].values()), splits, absent)


def _basename(name: str) -> str:
    return name.rpartition("/")[2]


def _coco_categories(path: Path, document: Mapping[str, Any]) -> dict[int, str]:
    """Return category id → name in the order of the file."""
    problems, names = _Problems(str(path)), {}
    for index, entry in enumerate(document["categories"]):
        number, name = (entry.get(key) if isinstance(entry, Mapping) else None for key in ("id", "name"))
        if type(number) is not int or not isinstance(name, str) or number in names:
            problems.add(f"categories[{index}] is {quoted(str(entry))}, expected a name, and an id of its own")
        else:
            names[number] = name
    if not problems.count and (problem := categories_problem([*names.values()]) if names else "found no category"):
        problems.add(f"categories: {problem}")
    problems.refuse(_FORM)
    return names


def _coco_rows(
    path: Path, name: str, document: Mapping[str, Any], categories: Mapping[int, str], position: Mapping[str, list[str]]
) -> tuple[list[tuple[str, ObjectLists]], int]:
    """Return the images of a COCO file that are in the folder, with their objects, and the number of missing images."""
    problems = _Problems(str(path))
    number = {identity: index for index, identity in enumerate(categories)}
    rows: list[tuple[str, ObjectLists]] = []
    objects_of: dict[Any, ObjectLists] = {}
    absent = 0
    used: set[str] = set()
    for number_in_list, entry in enumerate(document["images"]):
        identity, file = (entry.get(key) if isinstance(entry, Mapping) else None for key in ("id", "file_name"))
        if type(identity) not in (int, str) or not isinstance(file, str) or identity in objects_of:
            problems.add(
                f"images[{number_in_list}] is {quoted(str(entry))}, expected a file_name, and an id of its own"
            )
            continue
        objects = objects_of[identity] = no_objects()
        matches = _files_named(file, name, position)
        if len(matches) > 1:
            problems.add(f"images[{number_in_list}]: {quoted(file)} may be {some_of([*map(shown_name, matches)])}")
        elif matches and matches[0] in used:
            problems.add(f"images[{number_in_list}]: {quoted(file)} is listed again")
        elif matches:
            used.add(matches[0])
            rows.append((matches[0], objects))
        else:
            absent += 1
    for number_in_list, entry in enumerate(document["annotations"]):
        if not isinstance(entry, Mapping):
            problems.add(f"annotations[{number_in_list}] is {quoted(str(entry))}, expected a mapping")
            continue
        identity, category = entry.get("image_id"), entry.get("category_id")
        box, area, crowd = entry.get("bbox"), entry.get("area"), entry.get("iscrowd", 0)
        lists = objects_of.get(identity) if type(identity) in (int, str) else None
        if lists is None:
            problems.add(f"annotations[{number_in_list}]: there is no image {quoted(str(identity))}")
        elif type(category) is not int or category not in number:
            problems.add(f"annotations[{number_in_list}]: there is no category {quoted(str(category))}")
        elif not isinstance(box, list) or not is_box(box):
            problems.add(f"annotations[{number_in_list}]: bbox is {quoted(str(box))}, expected [x, y, width, height]")
        elif crowd not in (0, 1):
            problems.add(f"annotations[{number_in_list}]: iscrowd is {quoted(str(crowd))}, expected 0 or 1")
        else:
            object_id = entry.get("id")
            lists["id"].append(object_id if type(object_id) is int and abs(object_id) < 1 << 63 else len(lists["id"]))
            lists["bbox"].append([float(value) for value in box])
            lists["category"].append(number[category])
            lists["area"].append(float(area) if area is not None and is_number(area) else float(box[2]) * float(box[3]))
            lists["iscrowd"].append(bool(crowd))
    problems.refuse(_FORM)
    if not rows:
        raise UserError(
            f"{path} lists {absent:,} images, and none of them is in the folder",
            "Put the images beside the file, or into a folder images/. Names must be those of the file (file_name).",
        )
    return rows, absent


def _files_named(file: str, name: str, position: Mapping[str, list[str]]) -> list[str]:
    """Return the images that `file` may mean in a COCO file at `name`: the image in the COCO file's own folder, or the
    best matches.
    """
    written = posixpath.normpath(file.replace("\\", "/")).lstrip("/")
    matches = [image for image in position.get(_basename(written), ()) if f"/{image}".endswith(f"/{written}")]
    if len(matches) < 2:
        return matches
    home, stem = name.rpartition("/")[0], posixpath.splitext(_basename(name))[0]
    beside = [image for image in matches if image == posixpath.join(home, written)]
    # For example, the COCO file instances_val2017.json means images/val2017/1.jpg.
    named = [image for image in matches if any(part and part in stem for part in image.split("/")[:-1])]
    return beside or named or matches


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number and not a bool."""
    # An int may be larger than any float, so it is compared first. NaN is smaller than nothing.
    return type(value) in (int, float) and abs(value) < 1e15


def is_box(value: Any) -> TypeGuard[list[float]]:
    """Return whether a value is a list of four finite numbers."""
    return isinstance(value, list | tuple) and len(value) == 4 and all(map(is_number, value))


# ---- YOLO

_YAML_FORM = (
    "data.yaml has names (of the categories) and train, val, test: folders of images, beside folders of labels."
)
_LABEL_FORM = (
    "A line is a category's number and the box's centre and size as shares of the image: 0 0.5 0.5 0.2 0.3. A polygon"
    " is read as the box around it."
)
_YOLO_SPLITS = {"train": "train", "val": "validation", "test": "test"}


def _yolo(folder: Path, names: Sequence[str], images: Sequence[str], split: str | None) -> ObjectFolder | None:
    import yaml

    labels = {name for name in names if name.endswith(".txt") and "labels" in name.split("/")[:-1]}
    written = [name for name in names if name.endswith((".yaml", ".yml")) and "/" not in name]
    if not labels or not written:
        return None
    documents: dict[str, Mapping[str, Any]] = {}
    for name in written:
        text = _text(folder / name)
        try:
            refuse_unbounded(text, str(folder / name))
            document = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError) as error:
            raise UserError(
                f"{folder / name}: is not YAML: {' '.join(str(error).split())[:200]}", _YAML_FORM
            ) from error
        if isinstance(document, Mapping) and isinstance(document.get("names"), list | Mapping):
            documents[name] = document
    if not documents:
        return None
    if len(documents) > 1:
        raise UserError(f"{folder} has {some_of([*documents])}, each with names of categories", "Keep one.")
    ((name, document),) = documents.items()
    yaml_path = folder / name
    categories = _yolo_names(yaml_path, document["names"])
    listed = {name: _listed(yaml_path, document.get(key), names, images) for key, name in _YOLO_SPLITS.items()}
    listed = {split_name: paths for split_name, paths in listed.items() if paths}
    if not listed:
        raise UserError(f"{yaml_path}: train, val and test name no folder that has an image", _YAML_FORM)
    points = "kpt_shape" in document
    splits: dict[str, list[tuple[str, ObjectLists]]] = {}
    for split_name, paths in listed.items():
        problems = _Problems(str(folder))
        wanted = split in (None, split_name)
        splits[split_name] = []
        for path in paths:
            objects = no_objects()
            if wanted:
                objects = _yolo_objects(folder, path, labels, len(categories), points, problems)
            splits[split_name].append((path, objects))
        problems.refuse(_LABEL_FORM)
    return ObjectFolder(folder, "YOLO", categories, splits, {})


def _yolo_names(path: Path, names: Any) -> tuple[str, ...]:
    """Return the category names in the order of their numbers, from a list or a mapping that starts at 0."""
    if isinstance(names, Mapping):
        if set(names) != set(range(len(names))):
            raise UserError(f"{path}: names has numbers that are not 0 to {len(names) - 1}", _YAML_FORM)
        names = [names[number] for number in range(len(names))]
    texts = tuple(str(name) for name in names)
    problem = categories_problem(texts) if texts else "found no name"
    if problem is not None:
        raise UserError(f"{path}: names: {problem}", _YAML_FORM)
    return texts


def _listed(yaml_path: Path, entry: Any, names: Sequence[str], images: Sequence[str]) -> list[str]:
    """Return the images of a split, from the folders or lists of files that `entry` names."""
    listed_images: dict[str, None] = {}
    for text in entry if isinstance(entry, list) else [entry]:
        if text is None:
            continue
        if not isinstance(text, str):
            raise UserError(f"{yaml_path}: found {quoted(str(text))}, expected the name of a folder", _YAML_FORM)
        # Some exports write ../train/images for a folder that is beside the file.
        name = posixpath.normpath(text.replace("\\", "/"))
        while name.startswith("../"):
            name = name[3:]
        if name.endswith(".txt"):
            known = frozenset(images)
            lines = _text(yaml_path.parent / name).splitlines() if name in names else []
            paths = (posixpath.normpath(line.strip()) for line in lines)
            listed_images |= dict.fromkeys(path for path in paths if path in known)
        else:
            inside = "" if name == "." else f"{name}/"
            listed_images |= dict.fromkeys(image for image in images if image.startswith(inside))
    return [*listed_images]


def _yolo_objects(
    folder: Path, path: str, labels: frozenset[str] | set[str], categories: int, points: bool, problems: _Problems
) -> ObjectLists:
    """Return the objects of an image in pixels. An image without a file of labels has no objects."""
    objects = no_objects()
    # YOLO's own loaders do the same: the last folder images/ of the path becomes labels/.
    before, inside, after = f"/{path}".rpartition("/images/")
    file = posixpath.splitext(f"{before}/labels/{after}" if inside else f"/labels{after}")[0].lstrip("/") + ".txt"
    if file not in labels:
        return objects
    lines = _text(folder / file).splitlines()
    if not any(line.strip() for line in lines):
        return objects
    try:
        with open_image(_content(folder / path, _MOST_IMAGE)) as picture:
            width, height = picture.size
    except UnreadableImage:
        return objects  # such an image is left out when rows are chosen
    for row, line in enumerate(lines, start=1):
        parts = line.split()
        if not parts:
            continue
        try:
            category, numbers = int(parts[0]), [float(part) for part in parts[1:]]
        except ValueError:
            category, numbers = -1, []
        polygon = len(numbers) >= 6 and len(numbers) % 2 == 0 and not points
        # A fifth number is a score. In a pose file, the numbers after the box are points.
        has_box = polygon or len(numbers) in (4, 5) or (points and len(numbers) > 4)
        if not (0 <= category < categories and has_box and all(map(is_number, numbers))):
            expected = f"a number from 0 to {categories - 1} and four shares"
            problems.add(f"{file}, line {row}: found {quoted(line.strip())}, expected {expected}")
            continue
        if polygon:
            across, down = numbers[::2], numbers[1::2]
            left, top, right, bottom = min(across), min(down), max(across), max(down)
            centre = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        else:
            centre = numbers[:4]
        box = from_shares(centre, width, height)
        objects["id"].append(len(objects["id"]))
        objects["bbox"].append(box)
        objects["category"].append(category)
        objects["area"].append(box[2] * box[3])
        objects["iscrowd"].append(False)
    return objects


def from_shares(centre: Sequence[float], width: int, height: int) -> list[float]:
    """Return [x, y, width, height] in pixels for a box whose centre and size are fractions of the image."""
    across, down, wide, high = centre
    return [(across - wide / 2) * width, (down - high / 2) * height, wide * width, high * height]
