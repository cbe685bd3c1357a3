"""An input dataset is pinned first and loaded by that pin; what nobody can tell any more is as it was recorded."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
from huggingface_hub import CommitOperationAdd

import warm
from counterfoil.errors import RunFailure, UserError
from counterfoil.recipe.schema_inputs import ClassEntry, Source
from counterfoil.sources.input_datasets import load_source
from counterfoil.sources.pins import SourcePin, pin_source
from loopback_hub import LoopbackHub, client, client_environment
from support.images import encoded

CLASS = ClassEntry(id="x", name="x", source_label=0)
NAME = "someone/photos"
CARD = b"---\nlicense: mit\n---\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def source_of(dataset: Path | str, **other: Any) -> Source:
    return Source(dataset=str(dataset), classes=(CLASS,), **other)


def parquet(*shades: int) -> bytes:
    images = [{"bytes": encoded(shade), "path": None} for shade in shades]
    stream = io.BytesIO()
    datasets.Dataset.from_dict({"image": images, "label": list(shades)}).to_parquet(stream)
    return stream.getvalue()


def folder_of(place: Path, *shades: int) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "train.parquet").write_bytes(parquet(*shades))
    return place


def test_a_folder_is_pinned_by_its_last_name_and_its_content(tmp_path: Path) -> None:
    here, there = folder_of(tmp_path / "photos", 1, 2), folder_of(tmp_path / "elsewhere" / "photos", 1, 2)
    pin = pin_source(source_of(here))
    assert pin == pin_source(source_of(there))
    assert pin.content is not None and pin.document()["content"] == pin.content
    assert str(tmp_path) not in str(pin)
    folder_of(there, 1, 3)
    assert pin_source(source_of(there)) != pin


def test_what_is_not_known_is_not_different(tmp_path: Path) -> None:
    place = folder_of(tmp_path / "photos", 1)
    old = {"dataset": "photos", "revision": None, "license": None}  # as every lock of a folder was before
    assert pin_source(source_of(place), old).document() == old
    assert pin_source(source_of(place), old | {"dataset": "others"}).content is not None
    now = pin_source(source_of(place)).document()
    folder_of(place, 2)
    assert pin_source(source_of(place), now).document() != now
    shutil.rmtree(place)
    assert pin_source(source_of(place), now).document() == now
    assert pin_source(source_of(place)).document() == old
    elsewhere = source_of(f"elsewhere:{place}")
    assert pin_source(elsewhere, now).document() == now


def test_the_same_files_under_another_name_are_the_recorded_dataset(tmp_path: Path) -> None:
    recorded = pin_source(source_of(folder_of(tmp_path / "photos", 1))).document()
    assert pin_source(source_of(folder_of(tmp_path / "moved", 1)), recorded).document() == recorded


@pytest.mark.parametrize("recorded", [None, [], "photos", {}, {"dataset": 3}, {"dataset": "photos", "content": [1]}])
def test_a_document_of_another_form_is_no_pin(recorded: Any, tmp_path: Path) -> None:
    assert SourcePin.of(recorded) is None
    assert pin_source(source_of(folder_of(tmp_path / "photos", 1)), recorded).content is not None


def test_the_labs_pin_is_its_version_and_no_lock_of_it_changes() -> None:
    expected = {"dataset": "lab:wardrobe", "revision": "1", "license": "mit"}
    assert pin_source(source_of("lab:wardrobe")).document() == expected


def test_a_folder_that_changed_after_its_pin_is_not_loaded(tmp_path: Path) -> None:
    place = folder_of(tmp_path / "photos", 1)
    pin = pin_source(source_of(place))
    assert load_source(source_of(place), "train", pin).labels.tolist() == [1]
    folder_of(place, 2)
    with pytest.raises(RunFailure, match="no longer what was pinned"):
        load_source(source_of(place), "train", pin)


def test_what_is_loaded_is_what_is_pinned_even_where_a_changed_file_keeps_its_times(tmp_path: Path) -> None:
    """`datasets` alone takes files of the same names and times for the same, and gives what it read before."""
    place = folder_of(tmp_path / "photos", 1, 2)
    for shades in ((1, 2), (3, 4)):
        folder_of(place, *shades)
        os.utime(place / "train.parquet", (1_000_000_000, 1_000_000_000))
        assert load_source(source_of(place), "train").labels.tolist() == list(shades)


@pytest.mark.parametrize("where", ["absolute", "above"])
def test_a_folder_takes_no_rows_from_outside(where: str, tmp_path: Path) -> None:
    secret = folder_of(tmp_path / "secret", 7)
    place = folder_of(tmp_path / "photos", 1)
    named = secret / "train.parquet" if where == "absolute" else "../secret/train.parquet"
    (place / "README.md").write_text(
        f"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: {named}\n---\n"
    )
    with pytest.raises(UserError, match="which is not in it"):
        load_source(source_of(place), "train")


@pytest.mark.parametrize("where", ["absolute", "relative"])
def test_an_image_outside_of_the_folder_is_not_read(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.png").write_bytes(encoded(7))
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "photos"
    place.mkdir()
    named = str(tmp_path / "secret.png") if where == "absolute" else "secret.png"
    table = {"image": [{"bytes": None, "path": named}], "label": [0]}
    datasets.Dataset.from_dict(table).to_parquet(str(place / "train.parquet"))
    split = load_source(source_of(place), "train")
    with pytest.raises(UserError, match="which is not in the dataset"):
        split.image(0)


ANSWERING = """
import json, sys
from counterfoil.recipe.schema_inputs import ClassEntry, Source
from counterfoil.sources import labelled_source
from counterfoil.sources.input_datasets import load_source
from counterfoil.sources.pins import SourcePin, loadable_pin, pin_source
from counterfoil.store.decoding import rgb_image
pins = {"pin": pin_source, "loadable": loadable_pin, "of": lambda source, recorded: SourcePin.of(recorded)}
for line in sys.stdin:
    how, recorded, load, keys = json.loads(line)
    if how == "labelled":
        images = labelled_source(**keys)
        shades = [rgb_image(encoded).getpixel((0, 0))[0] for _, encoded in images.images()]
        print(json.dumps({"labels": images.labels.tolist(), "shades": shades, "keys": images.keys}), flush=True)
        continue
    source = Source(dataset="someone/photos", classes=(ClassEntry(id="x", name="x", source_label=0),), **keys)
    pin = pins[how](source, recorded)
    told = {"pin": pin.document()}
    if load:
        split = load_source(source, "train", pin)
        shades = [split.image(row).getpixel((0, 0))[0] for row in range(len(split.labels))]
        told |= {"labels": split.labels.tolist(), "shades": shades, "content": split.content()}
    print(json.dumps(told), flush=True)
"""


class Client:
    """A process that pins `someone/photos` of a Hub, and loads it by that pin, as often as it is asked."""

    def __init__(self, hub: LoopbackHub, home: Path, *, offline: bool = False) -> None:
        self.environment = client_environment(hub, home) | {"HF_HUB_OFFLINE": "1" if offline else "0"}

    def __enter__(self) -> Client:
        self.process = warm.start([sys.executable, "-c", ANSWERING], self.environment, talking=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def ask(self, how: str = "pin", recorded: Any = None, *, load: bool = True, **source: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([how, recorded, load, source]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the client's process is gone: its error is above"
        return json.loads(line)


def put(hub: LoopbackHub, **files: bytes) -> str:
    """One more commit; its id."""
    additions = [CommitOperationAdd(path.replace("_", "."), content) for path, content in files.items()]
    return client(hub).create_commit(NAME, additions, commit_message="A version", repo_type="dataset").oid


def test_what_is_loaded_is_the_commit_that_is_pinned_wherever_the_branch_goes(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    client(loopback).create_repo(NAME, repo_type="dataset")
    first = put(loopback, README_md=CARD, train_parquet=parquet(1, 2))
    with Client(loopback, tmp_path / "home") as online:
        pin = online.ask(load=False)["pin"]
        assert pin == {"dataset": NAME, "revision": first, "license": "mit"}
        second = put(loopback, train_parquet=parquet(3))  # between the pin and the loading
        old = online.ask("of", pin)
        assert (old["labels"], old["shades"]) == ([1, 2], [1, 2])
        # A re-cut takes the commit that the lock names; a build asks what the branch is, to tell another one.
        assert online.ask("loadable", pin) == old
        new = online.ask("pin", pin)
        assert (new["pin"]["revision"], new["labels"], new["shades"]) == (second, [3], [3])
        assert new["content"] != old["content"]
        # And without a recipe, by a reference.
        named = online.ask("labelled", reference=f"{NAME}@{first}:train")
        assert named == {"labels": [0, 1], "shades": [1, 2], "keys": ["train_00000000", "train_00000001"]}
        assert online.ask("labelled", reference=NAME)["shades"] == [3]
    with Client(loopback, tmp_path / "home", offline=True) as offline:
        # The commit that is cached, where `datasets` alone would give whichever it has read last.
        assert offline.ask()["pin"]["revision"] == second
        assert offline.ask()["labels"] == [3]
        assert offline.ask("pin", pin) == old
        assert offline.ask(revision=first)["labels"] == [1, 2]
        # What is neither named nor cached is as it was recorded, and another commit is told as another one.
        recorded = {"dataset": NAME, "revision": "a" * 40, "license": "mit"}
        assert offline.ask("pin", recorded, load=False)["pin"] == recorded
        other = offline.ask("pin", recorded, load=False, revision="b" * 40)["pin"]
        assert other == {"dataset": NAME, "revision": "b" * 40, "license": None}
    with Client(loopback, tmp_path / "fresh", offline=True) as stranger:
        unknown = stranger.ask(load=False)["pin"]
        assert unknown == {"dataset": NAME, "revision": None, "license": None}
