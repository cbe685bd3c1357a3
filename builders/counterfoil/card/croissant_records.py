"""The file sets and record sets of croissant.json: for every config its files and the columns that they hold.

A Parquet config is a file set and its columns. A WebDataset config is a set of tar files, in it a set for each kind
of member, and the columns joined over the members' names. Ids have a hyphen where no name of a config has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.card.configs import DEFAULT, Config
from counterfoil.store.rows import TableForm, column_types, unique_names

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

CLASS_NAMES = "class-names"

Node = dict[str, Any]

_IMAGE_FORMATS = {"png": "image/png", "jpg": "image/jpeg", "webp": "image/webp"}
_DATA_TYPES: dict[str, Any] = {
    "string": "sc:Text",
    "Image": "sc:ImageObject",
    "ClassLabel": ["sc:Integer", "cr:Label"],
    "int32": "sc:Integer",
    "int64": "sc:Integer",
    "float32": "cr:Float32",
    "bool": "sc:Boolean",
    "list<float32>": "cr:Float32",
}
_DESCRIPTIONS = {
    "key": "Identity of the sample: shift, class id and index.",
    "image": "The image.",
    "label": "Position of the class in the recipe; not an ImageNet index.",
    "shift": "The shift, or base.",
    "class_id": "Unique id of the class; names may repeat.",
    "index": "Number of the sample in its cell, which is one class under one shift.",
    "pair": "Class id and index, shared by a base image and its shifted partners.",
    "prompt": "What the image was drawn from.",
    "seed": "Seed of the image's noise.",
    "object_score": "Cosine of the image with the object caption, in CLIP.",
    "shift_score": "Cosine of the image with the shift caption, in CLIP.",
    "object_threshold": "The least object score that passes.",
    "shift_threshold": "The least shift score that passes.",
    "reason": "accepted, or why not.",
    "embedding": "CLIP embedding of the image.",
}


def class_names(recipe: Recipe) -> Node:
    """The classes by label, as an enumeration that every label refers to."""
    names = unique_names([(cls.id, cls.name) for cls in recipe.classes])
    types: dict[str, Any] = {"label": "sc:Integer", "name": ["sc:Text", "sc:name"], "class_id": "sc:Text"}
    return {
        "@type": "cr:RecordSet",
        "@id": CLASS_NAMES,
        "name": CLASS_NAMES,
        "description": "The names of the classes by label.",
        "dataType": "sc:Enumeration",
        "key": {"@id": f"{CLASS_NAMES}/label"},
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{CLASS_NAMES}/{column}",
                "name": column,
                "dataType": type,
            }
            for column, type in types.items()
        ],
        "data": [
            {f"{CLASS_NAMES}/{column}": value for column, value in zip(types, row, strict=True)}
            for row in ((cls.label, name, cls.id) for cls, name in zip(recipe.classes, names, strict=True))
        ],
    }


def record_set_nodes(configs: Sequence[Config], recipe: Recipe) -> tuple[list[Node], list[Node]]:
    """(file sets, record sets) of every config."""
    describe = _webdataset if recipe.output.format == "webdataset" else _parquet
    described = [describe(config, recipe) for config in configs]
    return [node for sets, _ in described for node in sets], [records for _, records in described]


def _parquet(config: Config, recipe: Recipe) -> tuple[list[Node], Node]:
    files = f"{config.name}-files"
    fields = []
    for column, type in column_types(config.what, TableForm.of(recipe)).items():
        source: Node = {"fileSet": {"@id": files}, "extract": {"column": column}}
        if type == "Image":
            source["transform"] = {"jsonPath": "bytes"}  # a struct of the encoded file and its name
        fields.append(_field(config, column, type, source, recipe))
    fields += _split_field(config, files, recipe)
    return [_file_set(files, config, "application/x-parquet")], _record_set(config, fields)


def _webdataset(config: Config, recipe: Recipe) -> tuple[list[Node], Node]:
    suffix = recipe.output.image.format
    archives, images, labels, rows = (f"{config.name}-{part}" for part in ("files", "images", "labels", "rows"))
    sets = [_file_set(archives, config, "application/x-tar")]
    if config.what != "candidates":
        sets.append(_member_set(images, archives, f"*.{suffix}", _IMAGE_FORMATS[suffix]))
    sets += [
        _member_set(labels, archives, "*.cls", "text/plain"),
        _member_set(rows, archives, "*.json", "application/json"),
    ]
    fields = []
    for column, type in column_types(config.what, TableForm.of(recipe)).items():
        if type == "Image":
            source: Node = {"fileSet": {"@id": images}, "extract": {"fileProperty": "content"}}
        elif column == "label":
            source = {"fileSet": {"@id": labels}, "extract": {"fileProperty": "content"}}
        else:
            source = {"fileSet": {"@id": rows}, "extract": {"jsonPath": f"$.{column}"}}
        field = _field(config, column, type, source, recipe)
        if column == "key":
            field["references"] = _stem(labels)
        fields.append(field)
    if config.what != "candidates":
        # Members of a sample share their name: the key ties rows to labels, these two tie the images to both.
        for name, other in (("image_of_label", labels), ("image_of_row", rows)):
            tie = {**_field(config, name, "string", _stem(images), recipe), "references": _stem(other)}
            fields.append({**tie, "description": "The name that the members of a sample share."})
    return sets, _record_set(config, fields)


def _field(config: Config, column: str, type: str, source: Node, recipe: Recipe) -> Node:
    node: Node = {
        "@type": "cr:Field",
        "@id": f"{config.name}/{column}",
        "name": column,
        "dataType": _DATA_TYPES[type],
        "source": source,
    }
    if column in _DESCRIPTIONS:
        node["description"] = _DESCRIPTIONS[column]
    elif column in recipe.added_columns:
        node["description"] = recipe.added_columns[column].description
    if type == "list<float32>":
        node |= {"isArray": True, "arrayShape": "-1"}
    if type == "ClassLabel":
        node["references"] = {"field": {"@id": f"{CLASS_NAMES}/label"}}
    return node


def _split_field(config: Config, files: str, recipe: Recipe) -> list[Node]:
    """The split of `default`, which is the folder that a row's file lies in; other configs have one split."""
    if config.name != DEFAULT:
        return []
    source = {
        "fileSet": {"@id": files},
        "extract": {"fileProperty": "fullpath"},
        "transform": {"regex": "^data/([^/]+)/"},
    }
    node = _field(config, "split", "string", source, recipe)
    return [{**node, "dataType": ["sc:Text", "cr:Split"], "description": "The group, which is a split here."}]


def _record_set(config: Config, fields: Sequence[Node]) -> Node:
    rows = sum(split.rows for split in config.splits)
    what = {"data": "accepted images", "candidates": "candidates", "rejected": "rejected images"}[config.what]
    return {
        "@type": "cr:RecordSet",
        "@id": config.name,
        "name": config.name,
        "description": f"{rows:,} {what}; split {', '.join(split.name for split in config.splits)}.",
        "key": {"@id": f"{config.name}/key"},
        "field": list(fields),
    }


def _file_set(id: str, config: Config, format: str) -> Node:
    paths = [path for split in config.splits for path in split.paths]
    return {"@type": "cr:FileSet", "@id": id, "name": id, "encodingFormat": format, "includes": paths}


def _member_set(id: str, archives: str, pattern: str, format: str) -> Node:
    return {
        "@type": "cr:FileSet",
        "@id": id,
        "name": id,
        "containedIn": {"@id": archives},
        "encodingFormat": format,
        "includes": pattern,
    }


def _stem(files: str) -> Node:
    """The name of a member without its extension."""
    return {
        "fileSet": {"@id": files},
        "extract": {"fileProperty": "filename"},
        "transform": {"regex": r"^([^.]+)\."},
    }
