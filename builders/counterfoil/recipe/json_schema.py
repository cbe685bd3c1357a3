"""Write the JSON Schema of recipe files, for editors.

In a file with `extends` no key is required, and null deletes a value. The schema therefore has
every section twice: one form for whole recipes, one for layers.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from counterfoil.documents import unwrapped_schema
from counterfoil.recipe.keep import KEEP_RULES
from counterfoil.recipe.kinds import KINDS
from counterfoil.recipe.names import (
    CLASS_ID,
    DATASET_NAME,
    GROUP_NAME,
    LONGEST_NAME,
    REPOSITORY,
    RESERVED_GROUPS,
)
from counterfoil.recipe.schema import Recipe
from counterfoil.recipe.schema_output import ADDRESS, DOI
from counterfoil.recipe.section import describe_sections
from counterfoil.recipe.severity import MOST_SEVERE

_PART = "InPart"
_NULL = {"type": "null"}
_CLASSES_ALONE = {
    "required": ["classes"],
    "properties": {"value": _NULL, "percentile": _NULL},
}


def recipe_json_schema() -> dict[str, Any]:
    """Return the schema of a recipe file, draft 2020-12."""
    describe_sections()
    whole = Recipe.model_json_schema()
    sections: dict[str, Any] = whole.pop("$defs")
    sections["Recipe"] = whole
    _add_kinds(sections)
    _add_what_validators_check(sections)
    whole["properties"]["extends"] = {
        "type": "string",
        "description": "Bundled name or path of the recipe that this one changes: mappings merge"
        " deeply, lists are replaced, null deletes.",
    }
    whole["properties"]["extends_sha256"] = {
        "type": "string",
        "pattern": "^[0-9a-f]{64}$",
        "description": "The sha256 of the extended recipe at the time when this one was written. If"
        " that recipe changes, this one is an error until you update this line.",
    }
    parts = {name + _PART: _in_part(section) for name, section in sections.items()}
    keys = dict.fromkeys(key for kind in KINDS.values() for key in kind.model_fields)
    for kind in KINDS.values():
        of_part = parts[kind.__name__ + _PART]["properties"]
        for key in keys:
            if key not in kind.model_fields:
                of_part[key] = _NULL  # null drops an inherited key
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Counterfoil recipe",
        "if": {"required": ["extends"]},
        "then": {"$ref": f"#/$defs/Recipe{_PART}"},
        "else": {"$ref": "#/$defs/Recipe"},
        "$defs": dict(sorted((sections | parts).items())),
    }
    return unwrapped_schema(schema)


def _add_what_validators_check(sections: dict[str, Any]) -> None:
    properties = {name: section["properties"] for name, section in sections.items()}
    properties["Recipe"]["name"]["pattern"] = _whole(DATASET_NAME.pattern)
    properties["Output"]["split"] |= {
        "pattern": _whole(GROUP_NAME.pattern),
        "maxLength": LONGEST_NAME,
    }
    for key, pattern in (("repo", REPOSITORY), ("url", ADDRESS), ("doi", DOI)):
        _text(properties["Publish"][key])["pattern"] = _whole(pattern.pattern)
    reserved = "|".join(sorted(RESERVED_GROUPS))
    group_name = f"^(?!(?:{reserved})$){GROUP_NAME.pattern}$"
    shift_name = {"pattern": group_name, "maxLength": LONGEST_NAME}
    _text(properties["ShiftSpec"]["group"]).update(shift_name)
    properties["Prompts"]["shifts"]["propertyNames"] = shift_name
    properties["Evaluate"]["corrupted"]["propertyNames"] = shift_name
    class_id = {"pattern": _whole(CLASS_ID.pattern), "maxLength": LONGEST_NAME}
    properties["ClassEntry"]["id"] |= class_id
    properties["DiffusersKind"]["lora"]["propertyNames"] = class_id
    for section in ("BaseSpec", "ShiftSpec"):
        _text(properties[section]["prompt"])["pattern"] = r"\{(class|caption)\}"
        _text(properties[section]["object_caption"])["pattern"] = r"\{class\}"
    classes = properties["Source"]["classes"]
    of_list = _branch(classes, "array")
    text = {"type": "string", "minLength": 1}
    of_list["items"] = {"anyOf": [text, of_list["items"]]}
    classes["anyOf"].append({"type": "string"})
    sections["ClassEntry"]["required"].remove("id")
    sections["ShiftSpec"]["not"] = _all_null("prompt", "embedding", "corruption")
    sections["Screen"]["dependentRequired"] = {"model": ["object_threshold"]}
    undrawn = _all_null("prompt", "embedding")
    drawn = {"anyOf": [{"type": "string"}, {"not": undrawn}]}
    # Generators of these kinds need no prompts and no screen.
    unscreened = {"enum": [name for name, kind in KINDS.items() if not kind.needs_screen]}
    without_screen = {"required": ["kind"], "properties": {"kind": unscreened}}
    edited = {"required": ["kind"], "properties": {"kind": {"const": "edit"}}}
    with_boxes = {"required": ["objects"], "properties": {"objects": {"type": "string"}}}
    boxes_of_edits = {"properties": {"generator": edited, "source": with_boxes}}
    sections["Recipe"]["oneOf"] = [
        {"anyOf": [{"properties": {"generator": without_screen}}, boxes_of_edits]},
        {
            "required": ["screen"],
            "not": boxes_of_edits,
            "properties": {
                "generator": {"properties": {"kind": {"not": unscreened}}},
                "screen": {"required": ["model"]},
                "prompts": {"required": ["base"], "properties": {"base": drawn}},
            },
        },
    ]
    for section in ("Samples", "CellSamples"):
        sections[section]["oneOf"] = [
            {"required": ["candidates"], **_all_null("accepted", "at_most")},
            {"required": ["accepted", "at_most"], **_all_null("candidates")},
        ]
    sections["Tokens"]["oneOf"] = [{"required": ["path"]}, {"required": ["learn"]}]
    _name_rules(sections)
    _prompts_of_text(sections)
    listed = _branch(sections["SeverityLevels"]["properties"]["raw"], "array")
    fixed = {"type": "integer", "minimum": 1, "maximum": MOST_SEVERE}
    # the severities of a corruption
    listed = {**listed, "items": {"anyOf": [listed["items"], fixed]}}
    number = {"type": "number", "minimum": -1, "maximum": 1}
    exactly_one = [{"required": ["value"]}, {"required": ["percentile"]}]
    sections["ThresholdSpec"]["oneOf"] = exactly_one
    sections["ObjectThresholdSpec"]["oneOf"] = [*exactly_one, _CLASSES_ALONE]
    short_forms = {
        "SeverityLevels": listed,
        "SeveritySpec": fixed,
        "ThresholdSpec": number,
        "ObjectThresholdSpec": number,
    }
    for section, short in short_forms.items():
        _allow_short(sections, section, short)


def _add_kinds(sections: dict[str, Any]) -> None:
    """Give each kind of generator its section."""
    del sections["GeneratorKind"]
    for name, kind in KINDS.items():
        section = sections[kind.__name__] = kind.model_json_schema()
        sections |= section.pop("$defs", {})
        section["properties"]["kind"]["description"] = section["description"]
        if name != "diffusers":
            section.setdefault("required", []).append("kind")
    generator = sections["Recipe"]["properties"]["generator"]
    del generator["$ref"]
    generator["anyOf"] = [{"$ref": f"#/$defs/{kind.__name__}"} for kind in KINDS.values()]


def _prompts_of_text(sections: dict[str, Any]) -> None:
    """Allow a bare text, the prompt, for the base and each shift."""
    text = {"type": "string", "pattern": r"\{class\}"}
    prompts = sections["Prompts"]["properties"]
    base = prompts["base"]
    shifts = prompts["shifts"]
    base["anyOf"] = [text, {"$ref": base.pop("$ref")}]
    base.setdefault("description", sections["BaseSpec"]["description"])
    mapping = shifts["additionalProperties"]
    shifts["additionalProperties"] = {"anyOf": [dict(text), mapping]}


def _name_rules(sections: dict[str, Any]) -> None:
    """Allow a keep rule's bare name, and one rule in place of a list."""
    without_settings = []
    for name, rule in KEEP_RULES.items():
        schema = rule.model_json_schema()
        if not schema.get("required"):
            without_settings.append(name)
    sections["KeepStep"] |= {"minProperties": 1, "maxProperties": 1}
    _allow_short(sections, "KeepStep", {"enum": without_settings})
    for section in ("Screen", "ShiftSpec"):
        keep = sections[section]["properties"]["keep"]
        described: dict[str, Any] = {}
        for key in ("description", "default", "title"):
            if key in keep:
                described[key] = keep.pop(key)
        listed = keep.pop("anyOf", [dict(keep)])
        keep.clear()
        keep |= described
        keep["anyOf"] = [*listed, {"$ref": "#/$defs/KeepStep"}]


def _allow_short(sections: dict[str, Any], name: str, short: Mapping[str, Any]) -> None:
    """Allow a short form of a section in place of its mapping."""
    section = sections[name]
    description = section.pop("description")
    sections[name] = {"description": description, "anyOf": [dict(short), section]}


def _all_null(*keys: str) -> dict[str, Any]:
    return {"properties": dict.fromkeys(keys, _NULL)}


def _whole(pattern: str) -> str:
    return f"^{pattern}$"


def _branch(schema: dict[str, Any], type: str) -> dict[str, Any]:
    """Return the branch of a property that has this type."""
    return next(branch for branch in schema["anyOf"] if branch.get("type") == type)


def _text(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the string branch of a nullable property."""
    return _branch(schema, "string")


def _or_null(schema: Any) -> dict[str, Any]:
    return {"anyOf": [_in_part(schema), _NULL]}


def _in_part(schema: Any, *, of_properties: bool = False) -> Any:
    """Return the schema of a layer. No key is required, and each key may be null."""
    if isinstance(schema, list):
        return [_in_part(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if of_properties:
        return {key: _or_null(value) for key, value in schema.items()}
    part: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("required", "dependentRequired", "oneOf", "not"):
            continue
        if key == "$ref":
            # A list replaces the list of the recipe below, so its items have the whole form.
            part[key] = value + _PART
        elif key == "items":
            part[key] = copy.deepcopy(value)
        elif key == "additionalProperties" and isinstance(value, dict):
            part[key] = _or_null(value)
        else:
            part[key] = _in_part(value, of_properties=key == "properties")
    return part
