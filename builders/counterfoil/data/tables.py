"""The rows of input datasets that `datasets` reads, at the pinned commit or with the pinned
content.

No loader runs code of a dataset. Files that a dataset names outside itself are refused, because
nothing pins them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.data.folder_cards import read_card
from counterfoil.data.folders import folder_listing, pinned_content
from counterfoil.data.hub_folders import (
    described_folder,
    fetched_images,
    is_fetched,
    listed_files,
    listed_images,
    made_of_files,
)
from counterfoil.data.image_folders import ImageFolder, read_image_folder, rows_mark
from counterfoil.data.mask_folders import (
    MaskFolder,
    OutlinedFolder,
    read_mask_folder,
    read_outlined_folder,
)
from counterfoil.data.messages import failure, message, refusal
from counterfoil.data.metadata_tables import as_written
from counterfoil.data.object_folders import ObjectFolder, read_object_folder
from counterfoil.data.pins import (
    InputDataset,
    SourcePin,
    binary_columns,
    cached_commit,
    prepared_folders,
)
from counterfoil.data.table_files import (
    data_files,
    is_saved,
    refuse_odd_card,
    refuse_odd_saved,
    refuse_other_names,
    refuse_outside,
    refuse_unassigned,
)
from counterfoil.data.table_sizes import refuse_vast
from counterfoil.data.written_objects import notes_of
from counterfoil.documents import sha256_json
from counterfoil.errors import CounterfoilError, Problems, RunFailure, UserError
from counterfoil.foreign_tables import inner_arrays
from counterfoil.models.loading_errors import error_line, known_cause
from counterfoil.models.names import refuse_elsewhere, refuse_shadowed
from counterfoil.recipe.names import is_local
from counterfoil.recipe.tasks.objects import MOST_OBJECTS
from counterfoil.regular_files import read_regular
from counterfoil.signals import obey_signal
from counterfoil.store.decoding import UnreadableImage, rgb_image, upright_photograph
from counterfoil.store.inside import blob_folders

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from counterfoil.store.inside import Listing


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a split, in order."""

    dataset: str
    split: str
    count: int
    columns: tuple[str, ...]
    pinned: str | None
    """The sha256 of the pin that determines labels and images, or None if nothing determines
    them."""
    column: Callable[[str], Sequence[Any]]
    class_names: Callable[[str], tuple[str, ...] | None]
    """The declared names of a column's labels."""
    images: Callable[[Sequence[int]], Iterator[bytes | None]]
    """Encoded images; a row without an image has None."""
    pictures: Callable[[str, Sequence[int]], Iterator[bytes | None]] = lambda *_: iter(())
    """Encoded images of any column, as they are stored."""
    paths: Callable[[], tuple[str, ...] | None] = lambda: None
    """Each row's path in a folder of image files."""
    numbering: Callable[[], tuple[str, ...]] = tuple
    """The labels of text by source label, as the splits number them that a recipe names."""
    rendered: Callable[[int], Image.Image] | None = None
    """A function that gives a row's pixels, for a dataset that is rendered on access."""
    notes: tuple[str, ...] = ()
    """Sentences on how boxes were read."""

    @property
    def place(self) -> str:
        return f"{self.dataset}, split {self.split}" if self.split else self.dataset

    def need(self, section: str = "source", **wanted: str | None) -> None:
        """Raise UserError for missing columns. `wanted` maps a key of the recipe's section to its
        column."""
        problems = Problems(message)
        for key, column in wanted.items():
            if column is not None and column not in self.columns:
                where = f"{section}.{key}: '{self.dataset}'"
                problems.add("missing-column", where, column, self.columns)
        problems.refuse()

    def image(self, row: int) -> Image.Image:
        """Decode one row's image as RGB. Raise UserError if it cannot be decoded."""
        if self.rendered is not None:
            return self.rendered(row)
        try:
            return rgb_image(next(self.images([row])), photograph=True)
        except UnreadableImage as error:
            paths = self.paths()
            file = "" if paths is None else f", {paths[row]}"
            where = f"source: {self.place}, row {row}{file}"
            raise refusal("unreadable-image.row", where, error) from error

    def numbers(self, column: str) -> list[int | None]:
        """Return a column's whole numbers, with None for a row without a number. Raise UserError
        for a column of other values.
        """
        numbers: list[int | None] = []
        for row, value in enumerate(self.column(column)):
            if value is None or value != value:
                numbers.append(None)
                continue
            # pandas writes whole numbers as fractions if a value is missing: 1.0, NaN.
            is_number = type(value) in (int, float)
            if is_number and value == value // 1 and abs(value) < 1 << 63:
                numbers.append(int(value))
            else:
                where = f"source.label_column: {self.place}, row {row}: '{column}'"
                kind = type(value).__name__
                raise refusal("unfit-column.label", where, str(value)[:40], type=kind)
        if numbers and all(number is None for number in numbers):
            raise refusal("missing-label.column", f"source.label_column: {self.place}", column)
        return numbers

    def texts(self, column: str, key: str) -> tuple[str, ...]:
        """Return a column's values as text, by class names if the column has them. Raise UserError
        for a missing column or missing values.
        """
        self.need(**{key: column})
        values = self.column(column)
        names = self.class_names(column)
        empty = [row for row, value in enumerate(values) if value is None]
        if empty:
            where = f"source.{key}: {self.place}"
            first = empty[0]
            raise refusal("unfit-column.empty", where, len(empty), column=column, row=first)
        known = dict(enumerate(names or ()))
        return tuple(str(known.get(value, value)) for value in values)

    def content(self, labels: np.ndarray) -> str:
        """Return the content id: sha256 of the pin if there is a pin, otherwise over labels and
        image bytes in order.
        """
        import numpy as np

        if self.pinned:
            return self.pinned
        digest = hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes())
        for image in self.images(range(len(labels))):
            mark = b"-"
            if image is not None:
                mark = b"+" + hashlib.sha256(image).digest()
            digest.update(mark)
        return digest.hexdigest()


# The name of all rows of a table without splits, and of the one group of a dataset without groups.
EVERYTHING = "all"
# The limit of one encoded image. The largest photographs of public datasets take about 30 MB.
MOST_BYTES = 1 << 28
_ROWS_AT_ONCE = 64
_PATHS_AT_ONCE = 1_000
_METADATA = "metadata.csv"
_SPLIT = re.compile(r"\w+")
# What a loader of `datasets` reads files as, whatever their names.
_ENDINGS = {
    "Json": ".json",
    "Csv": ".csv",
    "Parquet": ".parquet",
    "Arrow": ".arrow",
    "WebDataset": ".tar",
}


def rows_of_table(
    source: InputDataset,
    split: str,
    pin: SourcePin,
    table: Any,
    *,
    labelled: bool,
) -> Rows:
    """Return the rows of a split's table. Raise UserError if the table lacks images, or if
    `labelled` and it lacks labels.
    """
    folders = functools.cache(lambda: _image_folders(source.dataset))

    def pictures(column: str, chosen: Sequence[int]) -> Iterator[bytes | None]:
        with _in_words(source, split):
            encoded = _encoded(table, column)
        for start in range(0, len(chosen), _ROWS_AT_ONCE):
            part = [int(row) for row in chosen[start : start + _ROWS_AT_ONCE]]
            for row, cell in zip(part, encoded[part][column], strict=True):
                where = f"source: {source.dataset}, split {split}, row {row}"
                yield _bytes_of(cell, folders(), where)

    def images(chosen: Sequence[int]) -> Iterator[bytes | None]:
        encoded = pictures(source.image_column, chosen)
        return encoded if source.exif == "ignore" else map(upright_photograph, encoded)

    rows = Rows(
        dataset=source.dataset,
        split=split,
        count=len(table),
        columns=tuple(table.column_names),
        pinned=_pinned(source, split, pin, rows_mark(table.info.description)),
        column=lambda name: _plain_column(table, name, source, split),
        class_names=lambda name: _class_names(table.features[name]),
        images=images,
        pictures=pictures,
        paths=functools.cache(lambda: _paths(table, source)),
        notes=notes_of(table.info.description) if is_local(source.dataset) else (),
    )
    label_column = source.label_column if labelled else None
    rows.need(image_column=source.image_column, label_column=label_column)
    return rows


def _encoded(table: Any, column: str) -> Any:
    """Return a column of images that are not decoded."""
    import datasets

    alone = table.select_columns([column])
    return alone.cast_column(column, datasets.Image(decode=False))


def _paths(table: Any, source: InputDataset) -> tuple[str, ...] | None:
    """Return each image's path below a dataset's folder. Return None if any row is not a file in
    this folder."""
    import datasets

    column = source.image_column
    if not is_local(source.dataset) or not isinstance(table.features[column], datasets.Image):
        return None
    # The folder may be a link, so its files may have the link's name or the name of the link's
    # target.
    named = os.path.abspath(source.dataset)  # noqa: PTH100
    roots = tuple(f"{path}{os.sep}" for path in {named, os.path.realpath(named)})
    paths = []
    for batch in _encoded(table, column).with_format("arrow").iter(_PATHS_AT_ONCE):
        for name in batch[column].combine_chunks().field("path").to_pylist():
            if name is None or not name.startswith(roots):
                return None
            root = next(filter(name.startswith, roots))
            paths.append(name.removeprefix(root).replace(os.sep, "/"))
    return tuple(paths)


@dataclass(frozen=True, slots=True)
class Outline:
    """The splits and columns of a dataset.

    columns: name → "image", "classes", "integers", "text", another type of values ("bool") or
    "other". read: False if the dataset is too large to fetch. bytes: the size of the download, if
    declared.
    """

    rows: Mapping[str, int | None]
    columns: Mapping[str, str]
    class_names: Mapping[str, tuple[str, ...]]
    read: bool = True
    bytes: int | None = None


def table_outline(source: InputDataset, pin: SourcePin, most_bytes: int) -> Outline:
    """Return a dataset's splits and columns. For a Hub dataset above `most_bytes` they come from
    its metadata, if possible.
    """
    import datasets

    _refuse_no_dataset(source.dataset)
    if not is_local(source.dataset):
        with _in_words(source, None):
            revision = pin.revision or source.revision
            builder = datasets.load_dataset_builder(
                source.dataset, source.config, revision=revision
            )
            info = builder.info
        size = info.download_size
        if info.features and info.splits and size is not None and size > most_bytes:
            rows = {str(split): None for split in info.splits}
            return Outline(rows, *_columns(info.features), read=False, bytes=size)
    loaded = load_table(source, None, pin)
    tables = loaded if isinstance(loaded, dict) else {"train": loaded}
    if not tables:
        raise refusal("unknown-split.none", f"source: '{source.dataset}'")
    # A split of images without labels lacks a column, so the widest table is taken.
    widest = max(tables.values(), key=lambda table: len(table.features))
    rows = {str(split): len(table) for split, table in tables.items()}
    return Outline(rows, *_columns(widest.features))


def _columns(features: Any) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the kind of each column, and the class names of each column that has them."""
    import datasets

    kinds = {}
    names = {}
    for column, feature in features.items():
        kinds[column] = "other"
        if isinstance(feature, datasets.Image):
            kinds[column] = "image"
        elif isinstance(feature, datasets.ClassLabel):
            kinds[column] = "classes"
            names[column] = tuple(feature.names or ())
        elif isinstance(feature, datasets.Value):
            kinds[column] = feature.dtype
            if feature.dtype in ("string", "large_string"):
                kinds[column] = "text"
            elif feature.dtype.startswith(("int", "uint")):
                kinds[column] = "integers"
        elif not {"bbox", "bboxes", "box", "boxes"}.isdisjoint(_parts_of(feature)):
            kinds[column] = "objects"
    return kinds, names


def table_configs(source: InputDataset, pin: SourcePin) -> tuple[str, ...]:
    """Return the names of a dataset's configs, in the dataset's order. A saved table has no
    configs."""
    import datasets

    _refuse_no_dataset(source.dataset)
    if is_saved(Path(source.dataset)):
        return ()
    with _in_words(source, None):
        revision = None if is_local(source.dataset) else pin.revision
        return tuple(datasets.get_dataset_config_names(source.dataset, revision=revision))


def declared_names(source: InputDataset, pin: SourcePin | None) -> tuple[str, ...] | None:
    """Return the label names that a Hub dataset declares. Without a pin only this machine's copies
    are read."""
    import datasets

    _refuse_no_dataset(source.dataset)
    if is_local(source.dataset):
        return None
    commit = cached_commit(source) if pin is None else pin.revision
    images = None if pin is None else listed_images(source, pin)
    if images is not None:
        card = read_card(images[0], images[1].files, source.config)
        return None if card is None else card.names.get(source.label_column)
    prepared = [folder for folder in prepared_folders(source) if folder.name == commit]
    read = [folder for folder in prepared if not made_of_files(folder)]
    if len(read) == 1:
        features = datasets.DatasetInfo.from_directory(str(read[0])).features
    elif pin is None:
        return None
    else:
        with _in_words(source, None):
            features = _hub_builder(source, commit).info.features
    return None if features is None else _class_names(features.get(source.label_column))


def _refuse_no_dataset(name: str) -> None:
    """Raise UserError for a name that `datasets` would take for one of its loaders or for a
    folder."""
    from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

    refuse_elsewhere(name, "source.dataset")
    if is_local(name):
        return
    if name in _PACKAGED_DATASETS_MODULES:
        raise refusal("unknown-dataset.loader", "source.dataset", name)
    refuse_shadowed(name, "source.dataset")


def _class_names(feature: Any) -> tuple[str, ...] | None:
    """Return the label names that a column, its lists or its objects declare. Return None if no
    names are declared."""
    for part in (feature, *_parts_of(feature).values()):
        names = getattr(getattr(part, "feature", part), "names", None)
        if isinstance(names, list):
            return tuple(names)
    return None


def _parts_of(feature: Any) -> Mapping[str, Any]:
    """Return the parts of a struct, or of the structs in a list. Any other column has no parts."""
    inner = getattr(feature, "feature", feature)
    return inner if isinstance(inner, Mapping) else {}


def _pinned(
    source: InputDataset,
    split: str,
    pin: SourcePin,
    mark: str | None,
) -> str | None:
    """Hash the pin of a split's labels and images in order, without reading them. Return None if
    nothing pins them."""
    pinned: dict[str, Any] = {
        "image_column": source.image_column,
        "label_column": source.label_column,
        "config": source.config,
        "split": split,
    }
    if is_local(source.dataset):
        state = pin.content
        pinned["content"] = state
    else:
        state = pin.revision
        pinned |= {"dataset": source.dataset, "revision": state}
    if state is None:
        return None
    if mark is not None:
        pinned["rows"] = mark
    if source.exif != "ignore":
        pinned["exif"] = source.exif
    return sha256_json(pinned)


def plain_folder(source: InputDataset, pin: SourcePin | None = None) -> ImageFolder | None:
    """Return an input dataset as a folder of image files, or None if it is something else.

    pin: the commit of a dataset of the Hub, whose files are fetched. Without a pin, such a dataset
    is something else.
    """
    if not is_local(source.dataset):
        fetched = None if pin is None else fetched_images(source, pin)
        return None if fetched is None else read_image_folder(*fetched, source)
    path = Path(source.dataset)
    if not path.is_dir() or is_saved(path):
        return None
    return read_image_folder(path.resolve(), folder_listing(path), source)


def is_here(source: InputDataset, pin: SourcePin) -> bool:
    """Check whether the rows of a Hub dataset are on this machine."""
    images = listed_images(source, pin)
    if images is not None:
        return is_fetched(*images)
    return any(folder.name == pin.revision for folder in prepared_folders(source))


def load_table(source: InputDataset, split: str | None, pin: SourcePin) -> Any:
    """Load a split's table under its pin, or all tables by split. A dataset that was saved without
    splits is one table.
    """
    _refuse_no_dataset(source.dataset)
    load = _from_folder if is_local(source.dataset) else _from_hub
    with _in_words(source, split):
        return load(source, split, pin)


def _from_folder(source: InputDataset, split: str | None, pin: SourcePin) -> Any:
    import datasets
    from datasets import config
    from datasets.packaged_modules.folder_based_builder.folder_based_builder import (
        FolderBasedBuilder,
    )

    path = Path(source.dataset)
    is_folder = path.is_dir()
    listing = None
    if is_folder and pin.content is not None:
        listing = pinned_content(path, source.dataset, pin.content).listing
    if is_saved(path):
        refuse_vast(refuse_odd_saved(source, path), f"source: '{source.dataset}'")
        # A saved format may run code of the dataset's maker, so the format is removed.
        loaded = datasets.load_from_disk(str(path)).with_format(None)
        if split is None:
            return loaded
        if isinstance(loaded, datasets.DatasetDict):
            return loaded[split]
        # The split that a table was taken from, if its description says it: `test`, `test[:80%]`.
        saved, _, _ = str(loaded.split or "").partition("[")
        is_known = _SPLIT.fullmatch(saved) is not None
        if is_known and split not in (saved, EVERYTHING):
            where = f"source: '{source.dataset}'"
            raise refusal("unknown-split.saved", where, split, saved)
        return loaded
    refuse_odd_card(path)
    if is_folder:
        listing = listing or folder_listing(path)
        tables = _of_images(source, path.resolve(), listing, split)
        if tables is not None:
            return tables
        if listing.linked:
            where = f"source: '{source.dataset}', split '{split}'"
            raise refusal("unreadable-data.linked", where, next(iter(listing.linked)))
    # `datasets` recognises files by their times alone, so the cache of a folder is kept under the
    # hash of its content.
    cache = None
    if pin.content is not None:
        cache = str(Path(config.HF_DATASETS_CACHE) / "counterfoil" / pin.content[:32])
    builder = datasets.load_dataset_builder(source.dataset, source.config, cache_dir=cache)
    # Whether a `metadata.csv` without declared types lists the images. Columns of conditions are
    # read as numbers.
    of_images = (
        isinstance(builder, FolderBasedBuilder)
        and getattr(builder.config, "features", None) is None
    )
    as_csv = of_images and any(Path(name).name == _METADATA for name in data_files(builder))
    if cache is not None and as_csv and not binary_columns(source):
        builder = datasets.load_dataset_builder(
            source.dataset, source.config, cache_dir=f"{cache}-as-written"
        )
        builder.__dict__["_read_metadata"] = _read_as_written
    root = path.resolve()
    refuse_outside(source, builder, lambda name: Path(os.path.abspath(name)).is_relative_to(root))  # noqa: PTH100
    if listing is not None:
        names = {}
        for name in data_files(builder):
            file = Path(os.path.abspath(name))  # noqa: PTH100
            names[name] = file.relative_to(root).as_posix()
        refuse_unassigned(source, builder, listing.files, names, path)
    files = map(Path, data_files(builder))
    refuse_other_names(source, files, _described_names(builder))
    return _prepared(source, builder, split)


def _of_images(
    source: InputDataset,
    folder: Path,
    listing: Listing,
    split: str | None,
) -> Any:
    """Return the table of a split, or all tables by split, of a folder whose rows are image files;
    None for another."""
    read: ImageFolder | ObjectFolder | MaskFolder | OutlinedFolder | None = None
    mask_column = getattr(source, "mask_column", None)
    if mask_column is not None and source.config is None:
        read = read_mask_folder(folder, listing, mask_column)
        read = read or read_outlined_folder(folder, listing, mask_column)
    if source.objects is not None and source.config is None:
        read = read_object_folder(folder, listing, split, source.exif)
        if read is not None and split is None:
            return {name: read.table(name, measured=False) for name in read.splits}
    read = read or read_image_folder(folder, listing, source)
    if read is None:
        return None
    if split is not None:
        return read.table(split)
    return {name: read.table(name) for name in read.splits}


def _read_as_written(metadata_file: str, metadata_ext: str = "") -> Iterator[Any]:
    """Yield a `metadata.csv` in an archive as it is written."""
    import pyarrow as pa
    from datasets.packaged_modules.folder_based_builder.folder_based_builder import pd

    frame = pd.read_csv(metadata_file, dtype=str, na_filter=False)
    yield as_written(pa.Table.from_pandas(frame))


def _plain_column(
    table: Any,
    name: str,
    source: InputDataset,
    split: str,
) -> Any:
    """Return a column's values. Raise UserError unless it holds numbers, texts or lists of these;
    other values would be decoded.
    """
    where = f"source: '{source.dataset}', split '{split}', column '{name}'"
    feature = table.features[name]
    if not _is_plain(feature):
        raise refusal("unfit-column.type", where, type(feature).__name__)
    with _in_words(source, split):
        alone = table.select_columns([name]).with_format("arrow")
        for column in alone.iter(_PATHS_AT_ONCE):
            longest = 0
            for part in inner_arrays(column[name].combine_chunks()):
                if hasattr(part, "value_lengths"):
                    lengths = part.value_lengths().to_pylist()
                    longest = max([longest, *filter(None, lengths)])
            if longest > MOST_OBJECTS:
                raise refusal("too-much-data.cell", where, longest, MOST_OBJECTS)
        return table.with_format(None)[name][:]


def _is_plain(feature: Any) -> bool:
    import datasets

    if isinstance(feature, dict):
        return all(map(_is_plain, feature.values()))
    if isinstance(feature, datasets.List | datasets.LargeList):
        return _is_plain(feature.feature)
    return isinstance(feature, datasets.ClassLabel | datasets.Value)


def _from_hub(source: InputDataset, split: str | None, pin: SourcePin) -> Any:
    from huggingface_hub import try_to_load_from_cache

    fetched = fetched_images(source, pin)
    if fetched is not None:
        tables = _of_images(source, *fetched, split)
        if tables is not None:
            return tables
    builder = _hub_builder(source, pin.revision)
    if pin.revision is None:
        return _prepared(source, builder, split)
    refuse_outside(source, builder, lambda name: f"@{pin.revision}/" in name)
    names = {name: name.partition(f"@{pin.revision}/")[2] for name in data_files(builder)}
    listed = listed_files(source.dataset, pin.revision) if names else None
    if listed is not None:
        folder = described_folder(source.dataset, pin.revision)
        refuse_unassigned(source, builder, listed, names, folder)
    described = _described_names(builder)
    loaded = _prepared(source, builder, split)
    # Only cached files are listed. Files behind a table that `datasets` prepared earlier may be
    # gone, and are not fetched again.
    of_commit: Any = {"revision": pin.revision, "repo_type": "dataset"}
    cached = []
    for name in names.values():
        file = try_to_load_from_cache(source.dataset, name, **of_commit)
        if isinstance(file, str):
            cached.append(Path(file))
    refuse_other_names(source, cached, described)
    return loaded


def _described_names(builder: Any) -> dict[str, tuple[str, ...]]:
    """Return the names of labels that a reader knows before it reads a row: those of README.md."""
    names = {}
    features = builder.info.features or {}
    for column, feature in features.items():
        of_column = getattr(feature, "names", None)
        if isinstance(of_column, list):
            names[column] = tuple(map(str, of_column))
    return names


def _hub_builder(source: InputDataset, commit: str | None) -> Any:
    """Return the reader of a Hub dataset at a commit, or at the recipe's revision."""
    import datasets
    from datasets.packaged_modules.cache.cache import Cache

    builder = datasets.load_dataset_builder(
        source.dataset, source.config, revision=commit or source.revision
    )
    if commit in (None, builder.hash):
        return builder
    # Without the Hub `datasets` takes the commit that it read last.
    folders = [folder for folder in prepared_folders(source) if folder.name == commit]
    if not folders:
        raise failure("hub-unreachable.commit", f"source: '{source.dataset}'", commit)
    if len(folders) > 1:
        names = [folder.parts[-3] for folder in folders]
        raise refusal("unclear-choice.configs", f"source: '{source.dataset}'", names)
    *_, name, config, version, _ = folders[0].parts
    return Cache(
        cache_dir=str(folders[0].parents[3]),
        dataset_name=name.rpartition("___")[2],
        config_name=config,
        version=version,
        hash=commit,
        repo_id=source.dataset,
    )


def _prepared(source: InputDataset, builder: Any, split: str | None) -> Any:
    """Return a table, prepared if it is not kept from before. Its files are measured before
    `datasets` reads them."""
    where = f"source: '{source.dataset}'"
    split_generators = builder._split_generators
    read_metadata: Any = getattr(builder, "_read_metadata", None)

    def checked(manager: Any, **options: Any) -> Any:
        fetched = manager.download(builder.config.data_files or {})
        files = [Path(name) for names in fetched.values() for name in names]
        refuse_vast(files, where, _ENDINGS.get(type(builder).__name__), builder.config)
        generators = split_generators(manager, **options)
        for part in generators:
            given = part.gen_kwargs
            # `datasets` takes the folder that an archive lies in for the class of its images.
            if given.get("add_labels"):
                archives = [Path(name).name for name, unpacked, _ in given["files"] if unpacked]
                if archives:
                    raise refusal("unreadable-data.archive", where, archives)
        return generators

    def checked_metadata(file: str, metadata_ext: str) -> Iterator[Any]:
        refuse_vast([Path(file)], where, metadata_ext)
        return read_metadata(file, metadata_ext=metadata_ext)

    builder._split_generators = checked
    if read_metadata is not None:
        builder._read_metadata = checked_metadata  # of a table in an archive
    builder.download_and_prepare()
    return builder.as_dataset(split=split)


@contextlib.contextmanager
def _in_words(source: InputDataset, split: str | None) -> Iterator[None]:
    """Turn errors of `datasets` into messages, for a user's mistake or a missing network."""
    import datasets
    from datasets.exceptions import DatasetsError

    datasets.disable_progress_bars()
    # `datasets` warns each time it reads a README.md without YAML, which is no mistake.
    cards = logging.getLogger("huggingface_hub.repocard")
    # A level would clear what the loggers of all libraries remember, thousands, at each image.
    is_first = _no_warning not in cards.filters
    if is_first:
        cards.addFilter(_no_warning)
    where = f"source: '{source.dataset}'"
    try:
        yield
        obey_signal()  # where `datasets` hashes its tables, it catches everything
    except CounterfoilError:
        raise
    except Exception as error:  # files may hold anything, and libraries call further libraries
        known = known_cause(where, error)
        if known is not None:
            raise known from error
        if split is not None:
            where += f", split '{split}'"
        kind: type[CounterfoilError] = UserError
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            kind = RunFailure
        # For a damaged file, the cause of the error says what is wrong.
        inner = error.__cause__ if isinstance(error, DatasetsError) else None
        cause = inner or error
        reason = error_line(cause)
        name = "unreadable-data.dataset"
        # `datasets` raises a plain ValueError that names this column.
        if "file_name" in reason:
            name = "unreadable-data.metadata"
        elif isinstance(cause, UnicodeDecodeError):
            name = "unreadable-data.encoding"
        raise kind(message(name, where, reason)) from error
    finally:
        if is_first:
            cards.removeFilter(_no_warning)


def _no_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _image_folders(dataset: str) -> tuple[str, ...]:
    """Return the folders that may hold an image: the dataset's own folder, and the caches. Each
    text ends in a separator.
    """
    from datasets import config
    from huggingface_hub import constants

    folders = [
        constants.HF_HUB_CACHE,
        config.DOWNLOADED_DATASETS_PATH,
        config.EXTRACTED_DATASETS_PATH,
    ]
    if is_local(dataset):
        folders += [dataset, *folder_listing(Path(dataset)).linked.values()]
        # A snapshot of the Hub's client is links into this folder.
        folders += (blob_folders(Path(dataset)) or ())[:1]
    return tuple(f"{str(Path(folder).resolve()).rstrip(os.sep)}{os.sep}" for folder in folders)


def _bytes_of(cell: Any, folders: tuple[str, ...], where: str) -> bytes | None:
    """Return a cell's encoded image, or None for a row without an image. Raise UserError for a file
    outside these folders.
    """
    if cell is None:
        return None
    encoded = cell.get("bytes")
    if encoded:
        if len(encoded) > MOST_BYTES:
            raise refusal("too-much-data.image", where, len(encoded), MOST_BYTES)
        return encoded
    name = cell.get("path")
    if not name:
        return None
    try:
        # A relative path would depend on the working directory, so it is not opened.
        real = ""
        if os.path.isabs(name):  # noqa: PTH117 (any text)
            real = os.path.realpath(name, strict=True)
        if real.startswith(folders):
            return read_regular(real, MOST_BYTES)
    except (OSError, ValueError, RuntimeError) as error:
        raise refusal("unreadable-image.file", f"{where}, {name[:200]}", error) from error
    raise refusal("outside-dataset.image", where, name)
