"""A preview of a dataset: its images are the whole's, its pages and files say so, and it is used
for nothing final."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_building_corrupted import SETTINGS, corrupted_build
from typer.testing import CliRunner

from counterfoil.building.build_dataset import build
from counterfoil.cli.main import app
from counterfoil.dataset.verification import verify
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.mending.given import Given
from counterfoil.mending.variants import open_debug_images
from counterfoil.publishing.publish_dataset import publish
from counterfoil.recipe import load_recipe
from counterfoil.report.words import preview_sentence
from counterfoil.reviewing.review_dataset import review
from shared_datasets import Once
from support.refusals import problems_of
from tiny_builds import images, tiny

SAID = preview_sentence(6)


def corrupted(out: Path, limit: int | None = None, *changes: str) -> None:
    build(
        "wardrobe-corrupt",
        out,
        overrides=[*SETTINGS, *changes],
        device="cpu",
        workers=1,
        limit=limit,
    )


@pytest.fixture(scope="module")
def preview(once_a_run: Once) -> Path:
    """Build six images a shift of three classes. Read only."""
    return once_a_run("corrupted-preview", lambda out: corrupted(out, 6))


def test_its_images_are_the_whole_s(preview: Path, once_a_run: Once) -> None:
    whole = images(once_a_run("corrupted-whole", corrupted_build))
    some = images(preview)
    assert len(some) == 4 * 6 < len(whole) == 4 * 9
    assert all(whole[key] == content for key, content in some.items())
    assert verify(preview).problems == ()


def test_drawn_images_are_the_whole_s(undisturbed: Path, tmp_path: Path) -> None:
    tiny(tmp_path / "preview", limit=2)
    whole = images(undisturbed)
    some = images(tmp_path / "preview")
    assert len(some) == 4 * 2 and all(whole[key] == content for key, content in some.items())


def test_pages_and_files_say_so(preview: Path, tmp_path: Path) -> None:
    assert SAID.startswith("A preview of 6 images a shift.")
    assert f"> **{SAID}**" in (preview / "README.md").read_text()
    assert json.loads((preview / "croissant.json").read_text())["description"].startswith(SAID)
    assert SAID in (preview / "index.html").read_text()
    page = review(preview, page=tmp_path / "review.html").page
    assert page is not None and SAID in page.read_text()
    result = CliRunner().invoke(app, [*_words(preview), "--limit", "6", "--json"])
    assert result.exit_code == 0 and json.loads(result.stdout)["preview"] == 6
    result = CliRunner().invoke(app, [*_words(preview), "--limit", "6"])
    assert SAID in result.stderr


def test_it_becomes_no_other_dataset(preview: Path, tmp_path: Path) -> None:
    for limit, words in ((None, "a whole dataset"), (7, "a preview of 7 images a shift")):
        problems = problems_of(corrupted, preview, limit)
        assert problems == (
            f"{preview}: holds a preview of 6 images a shift, and you asked for {words}"
            " [other-build]",
        )
    with pytest.raises(UserError, match="limit is 0: expected 1 or more"):
        corrupted(tmp_path / "none", 0)
    result = CliRunner().invoke(
        app, ["build", "--from", str(preview), "--out", str(tmp_path), "--limit", "3"]
    )
    assert isinstance(result.exception, UserError) and "--limit does not go with --from" in str(
        result.exception
    )


def test_it_is_not_published_answers_no_gate_and_mends_nothing(preview: Path) -> None:
    with pytest.raises(UserError, match="is a preview of 6 images a shift, which is not published"):
        publish(preview, "me/preview", dry_run=True)
    with pytest.raises(UserError, match="a preview of 6 images a shift, which takes no gate"):
        evaluate(preview, {"m": lambda batch: batch[:, 0, 0, :3]}, gate=["drop(fog) <= 10"])
    given = Given("images", "built", str(preview))
    with pytest.raises(
        UserError, match="a preview of 6 images a shift, from which no head is fitted"
    ):
        open_debug_images(given, load_recipe("wardrobe-corrupt", SETTINGS))


def test_an_evaluation_says_so_and_writes_no_entries_for_the_hub(
    preview: Path, tmp_path: Path
) -> None:
    evaluation = evaluate(
        preview, ["lab:resnet10t"], out=tmp_path, device="cpu", repo="me/preview", reference=False
    )
    assert evaluation.to_json()["preview"] == 6 and evaluation.results.min_images_per_class == 1
    assert "entries" not in evaluation.files
    for name in ("report", "failures"):
        assert SAID in evaluation.files[name].read_text()


def _words(out: Path) -> list[str]:
    settings = [word for change in SETTINGS for word in ("--set", change)]
    return [
        "build",
        "wardrobe-corrupt",
        "--out",
        str(out),
        "--device",
        "cpu",
        "--workers",
        "1",
        *settings,
    ]
