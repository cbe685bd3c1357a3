"""The findings document round-trips with every digit; other documents are refused."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from findings_examples import example, nothing_confirmed

from counterfoil.documents import document_text, parse_document
from counterfoil.errors import UserError
from counterfoil.mining.findings import (
    Evidence,
    Findings,
    Rate,
    findings_csv_text,
)
from counterfoil.recipe.layering import bundled_folder
from write_schema import schema_text

TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
    "null": type(None),
}  # fmt: skip
KNOWN = {
    "$ref", "anyOf", "type", "const", "enum", "minimum", "maximum", "properties", "required", "additionalProperties",
    "items", "prefixItems", "minItems", "maxItems", "description", "default", "$schema", "title", "$defs",
}  # fmt: skip


def misfits(
    value: Any, schema: dict[str, Any], whole: dict[str, Any], where: str = "document"
) -> list[str]:
    """Return where a value does not fit a JSON Schema. A keyword that our schema did not use so far
    is an error."""
    assert set(schema) <= KNOWN, set(schema) - KNOWN
    if "$ref" in schema:
        return misfits(value, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole, where)
    if "anyOf" in schema:
        tried = [misfits(value, option, whole, where) for option in schema["anyOf"]]
        return [] if [] in tried else tried[0]
    wrong = []
    if "type" in schema:
        fits = isinstance(value, TYPES[schema["type"]]) and not (
            isinstance(value, bool) and schema["type"] != "boolean"
        )
        if not fits:
            return [f"{where}: {value!r} is no {schema['type']}"]
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        wrong.append(f"{where}: {value!r}")
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get(
        "maximum", value
    ):
        wrong.append(f"{where}: {value} is out of range")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            wrong.append(f"{where}: {len(value)} items")
        schemas = schema.get("prefixItems") or [schema["items"]] * len(value)
        for index, (entry, entry_schema) in enumerate(zip(value, schemas, strict=False)):
            wrong += misfits(entry, entry_schema, whole, f"{where}[{index}]")
    if isinstance(value, dict):
        wrong += [
            f"{where}: {key} is missing" for key in schema.get("required", ()) if key not in value
        ]
        more = schema.get("additionalProperties", True)
        for key, entry in value.items():
            if key in schema.get("properties", {}):
                wrong += misfits(entry, schema["properties"][key], whole, f"{where}.{key}")
            elif more is False:
                wrong.append(f"{where}: {key} is not known")
    return wrong


def test_a_document_comes_back_as_it_was() -> None:
    for findings in (example(), nothing_confirmed()):
        text = document_text(findings)
        assert parse_document(Findings, text, "findings.json") == findings
        assert document_text(parse_document(Findings, text, "findings.json")) == text


def test_numbers_keep_every_digit_and_numpys_become_plain() -> None:
    third = np.float64(1) / 3
    finding = replace(
        example().findings[0],
        p=third / 7,
        evidence=(Evidence("a/1", np.float32(0.1), np.bool_(True), "confirm"),),  # pyrefly: ignore[bad-argument-type]
        about={"z": np.int64(3), "a": (1, third)},
    )
    findings = replace(example(), findings=(finding,), tested=1)
    (stored,) = json.loads(document_text(findings))["findings"]
    assert stored["p"] == third / 7
    assert (
        stored["evidence"][0]["score"] == float(np.float32(0.1))
        and stored["evidence"][0]["failed"] is True
    )
    assert list(stored["about"].items()) == [("a", [1, third]), ("z", 3)]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_not_written(number: float) -> None:
    first, *others = example().findings
    for broken in (
        replace(first, about={"score": number}),
        replace(first, difference=replace(first.difference, value=number)),
        replace(first, evidence=(replace(first.evidence[0], score=number),)),
    ):
        with pytest.raises(ValueError):
            document_text(replace(example(), findings=(broken, *others)))


def test_a_document_fits_the_schema_that_is_shipped() -> None:
    text = (bundled_folder() / "findings.schema.json").read_text(encoding="utf-8")
    assert text == schema_text(Findings, "Counterfoil findings"), "run scripts/write_schema.py"
    schema = json.loads(text)
    for findings in (example(), nothing_confirmed()):
        assert misfits(json.loads(document_text(findings)), schema, schema) == []


def damaged() -> dict[str, Any]:
    return {
        "an unknown key": lambda document: document.update(surprise=1),
        "a missing key": lambda document: document.pop("target"),
        "another version": lambda document: document.update(findings_version=2),
        "a rate above 1": lambda document: document["findings"][0]["set"].update(rate=1.2),
        "an unknown role": lambda document: document["findings"][0].update(role="soft"),
        "a number as text": lambda document: document["findings"][0].update(q="0.1"),
        "an interval of three": lambda document: document["findings"][0]["set"].update(
            interval=[0, 0.5, 1]
        ),
        "no class": lambda document: document["findings"][0].update(classes=[]),
    }


@pytest.mark.parametrize("change", damaged())
def test_what_is_no_document_fits_neither_schema_nor_reader(change: str) -> None:
    document = json.loads(document_text(example()))
    damaged()[change](document)
    schema = json.loads(schema_text(Findings, "Counterfoil findings"))
    assert misfits(document, schema, schema)
    with pytest.raises(
        UserError, match=r"mined/findings\.json is not a findings document of version 1"
    ):
        parse_document(Findings, json.dumps(document), "mined/findings.json")


def test_numbers_that_contradict_each_other_are_refused() -> None:
    findings = example()
    for build in (
        lambda: Rate(3, 3, 4, 1.0, None),
        lambda: Rate(3, 4, 1, 1 / 3, None),
        lambda: Rate(0, 0, 0, 0.0, None),
        lambda: Rate(3, 3, 1, None, None),
        lambda: replace(findings, tested=4),
        lambda: replace(findings, findings=findings.findings[:1] * 5),
        lambda: replace(findings, fdr=0.01),
    ):
        with pytest.raises(ValueError):
            build()
    document = json.loads(document_text(findings))
    document["findings"][0]["set"]["failures"] = 1000
    with pytest.raises(UserError, match=r"findings\.0\.set"):
        parse_document(Findings, json.dumps(document), "findings.json")


def test_the_table_has_a_row_for_every_hypothesis_that_was_tested() -> None:
    findings = example()
    first = replace(
        findings.findings[0],
        words='a "quoted", broken\nname',
        set=Rate(0, 0, 0, None, None),
        prompt=None,
    )
    findings = replace(findings, findings=(first, *findings.findings[1:]))
    rows = list(csv.DictReader(io.StringIO(findings_csv_text(findings))))
    assert [row["name"] for row in rows] == [finding.name for finding in findings.findings]
    assert [row["confirmed"] for row in rows] == ["true", "true", "true", "false", "false"]
    assert rows[0]["words"] == first.words
    assert (rows[0]["set_rate"], rows[0]["set_rate_low"], rows[0]["prompt"]) == ("", "", "")
    for row, finding in zip(rows, findings.findings, strict=True):
        assert (float(row["p"]), float(row["q"])) == (finding.p, finding.q)
        assert float(row["rest_rate"]) == finding.rest.rate
        assert (int(row["set_failures"]), int(row["set_units"])) == (
            finding.set.failures,
            finding.set.units,
        )
        assert None not in row
        assert None not in row.values()


def test_every_key_of_the_schema_that_is_not_plain_is_described() -> None:
    schema = json.loads(schema_text(Findings, "Counterfoil findings"))
    for name, definition in schema["$defs"].items():
        assert definition["description"] and not re.match(
            rf"{name}\(", definition["description"]
        ), name
        assert definition["additionalProperties"] is False, name


@pytest.mark.parametrize(
    "text", ['{"findings":[' + "1," * 3_000_000 + "1]}", '{"a":{"b":[' + "0," * 100_001 + "0]}}"]
)
def test_a_long_list_of_what_is_no_finding_is_told_once(text: str) -> None:
    with pytest.raises(UserError, match=r"has a list of [\d,]+ values, expected at most 100,000"):
        parse_document(Findings, text, "findings.json")
