"""Read and write lock.json: hashes, the hashed documents, pinned inputs, judges' answers to
validation images, the stack, and the number of shards per group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from counterfoil.documents import Form, Strict, document_bytes, document_differences
from counterfoil.errors import UserError
from counterfoil.recipe.names import GROUP_NAME
from counterfoil.store.atomic import write_atomically
from counterfoil.store.inside import read_own
from counterfoil.store.layout import LOCK
from counterfoil.store.messages import message, refusal

VERSION = 1
# The input that records the realised levels of shifts.
LEVELS = "levels"
HASHES = ("plan", "screen", "inputs")
# The inputs that a build pins, and the keys of a pin whose values are text or null.
_INPUTS = (
    "models", "source", "tokens", "embeddings", "judges", "asked", "loras", "pool", "retrieved", "edited", "given",
    "thresholds", LEVELS,
)  # fmt: skip
_TEXTS = ("name", "dataset", "revision", "license", "content")
_HINT = (
    "Restore it from a copy, use the release of Counterfoil that built this dataset, or build"
    " into another folder."
)
_Group = Annotated[str, Field(pattern=f"^{GROUP_NAME.pattern}$")]


def _by_name(groups: Any) -> Any:
    """Turn the list of groups into name → shards. The file sorts its keys, so a list keeps the
    order of groups."""
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise ValueError("expected a list of groups")
    shards = {}
    for group in groups:
        if group.keys() != {"name", "shards"} or not isinstance(group["name"], str):
            raise ValueError("expected the name and the number of shards of each group")
        shards[group["name"]] = group["shards"]
    if len(shards) < len(groups):
        raise ValueError("expected each group once")
    return shards


def _as_pinned(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    wrong = [name for name in _INPUTS if not isinstance(inputs.get(name), Mapping | None)]
    if wrong:
        raise ValueError(f"expected mappings, not values, for {', '.join(wrong)}")
    pins = {}
    for kind in ("models", "loras", "asked"):
        for name, pin in (inputs.get(kind) or {}).items():
            pins[f"{kind}.{name}"] = pin
    for name in ("source", "pool"):
        pins[name] = inputs.get(name) or {}
    for name, pin in pins.items():
        is_pin = isinstance(pin, Mapping)
        if not is_pin or not all(isinstance(pin.get(key), str | None) for key in _TEXTS):
            raise ValueError(f"expected a pin for {name}")
    return inputs


def _of_versions(stack: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(stack.get("versions"), Mapping | None):
        raise ValueError("expected a mapping of versions")
    return stack


@dataclass(frozen=True, slots=True)
class Lock(Strict):
    """The content of lock.json; `groups` is name → shards, in the plan's order."""

    FORM: ClassVar[Form] = Form("a lock of Counterfoil", _HINT, VERSION)
    hashes: Mapping[str, str]
    plan: Mapping[str, Any]
    screen: Mapping[str, Any]
    inputs: Annotated[Mapping[str, Any], AfterValidator(_as_pinned)]
    stack: Annotated[Mapping[str, Any], AfterValidator(_of_versions)]
    groups: Annotated[Mapping[_Group, Annotated[int, Field(ge=1)]], BeforeValidator(_by_name)]
    version: Literal[1] = VERSION

    def document(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "hashes": dict(self.hashes),
            "plan": self.plan,
            "screen": self.screen,
            "inputs": self.inputs,
            "stack": self.stack,
            # The groups are a list, because JSON objects are written with sorted keys and would
            # lose the plan's order.
            "groups": [{"name": name, "shards": shards} for name, shards in self.groups.items()],
        }


def write_lock(directory: Path, lock: Lock) -> None:
    write_atomically(directory / LOCK, document_bytes(lock.document()))


def read_lock(directory: Path) -> Lock | None:
    """Read a directory's lock, if it has one. Raise RunFailure for a damaged lock, and UserError
    for a lock of another version.
    """
    if not (directory / LOCK).exists():
        return None
    return read_own(directory, LOCK, Lock)


def _extent(lock: Lock) -> str:
    samples = lock.plan.get("samples")
    limit = samples.get("limit") if isinstance(samples, Mapping) else None
    if isinstance(limit, int):
        return f"a preview of {limit} images a shift"
    return "a whole dataset"


def refuse_other_hashes(directory: Path, existing: Lock, lock: Lock) -> None:
    problems = []
    built = _extent(existing)
    wanted = _extent(lock)
    if built != wanted:
        raise refusal("other-build.extent", directory, built, wanted)
    for name in HASHES:
        if existing.hashes.get(name) == lock.hashes.get(name):
            continue
        word = "inputs" if name == "inputs" else "plan"
        problems.append(message(f"other-build.{word}", directory, name))
        lines = document_differences(getattr(existing, name), getattr(lock, name))
        if not lines:
            lines = document_differences(existing.hashes, lock.hashes, "hash")
        problems += [f"  {line}" for line in lines]
    if not problems and existing.groups != lock.groups:
        problems = [message("other-build.shards", directory)]
        lines = document_differences(existing.groups, lock.groups)
        problems += [f"  {line}" for line in lines]
    if problems:
        raise UserError(problems)


def stack_differences(existing: Mapping[str, Any], stack: Mapping[str, Any]) -> list[str]:
    """Return one line for each difference of two stacks.

    A stack without models is compared with what it holds alone, since earlier versions recorded
    those of torch too.
    """
    versions = existing.get("versions")
    if stack.keys() == {"versions"} and isinstance(versions, Mapping):
        known = {name: value for name, value in versions.items() if name in stack["versions"]}
        existing = {"versions": known}
    return document_differences(existing, stack)


def refuse_other_stack(
    directory: Path,
    existing: Mapping[str, Any],
    stack: Mapping[str, Any],
) -> None:
    lines = stack_differences(existing, stack)
    if lines:
        problem = message("other-stack", directory)
        details = [f"  {line}" for line in lines]
        raise UserError([problem, *details])


# True class id → answered class id → number of images.
ValidationAnswers = Mapping[str, Mapping[str, int]]

VALIDATION = "validation"
# An answer that is no class of the recipe. No class id has brackets.
OTHER = "(other)"
MOST_A_CLASS = 200


def without_validation(pins: Mapping[str, Any]) -> dict[str, Any]:
    """Return judges' pins without their answers to validation images, which do not identify a
    judge."""
    without = {}
    for name, pin in pins.items():
        without[name] = pin
        if isinstance(pin, Mapping):
            without[name] = {key: value for key, value in pin.items() if key != VALIDATION}
    return without


def count_answers(answers: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    counts = defaultdict[str, Counter[str]](Counter)
    for true, answered in answers:
        counts[true][answered] += 1
    return {true: dict(of_class) for true, of_class in counts.items()}


def validation_of(pin: Any, class_ids: Sequence[str]) -> ValidationAnswers | None:
    """Return the counts in a judge's pin, or None if the pin has none. ValueError for a pin that no
    build writes."""
    if not isinstance(pin, Mapping):
        raise ValueError("it pins no judge")
    counts = pin.get(VALIDATION)
    if counts is None:
        return None
    ids = set(class_ids)
    if not isinstance(counts, Mapping) or not counts or not set(counts) <= ids:
        raise ValueError("the judge's answers to validation images are not by class id")
    for count in counts.values():
        if not isinstance(count, Mapping) or not set(count) <= ids | {OTHER}:
            raise ValueError("the judge's answers to validation images are not class ids")
        are_counts = all(type(n) is int and n > 0 for n in count.values())
        if not are_counts or not 0 < sum(count.values()) <= MOST_A_CLASS:
            raise ValueError(
                f"the judge's answers to validation images are not counts of 1 to {MOST_A_CLASS}"
                " images"
            )
    return counts
