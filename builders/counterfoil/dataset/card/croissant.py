"""Write croissant.json, which describes the dataset for machines: Croissant 1.1 with its
responsible-AI (RAI 1.0) fields.

The file is written as plain JSON, so that its bytes do not depend on the version of a library. It
leaves out manifest.json, which holds the hash of this file, and dates and versions that the recipe
does not give. A Parquet config is a file set and its columns. A WebDataset config is a set of tar
files, a set for each kind of member, and the columns joined by the names of members. Ids contain a
hyphen, which the name of a config never contains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.dataset.card import metadata
from counterfoil.dataset.card.sections import Statements
from counterfoil.documents import document_bytes
from counterfoil.recipe import Recipe
from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.tasks.objects import OBJECTS
from counterfoil.store.layout import LOCK, RECIPE, THRESHOLDS
from counterfoil.store.rows import described_columns, unique_names
from counterfoil.store.sealed_folder import EVALUATED, REVIEWED

Node = dict[str, Any]

CONFORMS_TO = ("http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0")

# The standard context of Croissant 1.1 with RAI 1.0:
# https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
_OWN_TERMS = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileProperty",
    "fileObject", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate", "separator",
    "source", "subField", "transform",
)  # fmt: skip
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{term: f"cr:{term}" for term in _OWN_TERMS},
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}

# What the file objects are for; those that a dataset lacks are left out.
_DOCUMENTS = {
    RECIPE: ("application/yaml", "The recipe that the dataset was built from."),
    LOCK: (
        "application/json",
        "Every pinned input, the three hashes, and the software that the bytes depend on.",
    ),
    THRESHOLDS: ("application/json", "The CLIP thresholds of every class and shift."),
}


def croissant_bytes(directory: Path, page: Mapping[str, Any]) -> bytes:
    """Write croissant.json. page: what the card shows."""
    recipe: Recipe = page["recipe"]
    statements: Statements = page["said"]
    configs: Sequence[metadata.Config] = page["configs"]
    documents = dict(_DOCUMENTS)
    if page["results"] is not None:
        measured = f"{recipe.task.measures}, measured on these images."
        documents[EVALUATED.path] = ("application/json", measured)
    if page["looked_at"]:
        selected = "How often people selected each image as showing its class or shift."
        documents[REVIEWED.path] = ("application/json", selected)
    files = []
    for path, (format, description) in documents.items():
        if (directory / path).is_file():
            content = (directory / path).read_bytes()
            file = _node(
                "FileObject",
                path,
                description=description,
                contentUrl=path,
                contentSize=f"{len(content)} B",
                encodingFormat=format,
                sha256=hashlib.sha256(content).hexdigest(),
            )
            files.append(file)
    based_on = []
    for row in page["inputs"]:
        type_name = "sc:SoftwareApplication"
        if row.role in ("input dataset", "drawn images"):
            type_name = "sc:Dataset"
        work = {"@type": type_name, "name": row.name, "description": row.role}
        if row.pinned:
            work["identifier"] = row.pinned
        if row.license:
            work["license"] = metadata.license_reference(row.license)
        based_on.append(work)
    describe = _webdataset if recipe.output.format == "webdataset" else _parquet
    records = [class_names(recipe)] if configs else []
    for config in configs:
        sets, rows = describe(config, recipe)
        files += sets
        records.append(rows)
    about = recipe.description.strip() or statements.summary
    not_for = [f"Not for: {use}" for use in statements.unintended]
    document = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": list(CONFORMS_TO),
        "name": recipe.name,
        "alternateName": metadata.pretty_name(recipe.name),
        "description": " ".join(filter(None, (page["preview"], about))),
        "license": metadata.license_reference(recipe.license),
        "keywords": metadata.tags_of(recipe),
        "citeAs": page["dataset_entry"],
        "isBasedOn": based_on,
        **_published(recipe),
        "rai:dataCollection": statements.collection,
        "rai:dataCollectionType": "Others",  # the vocabulary has no word for images that were drawn
        "rai:dataCollectionMissingData": statements.missing,
        "rai:dataCollectionRawData": statements.source,
        "rai:dataPreprocessingProtocol": list(statements.preprocessing),
        "rai:dataAnnotationProtocol": statements.annotation,
        "rai:annotationsPerItem": "1",
        "rai:machineAnnotationTools": list(statements.annotation_tools),
        "rai:dataUseCases": [*statements.intended, *not_for],
        "rai:dataBiases": list(statements.biases),
        "rai:dataLimitations": list(statements.limits),
        "rai:dataSocialImpact": statements.social_impact,
        "rai:personalSensitiveInformation": statements.personal,
        "rai:dataReleaseMaintenancePlan": statements.maintenance,
        "distribution": files,
        "recordSet": records,
    }
    return document_bytes(document)


def _published(recipe: Recipe) -> Node:
    publish = recipe.publish
    address = metadata.address_of(recipe)
    node: Node = {}
    if address is not None:
        node["url"] = address
    if publish.doi is not None:
        node["sameAs"] = f"https://doi.org/{publish.doi}"
    if publish.authors:
        node["creator"] = []
        for author in publish.authors:
            kind = "sc:Organization" if metadata.is_organisation(author) else "sc:Person"
            creator = {"@type": kind, "name": metadata.plain_author(author)}
            node["creator"].append(creator)
    elif publish.repo is not None:
        owner = publish.repo.partition("/")[0]
        node["creator"] = {
            "@type": "sc:Organization",
            "name": owner,
            "url": f"https://huggingface.co/{owner}",
        }
    if publish.year is not None:
        node["datePublished"] = str(publish.year)
    if publish.version is not None:
        node["version"] = publish.version
    return node


CLASS_NAMES = "class-names"

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
    "list<ClassLabel>": "sc:Integer",
    OBJECTS: "sc:StructuredValue",  # its parts have types of their own
}
_PARTS_OF_OBJECTS: dict[str, Any] = {
    "id": "sc:Integer",
    "bbox": "cr:Float64",
    "category": "sc:Integer",
    "area": "cr:Float64",
    "iscrowd": "sc:Boolean",
}


def _node(type: str, id: str, **values: Any) -> Node:
    """Return a node, whose name is its id unless `values` has another."""
    return {"@type": f"cr:{type}", "@id": id, "name": id, **values}


def class_names(recipe: Recipe) -> Node:
    names = unique_names(recipe.classes)
    types: dict[str, Any] = {
        "label": "sc:Integer",
        "name": ["sc:Text", "sc:name"],
        "class_id": "sc:Text",
    }
    fields = []
    for column, type in types.items():
        field = _node("Field", f"{CLASS_NAMES}/{column}", name=column, dataType=type)
        fields.append(field)
    rows = []
    for cls, name in zip(recipe.classes, names, strict=True):
        row = {
            f"{CLASS_NAMES}/label": cls.label,
            f"{CLASS_NAMES}/name": name,
            f"{CLASS_NAMES}/class_id": cls.id,
        }
        rows.append(row)
    return _node(
        "RecordSet",
        CLASS_NAMES,
        description="The names of the classes by label.",
        dataType="sc:Enumeration",
        key={"@id": f"{CLASS_NAMES}/label"},
        field=fields,
        data=rows,
    )


def _parquet(config: metadata.Config, recipe: Recipe) -> tuple[list[Node], Node]:
    files = f"{config.name}-files"
    fields = []
    for name, column in described_columns(config.what, recipe).items():
        source: Node = {"fileSet": {"@id": files}, "extract": {"column": name}}
        if column.type == "Image":
            source["transform"] = {"jsonPath": "bytes"}  # a struct of the encoded file and its name
        field = _field(config, name, column, source, recipe.task.names(recipe.source))
        fields.append(field)
    if config.name == metadata.DEFAULT:  # other configs have one split
        folder: Node = {
            "fileSet": {"@id": files},
            "extract": {"fileProperty": "fullpath"},
            "transform": {"regex": "^data/([^/]+)/"},
        }
        group = Column("string", "The group, which is a split here.")
        split = _field(config, "split", group, folder, ())
        fields.append(split | {"dataType": ["sc:Text", "cr:Split"]})
    file_set = _file_set(files, config, "application/x-parquet")
    return [file_set], _record_set(config, fields)


def _webdataset(config: metadata.Config, recipe: Recipe) -> tuple[list[Node], Node]:
    suffix = recipe.output.image.format
    archives = f"{config.name}-files"
    images = f"{config.name}-images"
    labels = f"{config.name}-labels"
    rows = f"{config.name}-rows"
    sets = [_file_set(archives, config, "application/x-tar")]
    members = {}
    if config.what != "candidates":
        members[images] = f"*.{suffix}", _IMAGE_FORMATS[suffix]
    members[labels] = "*.cls", "text/plain"
    members[rows] = "*.json", "application/json"
    for id, (pattern, format) in members.items():
        member = _node(
            "FileSet",
            id,
            containedIn={"@id": archives},
            encodingFormat=format,
            includes=pattern,
        )
        sets.append(member)
    fields = []
    for name, column in described_columns(config.what, recipe).items():
        files = rows
        extract = {"jsonPath": f"$.{name}"}
        whole_files = {"Image": images, "ClassLabel": labels}
        if column.type in whole_files:
            files = whole_files[column.type]
            extract = {"fileProperty": "content"}
        source: Node = {"fileSet": {"@id": files}, "extract": extract}
        field = _field(config, name, column, source, recipe.task.names(recipe.source))
        if name == "key":
            field["references"] = _stem(labels)
        fields.append(field)
    if config.what != "candidates":
        # Members of a sample share their name: the key ties rows to labels, these two tie the
        # images to both.
        shared = Column("string", "The name that the members of a sample share.")
        for name, other in (("image_of_label", labels), ("image_of_row", rows)):
            field = _field(config, name, shared, _stem(images), ())
            fields.append(field | {"references": _stem(other)})
    return sets, _record_set(config, fields)


def _field(
    config: metadata.Config,
    name: str,
    column: Column,
    source: Node,
    names: Sequence[str],
) -> Node:
    node = _node(
        "Field",
        f"{config.name}/{name}",
        name=name,
        dataType=_DATA_TYPES[column.type],
        source=source,
        description=column.description,
    )
    if column.type.startswith("list<"):
        node |= {"isArray": True, "arrayShape": "-1"}
    if column.type == "list<ClassLabel>":
        node["description"] += f" Numbers: {_numbered(names)}."
    if column.type == "ClassLabel":
        node["references"] = {"field": {"@id": f"{CLASS_NAMES}/label"}}
    if column.type == OBJECTS:
        node["subField"] = [_part_of_objects(node, part, names) for part in _PARTS_OF_OBJECTS]
        del node["dataType"], node["source"]
    return node


def _part_of_objects(objects: Node, name: str, categories: Sequence[str]) -> Node:
    source = dict(objects["source"])
    if "column" in source["extract"]:
        source["transform"] = {"jsonPath": name}
    else:
        source["extract"] = {"jsonPath": f"{source['extract']['jsonPath']}.{name}"}
    part = _node(
        "Field",
        f"{objects['@id']}/{name}",
        name=name,
        dataType=_PARTS_OF_OBJECTS[name],
        source=source,
        isArray=True,
        arrayShape="-1,4" if name == "bbox" else "-1",
    )
    if name == "category":
        part["description"] = f"Numbers of the categories: {_numbered(categories)}."
    return part


def _numbered(names: Sequence[str]) -> str:
    return ", ".join(f"{index} {name}" for index, name in enumerate(names))


_ROWS_OF = {"data": "accepted images", "candidates": "candidates", "rejected": "rejected images"}


def _record_set(config: metadata.Config, fields: Sequence[Node]) -> Node:
    rows = sum(split.rows for split in config.splits)
    splits = ", ".join(split.name for split in config.splits)
    return _node(
        "RecordSet",
        config.name,
        description=f"{rows:,} {_ROWS_OF[config.what]}; split {splits}.",
        key={"@id": f"{config.name}/key"},
        field=list(fields),
    )


def _file_set(id: str, config: metadata.Config, format: str) -> Node:
    paths = [path for split in config.splits for path in split.paths]
    return _node("FileSet", id, encodingFormat=format, includes=paths)


def _stem(files: str) -> Node:
    return {
        "fileSet": {"@id": files},
        "extract": {"fileProperty": "filename"},
        "transform": {"regex": r"^([^.]+)\."},
    }
