"""croissant.json: the dataset described for machines in Croissant 1.1, with its responsible-AI (RAI 1.0) fields.

It is written as JSON and not through mlcroissant, so that its bytes follow from the dataset and from no library's
version; the tests have mlcroissant read it. File sets are globs relative to the file, so that it holds in a folder
as on the Hub. Two things are left out on purpose: manifest.json, which has the hash of this file and whose own could
therefore never be here, and dates and versions that the recipe does not tell: a dataset does not know them of itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.card.citation import address_of, is_organisation, plain_author
from counterfoil.card.configs import Config
from counterfoil.card.croissant_records import class_names, record_set_nodes
from counterfoil.card.licenses import license_reference
from counterfoil.card.metadata import pretty_name, tags_of
from counterfoil.card.statements import Statements
from counterfoil.card.tables import InputRow
from counterfoil.store.documents import document_bytes
from counterfoil.store.layout import LOCK, RECIPE, THRESHOLDS

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

CONFORMS_TO = ("http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0")

# The standard context of Croissant 1.1 with RAI 1.0: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
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
    LOCK: ("application/json", "Every input pinned, the three hashes, and the stack that bytes depend on."),
    THRESHOLDS: ("application/json", "The CLIP thresholds of every class and shift."),
}


def croissant_bytes(
    directory: Path,
    recipe: Recipe,
    configs: Sequence[Config],
    inputs: Sequence[InputRow],
    statements: Statements,
    citation: str,
    results: str | None = None,
    review: str | None = None,
) -> bytes:
    """The content of croissant.json. `results` is the path of evaluation results that are true of the data, `review`
    of what people said of them."""
    documents = dict(_DOCUMENTS)
    if results is not None:
        documents[results] = ("application/json", "Accuracies and drops of classifiers, measured on these images.")
    if review is not None:
        documents[review] = ("application/json", "How often people selected each image as showing its class or shift.")
    sets, records = record_set_nodes(configs, recipe)
    document = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": list(CONFORMS_TO),
        "name": recipe.name,
        "alternateName": pretty_name(recipe.name),
        "description": recipe.description.strip() or statements.summary,
        "license": license_reference(recipe.license),
        "keywords": tags_of(recipe),
        "citeAs": citation,
        "isBasedOn": [_input(row) for row in inputs],
        **_published(recipe),
        **_responsible(statements),
        "distribution": [*_files(directory, documents), *sets],
        "recordSet": [*([class_names(recipe)] if configs else []), *records],
    }
    return document_bytes(document)


def _published(recipe: Recipe) -> dict[str, Any]:
    """Where the dataset is, whose it is, and as what it is released, as far as the recipe tells."""
    publish, address = recipe.publish, address_of(recipe)
    told: dict[str, Any] = {} if address is None else {"url": address}
    if publish.doi is not None:
        told["sameAs"] = f"https://doi.org/{publish.doi}"
    if publish.authors:
        told["creator"] = [_creator(author) for author in publish.authors]
    elif publish.repo is not None:
        owner = publish.repo.partition("/")[0]
        told["creator"] = {"@type": "sc:Organization", "name": owner, "url": f"https://huggingface.co/{owner}"}
    if publish.year is not None:
        told["datePublished"] = str(publish.year)
    if publish.version is not None:
        told["version"] = publish.version
    return told


def _creator(author: str) -> dict[str, str]:
    kind = "sc:Organization" if is_organisation(author) else "sc:Person"
    return {"@type": kind, "name": plain_author(author)}


def _input(row: InputRow) -> dict[str, str]:
    """A model or dataset that the images come from."""
    type_name = "sc:Dataset" if row.role == "input dataset" else "sc:SoftwareApplication"
    node = {"@type": type_name, "name": row.name, "description": row.role}
    if row.pinned:
        node["identifier"] = row.pinned
    if row.license:
        node["license"] = license_reference(row.license)
    return node


def _responsible(said: Statements) -> dict[str, Any]:
    """The fields of Croissant RAI 1.0 that are true of generated images; nothing of crowds and of time frames."""
    return {
        "rai:dataCollection": said.collection,
        # None of the vocabulary's ways of collecting: nothing was collected.
        "rai:dataCollectionType": "Others",
        "rai:dataCollectionMissingData": said.missing,
        "rai:dataCollectionRawData": said.source,
        "rai:dataPreprocessingProtocol": list(said.preprocessing),
        "rai:dataAnnotationProtocol": said.annotation,
        "rai:annotationsPerItem": "1",
        "rai:machineAnnotationTools": list(said.annotation_tools),
        "rai:dataUseCases": [*said.intended, *(f"Not for: {use}" for use in said.unintended)],
        "rai:dataBiases": list(said.biases),
        "rai:dataLimitations": list(said.limits),
        "rai:dataSocialImpact": said.social_impact,
        "rai:personalSensitiveInformation": said.personal,
        "rai:dataReleaseMaintenancePlan": said.maintenance,
    }


def _files(directory: Path, documents: dict[str, tuple[str, str]]) -> list[dict[str, str]]:
    nodes = []
    for path, (format, description) in documents.items():
        if not (directory / path).is_file():
            continue
        content = (directory / path).read_bytes()
        nodes.append(
            {
                "@type": "cr:FileObject",
                "@id": path,
                "name": path,
                "description": description,
                "contentUrl": path,
                "contentSize": f"{len(content)} B",
                "encodingFormat": format,
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        )
    return nodes
