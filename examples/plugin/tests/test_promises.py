import json

from counterfoil.testing import check_classifier, check_corruption, check_measure


def test_dead_pixels():
    check_corruption("dead_pixels")


def test_confident_errors():
    check_measure("confident_errors")


def test_mean_colour(tmp_path):
    means = tmp_path / "means.json"
    means.write_text(json.dumps({"dark": [0.2, 0.2, 0.2], "light": [0.8, 0.8, 0.8]}))
    check_classifier(f"mean-colour:{means}")
