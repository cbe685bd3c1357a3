"""Which images of a folder belong to which split: by the folders at the top, or as the folder's
description lists them.

`datasets` takes a word anywhere in a path for a split. Here only whole folders at the top are
splits, and what may be a split or a class is refused.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from counterfoil.data.folder_cards import FolderCard, fixed_folder
from counterfoil.data.messages import refusal
from counterfoil.errors import some_of
from counterfoil.regular_files import on_a_line
from counterfoil.report.words import format_list

# The words that `datasets` takes for splits (`data_files.SPLIT_KEYWORDS`), and the characters that
# it allows beside a word.
SPLIT_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
SPLIT_OF = {word: split for split, words in SPLIT_WORDS.items() for word in words}
WORD = re.compile(rf"(?:^|[-._ 0-9/])({'|'.join(SPLIT_OF)})(?=[-._ 0-9/]|$)", re.IGNORECASE)
DEFAULT_SPLIT = "train"
# Words that also name things. Beside several class folders, others are splits without classes.
_CLASS_WORDS = frozenset(("train", "training", "valid"))
_MOST_SHOWN = 5


def shown_name(name: str) -> str:
    """Return a file's name for people, in which characters that act and bytes that are no text are
    escaped."""
    return on_a_line(os.fsencode(name).decode("utf-8", "backslashreplace"))


def split_of_name(name: str) -> str | None:
    """Return the split whose word is in a name (`instances_val2017`: validation), or None."""
    match = WORD.search(name)
    return None if match is None else SPLIT_OF[match[1].lower()]


def root_of(images: Sequence[str]) -> str:
    """Return the folder that contains the splits or classes. If the top has only one folder
    ("data/"), look in it, and so on.
    """
    root = ""
    while True:
        first = images[0][len(root) :].partition("/")[0]
        inside = f"{root}{first}/"
        if first.lower() in SPLIT_OF or not all(path.startswith(inside) for path in images):
            return root
        root = inside


def splits_of(
    folder: Path,
    images: Sequence[str],
    root: str,
    declared: Sequence[str],
    *,
    decided: bool,
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the images of each split, and the folder that contains its classes. Raise UserError if
    it is ambiguous.

    declared: the names of classes that the folder's description lists. decided: whether a table
    gives the labels, so that folders are no classes.
    """
    by_top = defaultdict[str, list[str]](list)
    for path in images:
        first, within, _ = path[len(root) :].partition("/")
        by_top[first if within else ""].append(path)
    tops = [top for top in by_top if top]
    split_of = {}
    depth = root.count("/") + 1
    flat = set()
    for top in tops:
        if top.lower() in SPLIT_OF:
            split_of[top] = SPLIT_OF[top.lower()]
        if not decided and all(path.count("/") == depth for path in by_top[top]):
            flat.add(top)
    one_split = {DEFAULT_SPLIT: tuple(images)}, {DEFAULT_SPLIT: root}
    if declared and set(tops) <= set(declared):
        _refuse_splits_below(folder, images, root)
        return one_split
    if not split_of:
        split_of = _splits_by_word(by_top, root, tops, decided=decided)
    outside = [top for top in by_top if top not in split_of]
    # "train" may be a class of vehicles, and "test" one of two groups. It is a class if the folders
    # beside it have no subfolders either, and none of them is named as another split.
    words = {top.lower() for top in split_of}
    is_plausible = len(tops) == 2 or words <= _CLASS_WORDS
    perhaps_class = len(split_of) == 1 and is_plausible and flat.issuperset(tops)
    if split_of and outside and not perhaps_class:
        named = ", ".join(f"{root}{top}/" for top in split_of)
        shown = []
        for top in outside:
            shown += [f"{root}{top}/"] if top else by_top[top]
        raise refusal(
            "unclear-split.outside",
            folder,
            shown_name(named),
            some_of(map(shown_name, shown)),
            images=sum(len(by_top[top]) for top in outside),
        )
    if not split_of or outside:
        doubtful = [f"'{root}{top}'" for top in tops if top not in flat and WORD.search(top)]
        if doubtful:
            shown_tops = shown_name(format_list(doubtful))
            raise refusal("unclear-split.doubtful", folder, shown_tops)
        _refuse_splits_below(folder, images, root)
        return one_split
    tops_of = defaultdict[str, list[str]](list)
    for top, split in split_of.items():
        tops_of[split].append(f"{root}{top}/")
    for split, folders in tops_of.items():
        if len(folders) > 1:
            shown_tops = shown_name(format_list(folders))
            raise refusal(
                "unclear-split.several",
                folder,
                shown_tops,
                split=split,
            )
    images_of: dict[str, tuple[str, ...]] = {}
    starts = {}
    order = list(SPLIT_WORDS)
    for top, split in sorted(split_of.items(), key=lambda entry: order.index(entry[1])):
        images_of[split] = tuple(by_top[top])
        starts[split] = f"{root}{top}/"
    return images_of, starts


def _splits_by_word(
    by_top: Mapping[str, Sequence[str]],
    root: str,
    tops: Sequence[str],
    *,
    decided: bool,
) -> dict[str, str]:
    """Find splits by a word in the names of top folders (`imgs_train`, `imgs_test`): all differ in
    this word alone, and share a class if folders are classes.
    """
    split_of = {}
    others = set()
    for top in tops:
        match = WORD.search(top)
        if match:
            split_of[top] = SPLIT_OF[match[1].lower()]
            without_word = top[: match.start(1)] + top[match.end(1) :]
            others.add(without_word.lower())
    if len(tops) < 2 or "" in by_top or len(others) != 1:
        return {}
    if len(set(split_of.values())) < len(by_top):
        return {}
    classes = []
    for top in tops:
        below = len(f"{root}{top}/")
        homes = {path[below:].rpartition("/")[0] for path in by_top[top]}
        classes.append({home.partition("/")[0] for home in homes})
    if decided or set.intersection(*classes):
        return split_of
    return {}


def _refuse_splits_below(folder: Path, images: Sequence[str], root: str) -> None:
    """Raise UserError for CLASS/SPLIT/FILE, because reading it by classes would mix the images of
    all splits."""
    split_folders = {}
    for path in images:
        first, *below = path[len(root) :].split("/")
        if len(below) > 1 and below[0].lower() in SPLIT_OF:
            split_folders[f"{root}{first}/{below[0]}/"] = None
    if split_folders:
        below_classes = some_of(map(shown_name, split_folders))
        raise refusal(
            "unclear-split.below",
            folder,
            below_classes,
            folders=len(split_folders),
        )


def listed_splits(
    folder: Path, chosen: Mapping[str, Sequence[str]], card: FolderCard
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the images of each split that a description lists, and the folder that contains its
    classes. Raise UserError if it is ambiguous.
    """
    assert card.files is not None

    starts = {}
    owner = {}
    for split, images in chosen.items():
        patterns = card.files[split]
        if not images:
            raise refusal(
                "no-images.split",
                folder,
                patterns,
                split=split,
            )
        for image in images:
            if owner.setdefault(image, split) != split:
                both = f"{owner[image]} and in {split}"
                raise refusal(
                    "unclear-split.listed-twice",
                    folder,
                    shown_name(image),
                    both,
                )
        fixed = {fixed_folder(pattern) for pattern in patterns}
        parents = fixed
        if len(fixed) > 1:
            # Where class folders are listed one by one, they have a folder in common.
            parents = {name[: name.rstrip("/").rfind("/") + 1] for name in fixed}
        start = min(parents)
        if len(parents) == 1:
            start += root_of([image[len(start) :] for image in images])
        depth = start.count("/") + 1
        deep = [image for image in images if image.count("/") > depth]
        tops = {image[len(start) :].split("/")[0] for image in deep}
        within = sorted(f"{start}{top}/" for top in tops if top.lower() in SPLIT_OF)
        if len(parents) > 1 or within:
            named = some_of(within or sorted(fixed))
            raise refusal(
                "unclear-split.listed-folders",
                folder,
                named,
                split=split,
            )
        starts[split] = start
    return {split: tuple(images) for split, images in chosen.items()}, starts
