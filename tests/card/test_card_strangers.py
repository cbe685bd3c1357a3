"""A card is made from shards and thresholds of anybody: what is not the recipe's is told with its file, never drawn."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from card_cases import Built, build, plan_of

from counterfoil.card import make_card
from counterfoil.card.tables import threshold_text
from counterfoil.errors import RunFailure
from counterfoil.plan import Plan
from counterfoil.store import Receipt, read_receipts
from counterfoil.store.atomic import atomic_file
from counterfoil.store.layout import What
from counterfoil.store.reading import read_shard
from counterfoil.store.rows import TableForm, arrow_schema, column_types, unique_names
from counterfoil.store.shard_files import write_parquet, write_tar

Rows = list[dict[str, Any]]
Change = Callable[[Rows], Rows]


@pytest.fixture(scope="module", params=["parquet", "webdataset"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Every candidate is accepted, and a card can be made again. Read only."""
    folder = tmp_path_factory.mktemp("sound")
    plan = plan_of(f"output.format={request.param}")
    built = Built(folder, plan, build(folder, plan, judge=lambda sample: "accepted"))
    again(built)
    return built


@pytest.fixture
def fresh(sound: Built, tmp_path: Path) -> Built:
    """A copy, to be changed."""
    return sound._replace(directory=Path(shutil.copytree(sound.directory, tmp_path / "fresh")))


def rewrite(directory: Path, plan: Plan, what: What, change: Change) -> str:
    """The first shard's table with other rows; its path. The receipt is left as it is."""
    receipt = read_receipts(directory)[0]
    form = TableForm.of(plan.recipe)
    file = receipt.file(what)
    assert file is not None
    rows = change(list(read_shard(directory, receipt, list(column_types(what, form)), what, form)))
    with atomic_file(directory / file.path) as stream:
        if file.path.endswith(".tar"):
            write_tar(stream, rows)
        else:
            names = unique_names([(cls.id, cls.name) for cls in plan.recipe.classes])
            write_parquet(stream, rows, arrow_schema(what, names, form))
    return file.path


def again(built: Built, receipts: list[Receipt] | None = None) -> None:
    lock = json.loads((built.directory / "lock.json").read_bytes())
    make_card(built.directory, built.plan, lock, read_receipts(built.directory) if receipts is None else receipts)


def with_first(**values: Any) -> Change:
    return lambda rows: [{**rows[0], **values}, *rows[1:]]


FORGED: dict[str, Change] = {
    "a label that no class has": with_first(label=10),
    "another class's label": with_first(label=1),
    "a label below all": with_first(label=-1),
    "a shift of another shard": with_first(shift="snow"),
    "a shift that there is not": with_first(shift="x" * 500),
    "an index beyond the cell": with_first(index=2_000_000_000),
    "an index below all": with_first(index=-1),
    "another class id": with_first(class_id="x"),
    "another key": with_first(key="base_n02012849_000005x"),
    "a reason less": with_first(reason="low_object"),
}


@pytest.mark.parametrize("case", FORGED)
def test_candidates_that_are_not_the_plans_are_told_with_their_file(fresh: Built, case: str) -> None:
    if fresh.plan.recipe.output.format == "webdataset" and case == "a label below all":
        pytest.skip("a tar file with such a label is not read at all")
    path = rewrite(fresh.directory, fresh.plan, "candidates", FORGED[case])
    with pytest.raises(RunFailure) as told:
        again(fresh)
    assert str(fresh.directory / path) in str(told.value)
    receipt = read_receipts(fresh.directory)[0]
    assert str(fresh.directory / receipt.path) in str(told.value.hint), "what to remove to have the shard made again"
    assert max(map(len, told.value.problems)) < 700


def test_an_image_that_candidates_accept_and_data_lacks_is_told_with_its_file(fresh: Built) -> None:
    path = rewrite(fresh.directory, fresh.plan, "data", lambda rows: rows[1:])
    with pytest.raises(RunFailure, match=r"has no row base_n02012849_000000, which candidates accept") as told:
        again(fresh)
    assert str(fresh.directory / path) in str(told.value)


def test_the_hundreds_of_a_label_are_not_written_with_underscores(fresh: Built) -> None:
    if fresh.plan.recipe.output.format != "webdataset":
        pytest.skip("labels are numbers there")
    path = fresh.directory / next(file.path for file in read_receipts(fresh.directory)[0].files)
    content = path.read_bytes()
    for written in (b"0_1", b" 00", b"+00", b"000", "٣".encode()):
        member = content.index(b"_000000.cls")
        start = (member // 512 + 1) * 512
        header = bytearray(content[start - 512 : start])
        header[124:136] = f"{len(written):011o}\0".encode()
        header[148:156] = b" " * 8
        header[148:156] = f"{sum(header):06o}\0 ".encode()
        path.write_bytes(content[: start - 512] + header + written.ljust(512, b"\0") + content[start + 512 :])
        with pytest.raises(RunFailure, match="expected the number of a class"):
            list(read_shard(fresh.directory, read_receipts(fresh.directory)[0]))


def entry(**values: Any) -> dict[str, Any]:
    return {"value": 0.2, "percentile": 5.0, "n": 7, "source": "validation", **values}


THRESHOLDS: dict[str, str] = {
    "a text for an entry": json.dumps({"object": {"base": {"n02012849": "x"}}, "shift": {}}),
    "a list for a percentile": json.dumps({"object": {"base": {"n02012849": entry(percentile=[5.0])}}, "shift": {}}),
    "a text for a percentile": json.dumps({"object": {"base": {"n02012849": entry(percentile="null")}}, "shift": {}}),
    "a text for what is needed": json.dumps({"object": {"base": {"n02012849": entry(needs="20")}}, "shift": {}}),
    "needed of no percentile": json.dumps(
        {"object": {"base": {"n02012849": entry(needs=20, percentile=None)}}, "shift": {}}
    ),
    "a number without end": '{"object": {"base": {"a": {"value": 1%s}}}, "shift": {}}' % ("0" * 400),
    "a huge value": json.dumps({"object": {}, "shift": {"snow": {"n02012849": entry(value=10**400)}}}),
    "a list of shifts": json.dumps({"object": [], "shift": {}}),
    "no shifts": json.dumps({"object": {}}),
    "a number": "3",
    "nothing": "",
    "no text": "\udcff",
    "depth": "[" * 100_000,
}


@pytest.mark.parametrize("case", THRESHOLDS)
def test_thresholds_of_another_form_are_told_with_their_file(built: Built, tmp_path: Path, case: str) -> None:
    shutil.copytree(built.directory, tmp_path / "cranes")
    (tmp_path / "cranes" / "thresholds.json").write_bytes(THRESHOLDS[case].encode("utf-8", "surrogateescape"))
    with pytest.raises(RunFailure, match=r"thresholds\.json is damaged: "):
        again(built._replace(directory=tmp_path / "cranes"))


def test_a_class_may_be_called_value() -> None:
    assert threshold_text({"value": entry(), "other": entry(value=0.3)}, None) == "0.200 to 0.300 (percentile 5)"
