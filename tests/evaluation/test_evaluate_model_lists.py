"""A list of models may be a file; what is wrong in it is told together, with its lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from colour_world import build_colours
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.scored_models import NamedModel, named_models
from support.files import write


def names(*words: str | Path) -> list[str]:
    found, problems = named_models(words)
    assert problems == ()
    return [one.name for one in found]


def test_a_list_holds_a_name_a_line_with_comments_and_blank_lines(tmp_path: Path) -> None:
    text = "\ufeff# the paper's models\r\nresnet50.a1_in1k  # a comment\r\n\r\n  lab:vit_tiny_patch8\r\n#resnet18\r\n"
    file = write(tmp_path / "models.txt", text)
    found, problems = named_models([str(file)])
    assert problems == ()
    assert found == (
        NamedModel("resnet50.a1_in1k", f"{file}, line 2"),
        NamedModel("lab:vit_tiny_patch8", f"{file}, line 4"),
    )


def test_names_and_lists_mix_in_order_and_each_model_counts_once(tmp_path: Path) -> None:
    file = write(tmp_path / "m.txt", "b\na\n")
    assert names("a", str(file), "c", f"@{file}", "c") == ["a", "b", "c"]


def test_which_words_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "resnet18", "x\n")
    write(tmp_path / "sweep", "y\n")
    write(tmp_path / "lab:z", "z\n")
    # An existing file is a list, unless a model is called so; `@` and a Path always mean the file.
    assert names("resnet18", "sweep", "lab:z") == ["resnet18", "y", "lab:z"]
    assert names("@resnet18") == names(Path("resnet18")) == ["x"]
    (tmp_path / "vit").mkdir()
    assert names("vit") == ["vit"]


def test_a_folder_with_spaces_and_commas_is_one_name(tmp_path: Path) -> None:
    for name in ("local-dir:/my models/a, b", "transformers:./a; b", "predictions:my answers, new.csv"):
        assert names(write(tmp_path / "m.txt", f"{name}\n")) == [name]
    assert names("open_clip:lab:clip", "predictions:a.txt") == ["open_clip:lab:clip", "predictions:a.txt"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "lists no model"),
        (b"# only this\n\n", "lists no model"),
        (b"resnet18 resnet50\n", "line 1: found 'resnet18 resnet50', expected one name a line"),
        (b"ok\nresnet18, resnet50\n", "line 2: .* one name a line"),
        (b"- resnet18\n", "line 1: .* one name a line"),
        (b"@other.txt\n", "line 1: .*cannot name another list"),
        (b"a\x00b\n", "line 1: .*printable"),
        (b"\x80\x81\xff", "is no list of models: expected plain text"),
        (b"x" * 1_000_001, "expected at most 1,000,000"),
    ],
)
def test_what_is_wrong_with_a_list_is_told(tmp_path: Path, content: bytes, says: str) -> None:
    _, problems = named_models([str(write(tmp_path / "m.txt", content))])
    assert len(problems) == 1
    assert re.search(says, problems[0])


def test_a_missing_list_is_no_model_name(tmp_path: Path) -> None:
    for word in (str(tmp_path / "none.txt"), f"@{tmp_path / 'none'}"):
        found, problems = named_models([word])
        assert found == () and "there is no list of models" in problems[0]


def test_bad_lines_and_unknown_models_are_told_together_with_their_lines(dataset: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "m.txt", "resnet81\nresnet18 resnet34\nlab:resnet10\nresnet18.a1_in1k\n")
    with pytest.raises(UserError) as caught:
        evaluate(dataset, ["nothing.txt", str(file)], device="cpu")
    told = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 5
    for piece in ("nothing.txt", "line 1: ", "did you mean", "line 2: ", "line 3: ", "line 4: ", "1000 outputs"):
        assert piece in told


def test_a_list_is_scored_like_the_names_in_it(dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    both = [models["sharp"], models["no_red"]]
    file = write(tmp_path / "m.txt", "\n".join(both))
    listed = evaluate(dataset, file, device="cpu", out=tmp_path / "listed")
    named = evaluate(dataset, both, device="cpu", out=tmp_path / "named")
    assert listed.scores == named.scores
    assert evaluate(dataset, both[0], device="cpu", out=tmp_path / "one").models[0].name == both[0]


def test_a_recipes_own_models_are_never_read_from_files(tmp_path: Path, models: dict[str, str]) -> None:
    file = write(tmp_path / "m.txt", models["sharp"])
    dataset = build_colours(tmp_path / "d", f"evaluate.models=['@{file}']")
    with pytest.raises(UserError, match="model '@"):
        evaluate(dataset, device="cpu")
