"""The lab's datasets by name: planted worlds are read as any input dataset is, and a mistaken name is told."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from counterfoil.errors import UserError
from counterfoil.lab.planted import COLUMNS, SPLITS, VERSION, named_world, planted_world
from counterfoil.recipe.schema_inputs import ClassEntry, Source
from counterfoil.sources.input_datasets import load_source, read_rows, source_configs, source_splits
from counterfoil.sources.labelled_sources import Reference
from counterfoil.sources.pins import SourcePin, pin_source

NOISY = "lab:planted/noisy-1"


def _source(dataset: str) -> Source:
    return Source(dataset=dataset, classes=(ClassEntry(id="x", name="x", source_label=0),), unit_column="garment")


@pytest.mark.parametrize("name", ["noisy-1", "rare-100", "null-0"])
def test_a_world_is_read_as_any_input_dataset(name: str) -> None:
    source, world = _source(f"lab:planted/{name}"), named_world(name)
    assert world is not None
    pin = pin_source(source)
    assert pin == SourcePin(f"lab:planted/{name}", VERSION, "mit")
    assert source_splits(source, pin) == SPLITS
    assert source_configs(source, pin) == ()
    split = load_source(source, "test", pin)
    np.testing.assert_array_equal(split.labels, world.labels("test"))
    assert split.units() == world.garments("test")
    for row in (0, 17, 3999):
        np.testing.assert_array_equal(np.asarray(split.image(row)), world.pixels("test", row))
    rows = read_rows(source, "test", pin)
    assert rows.columns == COLUMNS
    (encoded,) = rows.images([17])
    assert encoded is not None
    with Image.open(io.BytesIO(encoded)) as stored:
        np.testing.assert_array_equal(np.asarray(stored), world.pixels("test", 17))


def test_the_largest_split_is_rendered_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterfoil.lab import planted

    rendered: list[object] = []
    render = planted.render
    monkeypatch.setattr(planted, "render", lambda scene: rendered.append(scene) or render(scene))
    split = load_source(_source("lab:planted/correlation-0"), "proof")
    assert len(split.labels) == 50_000
    assert not rendered
    split.image(49_999)
    assert len(rendered) == 1


def test_contents_tell_worlds_and_splits_apart_and_reading_does_not_change_them() -> None:
    contents = [
        load_source(_source(f"lab:planted/{name}"), split).content()
        for name in ("null-0", "null-1", "noisy-1")
        for split in ("validation", "test")
    ]
    assert len(set(contents)) == 6
    assert load_source(_source("lab:planted/null-0"), "validation").content() == contents[0]


def test_a_reference_names_a_world_and_its_split() -> None:
    reference = Reference.parse("lab:planted/rare-100:test")
    assert (reference.dataset, reference.split) == ("lab:planted/rare-100", "test")
    assert len(load_source(reference, "test").labels) == 4000


def test_labels_are_told_as_the_dataset_tells_them() -> None:
    """Seeds that are odd flip labels in all splits: what is read is what was flipped."""
    labels = load_source(_source(NOISY), "test").labels
    flipped = labels != planted_world("noisy", 1).true_classes("test")
    assert flipped.any()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lab:planted/corelation-3", ["no planted world 'corelation-3'", "did you mean 'correlation-3'?"]),
        ("lab:planted/rare", ["no planted world 'rare'", "did you mean 'rare-0'?"]),
        ("lab:planted/rare-x", ["'x' is no seed", "a seed of 0 to 99999"]),
        ("lab:planted/rare-007", ["'007' is no seed"]),
        ("lab:planted/rare-100000", ["'100000' is no seed"]),
        ("lab:planted/../wardrobe", ["no planted world '../wardrobe'", "correlation, rare, noisy, null, corruption"]),
        ("lab:planted/", ["no planted world ''", "lab:planted/correlation-0"]),
        ("lab:planted", ["the lab has no 'planted'", "lab:planted/KIND-SEED"]),
        ("lab:wardrob", ["the lab has no 'wardrob'; did you mean 'wardrobe'?", "lab:wardrobe"]),
    ],
)
def test_a_name_that_the_lab_does_not_have_is_a_users_mistake(name: str, said: list[str]) -> None:
    for look in (pin_source, lambda source: load_source(source, "test")):
        with pytest.raises(UserError) as refused:
            look(_source(name))
        text = " ".join([*refused.value.problems, refused.value.hint or ""])
        assert [words for words in said if words not in text] == []


def test_a_split_that_there_is_not_names_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"no split 'tests'; did you mean 'test'\?") as refused:
        load_source(_source(NOISY), "tests")
    assert "train, validation, test, proof" in (refused.value.hint or "")
