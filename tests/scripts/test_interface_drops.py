"""The proof's drops: measured at the guidance that ships and at the one that was chosen, and held
against the aims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import prove_interface
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.recipe import load_recipe
from interface_proof import comparison
from interface_proof.builds import PROOF_GUIDANCE, build_folder, changes_of, own_guidance
from interface_proof.comparison import MARKED, aims, compare, markdown
from interface_proof.looks import SHIFT_NAMES, Looks


def looks(seed: int, units: int, hard: np.ndarray) -> Looks:
    """Return three classifiers that are right in so many images of a shift and class, `hard`; nine
    in ten are kept."""
    rng = np.random.default_rng(seed)
    shape = (len(SHIFT_NAMES), len(CLASSES), units)
    present = np.ones(shape, bool)
    kept = rng.random(shape) < 0.9
    right = rng.random((*shape, 3)) < hard[..., None, None]
    seen = rng.random(shape) < np.where(kept, 0.9, 0.4)
    return Looks(present, kept, right, seen, present, present & MARKED[None, :, None])


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict]:
    """Return a benchmark that draws as the world is, and one whose marked classes by token are as
    bad as by name."""
    monkeypatch.setattr(comparison, "REPLICATES", 30)
    rng = np.random.default_rng(0)
    true = np.broadcast_to(
        np.linspace(0.95, 0.35, len(SHIFT_NAMES))[:, None], (len(SHIFT_NAMES), len(CLASSES))
    )
    wrong = np.where(MARKED, rng.permutation(true), true)
    truth = looks(1, 150, true)
    names = looks(2, 60, wrong)
    tokens = looks(3, 60, true)
    results = {}
    for name, drawn in (("good", tokens), ("bad", replace(names, kept=tokens.kept))):
        ways = {
            "names": names,
            "names screened": names.screened(),
            "tokens": drawn,
            "tokens screened": drawn.screened(),
        }
        results[name] = compare(ways, truth)
    return results


def test_each_aim_is_met_or_missed_by_its_own_figure(reports: dict[str, dict]) -> None:
    lines = aims(reports)
    assert lines[0] == "| aim | good | bad |"
    (ratio,) = [line.split(" | ")[1:] for line in lines if "marked classes, at most 0.60" in line]
    assert ratio[0].endswith(": met") and ratio[1].endswith(": missed |")
    for name, cell in zip(reports, ratio, strict=True):
        value = reports[name]["mean_error"]["tokens screened"]["marked_of_names"]["value"]
        assert cell.startswith(f"{value:.2f} [")
    (object_gain,) = [line for line in lines if line.startswith("| screening raises object")]
    assert object_gain.count(": met") == 2
    # Where the oracle always sees the shift, screening can raise nothing.
    (shift_gain,) = [line for line in lines if line.startswith("| screening raises shift")]
    assert shift_gain.count(": missed") == 2
    assert "| tokens screened |" in markdown(reports["good"])


def test_what_ships_is_proved_on_a_seed_that_chose_nothing() -> None:
    assert own_guidance() == load_recipe("wardrobe-star").drawing.guidance != PROOF_GUIDANCE
    recipe = load_recipe("wardrobe-star", changes_of(3, own_guidance(), prove_interface.SEED))
    assert (recipe.drawing.guidance, recipe.samples.seed) == (own_guidance(), prove_interface.SEED)
    assert prove_interface.SEED not in (0, *range(4))
    assert recipe.tokens == load_recipe("wardrobe-star").tokens


def test_a_seed_and_a_guidance_have_folders_of_their_own(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interface_proof.builds.proof_folder", lambda work: work)
    settings = [(None, None), (2.0, None), (3.0, None), (3.0, 200), (3.0, 201)]
    assert len({build_folder(tmp_path, "names", 20, *setting) for setting in settings}) == len(
        settings
    )
