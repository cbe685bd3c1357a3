"""Images that are drawn beside their base: the same bytes however shards are dealt, and bases as
they are without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from counterfoil.dataset.verification import verify
from counterfoil.errors import UserError
from counterfoil.recipe.schema_output import PAIRED_BY
from counterfoil.reviewing.recut_dataset import recut
from counterfoil.store.reading import read_rows
from support.built_rows import table_rows
from support.measured import measured
from tiny_builds import images, published, tiny

BESIDE = "samples.pairs=attention"


def paired_by(directory: Path) -> dict[str, str | None]:
    """Return key → what its pair shares by the tables of candidates and of images, which agree."""
    tables = [
        {row["key"]: row[PAIRED_BY] for row in table_rows(directory, "key", PAIRED_BY, what=what)}
        for what in ("candidates", "data")
    ]
    assert tables[1].items() <= tables[0].items()
    return tables[0]


def test_bases_are_the_files_that_they_are_without(beside_base: Path, undisturbed: Path) -> None:
    beside = images(beside_base)
    alone = images(undisturbed)
    assert beside.keys() == alone.keys()
    bases = [key for key in alone if key.startswith("base_")]
    assert len(bases) == 6 and all(beside[key] == alone[key] for key in bases)
    seeds = [
        {r["key"]: (r["prompt"], r["seed"]) for r in read_rows(path)}
        for path in (beside_base, undisturbed)
    ]
    assert seeds[0] == seeds[1]
    assert not any(beside[key] == alone[key] for key in alone if key not in bases), (
        "the others saw their base"
    )


def test_every_table_says_what_a_pair_shares_and_only_where_a_recipe_asks(
    beside_base: Path, undisturbed: Path
) -> None:
    shared = paired_by(beside_base)
    assert {key.startswith("base_"): value for key, value in shared.items()} == {
        True: None,
        False: "attention",
    }
    assert PAIRED_BY not in next(iter(read_rows(undisturbed)))
    card = (beside_base / "README.md").read_text(encoding="utf-8")
    assert PAIRED_BY in card and "was drawn together with its base image" in card
    assert PAIRED_BY not in (undisturbed / "README.md").read_text(encoding="utf-8")
    assert PAIRED_BY in (beside_base / "croissant.json").read_text(encoding="utf-8")


@pytest.mark.whole
def test_two_workers_make_the_same_directory(beside_base: Path, tmp_path: Path) -> None:
    tiny(tmp_path / "dataset", BESIDE, workers=2)
    assert published(tmp_path / "dataset") == published(beside_base)


def test_an_image_depends_on_its_sample_and_its_pair_alone(
    beside_base: Path, tmp_path: Path
) -> None:
    """Build fewer classes in another order, one more shift, quotas and other shards."""
    tiny(
        tmp_path / "dataset",
        BESIDE,
        "source.classes=[{id: '08', name: bag, source_label: 8}, {id: '00', name: t-shirt,"
        " source_label: 0}]",
        "prompts.shifts.at_dusk={prompt: 'a photo of a {class} at dusk'}",
        "output.rows_per_shard=2",
        "prompts.shifts.red=null",
        "samples={candidates: null, accepted: 2, at_most: 5}",
    )
    before = images(beside_base)
    after = images(tmp_path / "dataset")
    shared = before.keys() & after.keys()
    assert len(shared) == 12
    assert all(before[key] == after[key] for key in shared)


def test_a_directory_of_other_pairs_is_not_gone_on_with(undisturbed: Path, tmp_path: Path) -> None:
    shutil.copytree(undisturbed, tmp_path / "dataset")
    with pytest.raises(UserError, match="samples"):
        tiny(tmp_path / "dataset", BESIDE)


def test_it_is_verified_and_rendered_again(beside_base: Path) -> None:
    report = verify(beside_base, rerender=4, device="cpu")
    assert report.problems == ()
    assert {row.outcome for row in report.rerendered} == {"identical bytes"}
    assert any(not row.key.startswith("base_") for row in report.rerendered)


def test_a_base_of_a_class_token_is_known_again_in_tar_files(tmp_path: Path) -> None:
    few = [
        "source.classes=[{id: '00', name: t-shirt, source_label: 0}]",
        "prompts.shifts.pencil_sketch=null",
    ]
    tiny(tmp_path / "tars", BESIDE, *few, "tokens={path: lab:tokens}", "output.format=webdataset")
    report = verify(tmp_path / "tars", rerender=6, device="cpu")
    assert report.problems == () and len(report.rerendered) == 6
    assert {row.outcome for row in report.rerendered} == {"identical bytes"}
    assert set(paired_by(tmp_path / "tars").values()) == {None, "attention"}


def test_a_cut_keeps_what_pairs_share(beside_base: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(beside_base, tmp_path / "dataset")
    cut = tmp_path / "cut.yaml"
    cut.write_text("screen: {keep_rejected: false}\nprompts: {shifts: {red: {threshold: 0.3}}}\n")
    recut(copied, cut, tmp_path / "cut")
    assert paired_by(tmp_path / "cut") == paired_by(beside_base)
    assert verify(tmp_path / "cut").problems == ()


def test_it_is_evaluated_in_pairs(beside_base: Path) -> None:
    results = measured(beside_base, ["lab:resnet10t"], min_images_per_class=1).results
    assert results.paired
