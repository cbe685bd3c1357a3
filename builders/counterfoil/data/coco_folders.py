"""Folders of images with a COCO file for each split: `images`, `annotations` and `categories`."""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.data.folder_splits import DEFAULT_SPLIT, shown_name, split_of_name
from counterfoil.data.messages import message, refusal
from counterfoil.data.written_objects import (
    ObjectFolder,
    Size,
    WrittenObjects,
    add_object,
    file_content,
    is_box,
    is_number,
    is_rotated,
    rotated_notes,
    written_id,
)
from counterfoil.documents import parse_json
from counterfoil.errors import Problems, quoted, some_of
from counterfoil.recipe.names import plain_name
from counterfoil.recipe.tasks.objects import MOST_OBJECTS, categories_problem, no_objects
from counterfoil.report.words import format_count

# COCO's annotations of its 118,287 training images take 450 MB.
_MOST_JSON = 1 << 30
# Prefixes of COCO's annotation files without boxes. These files list the same images as the files
# with boxes.
_NO_BOXES = ("captions_", "person_keypoints_", "panoptic_", "stuff_", "image_info_")
_KEYS = ("images", "annotations", "categories")
# The key of an annotation's outline: polygons, or run lengths of a crowd.
SEGMENTATION = "segmentation"
_OWNER = re.compile(rb'"image_id"\s*:\s*("[^"]*"|[^\s,}]*)')


def coco_folder(
    folder: Path,
    names: Sequence[str],
    images: Sequence[str],
    *,
    outlines: bool = False,
) -> ObjectFolder | None:
    """Return a folder of COCO files, or None if no file in it is one. outlines: whether objects have
    their `segmentation` too, as it is written."""
    documents = _documents(folder, names)
    if not documents:
        return None
    by_split = _by_split(folder, documents)
    categories_of = {name: _categories(folder / name, documents[name]) for name in documents}
    first = next(iter(documents))
    categories = categories_of[first]
    category_names = tuple(categories.values())
    for other, of_other in categories_of.items():
        if tuple(of_other.values()) != category_names:
            files = f"{shown_name(first)} and {shown_name(other)}"
            raise refusal("invalid-coco.differ", folder, files)
    by_basename = defaultdict[str, list[str]](list)
    for image in images:
        by_basename[_basename(image)].append(image)
    splits = {}
    absent = {}
    annotations: list[Mapping[str, Any]] = []
    used = set()
    for split_name, name in sorted(by_split.items()):
        document = documents[name]
        rows, absent[split_name] = _rows(
            folder,
            name,
            document,
            categories_of[name],
            by_basename,
            outlines,
        )
        splits[split_name] = rows
        annotations += document["annotations"]
        for row in rows:
            used.update(row.lists["category"])
    group = _group(documents[first]["categories"], categories, used)
    groups = frozenset[str]()
    notes = []
    if group is not None:
        groups = frozenset((group,))
        notes.append(
            f"the category {quoted(group)} has no object and groups the others, so it is no"
            " category here"
        )
    notes += _notes(annotations)
    # The usual numbers need no mention. Ids that are texts are no numbers.
    ids = tuple(number for number, name in categories.items() if name != group)
    if ids == tuple(range(1, len(ids) + 1)):
        ids = ()
    return ObjectFolder(
        folder,
        "COCO",
        category_names,
        splits,
        absent,
        groups,
        tuple(number for number in ids if isinstance(number, int)),
        tuple(notes),
        outlined=bool(annotations) and all(entry.get("segmentation") for entry in annotations),
    )


def _notes(annotations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield sentences on annotations that other programs may read in another way."""
    from_zero = ignored = rotated = odd = 0
    for entry in annotations:
        from_zero += written_id(entry.get("id")) == 0
        ignored += entry.get("ignore") in (1, True) and not entry.get("iscrowd")
        attributes = entry.get("attributes")
        if isinstance(attributes, Mapping):
            rotated += is_rotated(attributes.get("rotation"))
        area: Any = entry.get("area")
        _, _, width, height = entry["bbox"]
        if area is not None and is_number(area) and area >= 0:
            # A crowd has an outline too, and boxes may be rounded.
            odd += area > 2 * width * height or (area == 0 and width * height > 0)
    if from_zero:
        yield (
            f"{format_count(from_zero, 'annotation')} with the id 0: pycocotools counts its object as"
            " missed (its issue"
            " 332), and Counterfoil matches it like any other"
        )
    if ignored:
        yield (
            f"{format_count(ignored, 'object')} marked with ignore and not with iscrowd: they count"
            " like any other, as with pycocotools"
        )
    yield from rotated_notes(rotated)
    if odd:
        yield (
            f"{format_count(odd, 'object')} with an area of 0 or of more than twice the box: small,"
            " medium and large are taken from the area, as with pycocotools"
        )


def _documents(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the COCO files of a folder by name."""
    documents: dict[str, Any] = {}
    for name in names:
        if not name.lower().endswith(".json") or _basename(name).startswith(_NO_BOXES):
            continue
        path = folder / name
        content = file_content(path, _MOST_JSON)
        # Other JSON files are skipped without parsing them.
        if not all(f'"{key}"'.encode() in content for key in _KEYS):
            continue
        # Objects are counted before the file is parsed, which takes 20 times its bytes.
        most = max(Counter(_OWNER.findall(content)).values(), default=0)
        if most > MOST_OBJECTS:
            raise refusal(
                "too-much-data.objects",
                path,
                most,
                MOST_OBJECTS,
            )
        try:
            document = parse_json(content)
        except ValueError as error:
            raise refusal("invalid-coco.json", path, error) from error
        if not isinstance(document, Mapping):
            continue
        if all(isinstance(document.get(key), list) for key in _KEYS):
            documents[name] = document
    return documents


def _by_split(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the COCO file of each split."""
    by_split = defaultdict[str, list[str]](list)
    for name in names:
        # The split is in the name of the file, or else in the name of the file's folder
        # (train/_annotations.coco.json).
        home, _, file = name.rpartition("/")
        stem, _ = posixpath.splitext(file)
        split_name = split_of_name(stem) or split_of_name(home)
        by_split[split_name or DEFAULT_SPLIT].append(name)
    twice = Problems(message)
    for files in by_split.values():
        if len(files) > 1:
            twice.add("unclear-split.coco", folder, some_of(map(shown_name, files)))
    twice.refuse()
    return {split: name for split, (name,) in by_split.items()}


def _basename(name: str) -> str:
    return name.rpartition("/")[2]


def _categories(path: Path, document: Mapping[str, Any]) -> dict[int | str, str]:
    """Return category id → name in the order of ids, which is how detectors number them."""
    problems = Problems(message)
    names = dict[int | str, str]()
    for index, entry in enumerate(document["categories"]):
        written = entry if isinstance(entry, Mapping) else {}
        number = written_id(written.get("id"))
        name = written.get("name")
        if number is None or not isinstance(name, str) or number in names:
            problems.add("invalid-coco.category", f"{path}: categories[{index}]", entry)
        else:
            names[number] = name
    if all(isinstance(number, int) for number in names):
        names = dict(sorted(names.items()))
    if names and not problems.count:
        _rename_group(names, document)
    if not problems.count:
        problem = categories_problem([*names.values()]) if names else "found no category"
        if problem:
            problems.add("invalid-coco.categories", path, problem)
    problems.refuse()
    return names


def _rename_group(names: dict[int | str, str], document: Mapping[str, Any]) -> None:
    """Give a group without objects, numbered 0, another name if a category has its name: Roboflow calls
    the group as the project, which may be called as its only class.
    """
    if [*names] != [*range(len(names))]:
        return
    above = [
        entry.get("supercategory")
        for entry in document["categories"]
        if written_id(entry["id"]) == 0
    ]
    used = any(
        isinstance(entry, Mapping) and written_id(entry.get("category_id")) == 0
        for entry in document["annotations"]
    )
    others = [plain_name(name) for number, name in names.items() if number]
    if above == ["none"] and not used and plain_name(names[0]) in others:
        names[0] += " (group)"


def _group(
    entries: Sequence[Mapping[str, Any]], names: Mapping[int | str, str], used: set[int]
) -> str | None:
    """Return the category without objects that only groups the others, as exports of Roboflow begin
    with one."""
    if len(names) < 2 or 0 in used:
        return None
    first, *_ = names
    name = names[first]
    above_first = None
    groups = set()
    for entry in entries:
        above = entry.get("supercategory")
        if written_id(entry["id"]) == first:
            above_first = above
        if isinstance(above, str) and entry["name"] != above:
            groups.add(above)
    has_no_group = above_first in (None, "", "none")
    numbered_from_0 = [*names] == [*range(len(names))]
    return name if has_no_group and (numbered_from_0 or name in groups) else None


def _rows(
    folder: Path,
    name: str,
    document: Mapping[str, Any],
    categories: Mapping[int | str, str],
    by_basename: Mapping[str, list[str]],
    outlines: bool,
) -> tuple[list[WrittenObjects], int]:
    """Return the images of a COCO file that are in the folder, with their objects, and the number
    of missing images."""
    path = folder / name
    problems = Problems(message)
    rows = []
    lists_of: dict[int | str, Any] = {}
    absent = 0
    used = set()
    roots = _roots(document["images"], name, by_basename)
    for number, entry in enumerate(document["images"]):
        where = f"{path}: images[{number}]"
        written = entry if isinstance(entry, Mapping) else {}
        image = written_id(written.get("id"))
        file = written.get("file_name")
        if image is None or not isinstance(file, str) or image in lists_of:
            problems.add("invalid-coco.image", where, entry)
            continue
        lists = no_objects()
        if outlines:
            lists[SEGMENTATION] = []
        lists_of[image] = lists
        written_path, matches = _files_named(file, name, by_basename)
        if roots:
            # Of names that several folders have, the others are images of other splits.
            matches = [image for image in matches if image.removesuffix(written_path) in roots]
        if not matches:
            absent += 1
        elif len(matches) > 1:
            known = some_of(map(shown_name, matches))
            problems.add("invalid-coco.several", where, file, known)
        elif matches[0] in used:
            problems.add("invalid-coco.again", where, file)
        else:
            used.add(matches[0])
            rows.append(WrittenObjects(matches[0], lists, _written_size(entry)))
    index_of = {number: index for index, number in enumerate(categories)}
    for number, entry in enumerate(document["annotations"]):
        _add(
            entry,
            f"{path}: annotations[{number}]",
            lists_of,
            index_of,
            problems,
        )
    problems.refuse()
    if not rows:
        raise refusal("no-images.coco", path, absent)
    return rows, absent


def _add(
    entry: Any,
    where: str,
    lists_of: Mapping[int | str, dict[str, list[Any]]],
    index_of: Mapping[int | str, int],
    problems: Problems,
) -> None:
    """Add an annotation to the objects of its image, or what is wrong with it to `problems`."""
    if not isinstance(entry, Mapping):
        problems.add("invalid-coco.annotation", where, entry)
        return
    image = written_id(entry.get("image_id"))
    category = written_id(entry.get("category_id"))
    box = entry.get("bbox")
    area = entry.get("area")
    crowd = entry.get("iscrowd", 0)
    if image is None or image not in lists_of:
        problems.add("invalid-coco.image-id", where, entry.get("image_id"))
        return
    if category is None or category not in index_of:
        problems.add("invalid-coco.category-id", where, entry.get("category_id"))
        return
    if not isinstance(box, list) or not is_box(box):
        problems.add("invalid-coco.bbox", where, box)
        return
    if min(box[2:]) < 0:
        problems.add("invalid-coco.side", where, box)
        return
    if crowd not in (0, 1):
        problems.add("invalid-coco.iscrowd", where, crowd)
        return
    lists = lists_of[image]
    number = written_id(entry.get("id"))
    if not isinstance(number, int) or abs(number) >= 1 << 63:
        number = len(lists["id"])
    sides = [float(value) for value in box]
    if area is None or not is_number(area) or area < 0:
        area = sides[2] * sides[3]
    add_object(
        lists,
        id=number,
        bbox=sides,
        category=index_of[category],
        area=float(area),
        iscrowd=bool(crowd),
    )
    if SEGMENTATION in lists:
        add_object(lists, segmentation=entry.get(SEGMENTATION))


def _written_size(entry: Mapping[str, Any]) -> Size | None:
    """Return the width and height of an entry of `images`; None for sizes that some programs leave
    at 0."""
    width = written_id(entry.get("width"))
    height = written_id(entry.get("height"))
    if not isinstance(width, int) or not isinstance(height, int):
        return None
    return (width, height) if width > 0 and height > 0 else None


def _roots(
    entries: Sequence[Any], name: str, by_basename: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    """Return the folders from which a COCO file at `name` counts its paths, of those images whose
    paths other folders have too. Return none if a path may mean several images.
    """
    roots = set()
    for entry in entries:
        file = entry.get("file_name") if isinstance(entry, Mapping) else None
        if not isinstance(file, str):
            continue
        written, matches = _files_named(file, name, by_basename)
        if len(matches) > 1:
            return frozenset()
        if len(by_basename.get(_basename(written), ())) > 1:
            roots.update(image.removesuffix(written) for image in matches)
    return frozenset(roots)


def _files_named(
    file: str, name: str, by_basename: Mapping[str, Sequence[str]]
) -> tuple[str, Sequence[str]]:
    """Return the path that `file` says, and the images that it may mean in a COCO file at `name`:
    the image in the COCO file's own folder, or the best matches.
    """
    written = posixpath.normpath(file.replace("\\", "/")).lstrip("/")
    same_basename = by_basename.get(_basename(written), ())
    matches = [image for image in same_basename if f"/{image}".endswith(f"/{written}")]
    if len(matches) < 2:
        return written, matches
    home, _, coco_file = name.rpartition("/")
    stem, _ = posixpath.splitext(coco_file)
    beside = posixpath.join(home, written)
    if beside in matches:
        return written, [beside]
    # For example, the COCO file instances_val2017.json means images/val2017/1.jpg.
    named = []
    for image in matches:
        *folders, _ = image.split("/")
        if any(part in stem for part in filter(None, folders)):
            named.append(image)
    return written, named or matches
