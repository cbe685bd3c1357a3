"""A mended model's card says what it was mended with, with any names."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from counterfoil.mending.report import model_card

ABOUT: dict[str, Any] = {
    "format": 1,
    "model": {"name": "lab:resnet10t", "sha256": "ab" * 32},
    "on": [{"name": "lab:wardrobe", "content": "c1"}],
    "datasets": [
        {
            "name": "someone/contexts",
            "content": "c2",
            "group": "contexts",
            "seed": 7,
            "recipe": "wardrobe",
        }
    ],
    "lambda": 0.25,
    "fit": "lbfgs",
    "weight_decay": 5e-4,
    "rows": {"training images": 240, "drawn images": 1234},
}


def test_a_card_tells_model_data_and_settings() -> None:
    card = model_card(ABOUT, "It helps.")
    for words in (
        "lab:resnet10t",
        "ab" * 32,
        "someone/contexts",
        "group `contexts`",
        "0.25",
        "1,234",
    ):
        assert words in card
    assert "It helps." in card
    _, head, _ = card.split("---\n", 2)
    assert yaml.safe_load(head)["library_name"] == "timm"
    assert card == model_card(ABOUT, "It helps.")


def test_nothing_is_called_mended_that_is_not_shown_to_help() -> None:
    card = model_card(ABOUT, headline="This is not shown to help: keep your model.", helps=False)
    _, head, body = card.split("---\n", 2)
    assert (
        "mended" not in yaml.safe_load(head)["tags"]
        and "mended" in yaml.safe_load(model_card(ABOUT).split("---\n")[1])["tags"]
    )
    assert body.index("**This is not shown to help: keep your model.**") < body.index(
        "This is `lab:resnet10t`"
    )
    assert "mended" not in body.replace("mended.json", "")


def test_a_head_fitted_without_other_images_says_so() -> None:
    assert "no other images" in model_card({**ABOUT, "datasets": [], "lambda": 0.0})


def test_a_card_says_drawn_of_drawn_images_alone() -> None:
    """Say of corrupted photographs that they were changed."""
    card = model_card(ABOUT | {"rows": {}}, images="changed photographs")
    assert (
        "and on changed photographs." in card
        and "the weight of changed photographs" in card
        and "drawn" not in card
    )


@pytest.mark.parametrize(
    ("role", "lam", "says"),
    [
        ("mended", 0.5, "and on drawn images of its failures"),
        ("mended", 0.0, "alone: λ = 0 was chosen"),
        ("upweighted", 1.0, "the hard ones with more weight"),
        ("rival", None, "balanced over groups assigned by CLIP"),
    ],
)
def test_a_card_says_what_each_kind_of_head_learned_from(
    role: str, lam: float | None, says: str
) -> None:
    about = {**ABOUT, "datasets": [], "lambda": lam}
    card = model_card(
        about, role=role, trained_on=["photos/train"], chosen_on=["photos/validation"]
    )
    assert says in card and card.count("on drawn images of") == (role == "mended" and lam == 0.5)
    assert (
        "| fitted on | `photos/train` |" in card
        and "| chosen on a half of | `photos/validation` |" in card
    )
    assert "None" not in card and ("| λ" in card) == (lam is not None)


def test_names_of_strangers_stay_inside_their_cells() -> None:
    hostile = "a | b ``` <script>\n\n# Heading"
    about = {
        **ABOUT,
        "model": {"name": hostile, "sha256": ""},
        "datasets": [{"name": hostile, "group": hostile}],
    }
    card = model_card(about, hostile)
    plain = model_card(ABOUT, "It helps.")
    assert [line for line in card.splitlines() if line.startswith("#")][1:] == [
        line for line in plain.splitlines() if line.startswith("#")
    ][1:]
    assert len(card.splitlines()) == len(plain.splitlines())
    rows = [line for line in card.splitlines() if line.startswith("| mended with")]
    assert rows and all(row.replace("\\|", "").count("|") == 3 for row in rows)
