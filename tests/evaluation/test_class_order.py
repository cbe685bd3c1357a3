"""Matching outputs to classes: by name or refused, by position where training programs agree;
always reported.

Folders of plain colours, and models that tell the colours: what is right comes from torchvision's
ImageFolder, timm's reader and the model itself, on the same files.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data.config import resolve_model_data_config
from timm.data.readers.reader_image_folder import find_images_and_targets
from timm.data.transforms_factory import create_transform
from torchvision.datasets import ImageFolder
from transformers import AutoImageProcessor, AutoModelForImageClassification

from colour_kinds import ColourModule, as_tensor, save_colour_transformer
from colour_world import NAMES, save_folders, save_trained
from counterfoil.errors import UserError
from counterfoil.report.reference import model_sentences
from counterfoil.report.results import results_from
from results_examples import top1
from support.measured import measured
from support.refusals import refuses, succeed


def of_torchvision(root: Path) -> list[tuple[str, int]]:
    return ImageFolder(str(root)).samples


def of_timm(root: Path) -> list[tuple[str, int]]:
    return find_images_and_targets(str(root))[0]


def order_of(samples: list[tuple[str, int]]) -> list[str]:
    """Return the names of the folders by label."""
    return [
        name for _, name in sorted({(label, Path(path).parent.name) for path, label in samples})
    ]


def timms_accuracy(model: str, samples: list[tuple[str, int]]) -> float:
    module: Any = timm.create_model(model, pretrained=True).eval()
    form: dict[str, Any] = dict(resolve_model_data_config(module))
    transform: Any = create_transform(**form, is_training=False)
    with torch.no_grad():
        answers = [
            module(transform(Image.open(path).convert("RGB"))[None]).argmax().item()
            for path, _ in samples
        ]
    return float(
        np.mean([answer == label for answer, (_, label) in zip(answers, samples, strict=True)])
    )


class TestNames:
    # A class was renamed after training. test_class_map.py has more names that look like numbers.
    @pytest.mark.parametrize(
        ("names", "renamed"),
        [
            (("class_3", "class_1", "class_4", "class_2"), "class_5"),
            (("2", "0", "3", "1"), "7"),
        ],
    )
    def test_a_model_with_names_is_matched_by_them_or_refused(
        self, tmp_path: Path, names: tuple[str, ...], renamed: str
    ) -> None:
        images = save_folders(tmp_path / "images", names)
        model = save_trained(tmp_path / "model", names, names, labels=names)
        result = measured(images, model)
        assert top1(result).value == 1.0
        assert result.models[0].matched == "by name: 4 of 4 classes"
        (images / names[0]).rename(images / renamed)
        with pytest.raises(
            UserError, match="1 of 4 classes have no output of their name"
        ) as refused:
            measured(images, model)
        assert (
            f"{renamed} " in refused.value.problems[0]
            and f"| {names[0]}" in refused.value.problems[0]
        )
        assert "--class-order FILE" in (refused.value.hint or "")
        order = tmp_path / "order.txt"
        order.write_text("\n".join([renamed, *names[1:]]) + "\n")
        with_order = measured(images, model, class_order=order)
        assert top1(with_order).value == 1.0
        assert with_order.models[0].matched == "by name: 4 of 4 classes (as --class-order says)"

    @pytest.mark.parametrize("count", [3, 5])
    def test_more_or_fewer_names_than_outputs_are_refused(self, tmp_path: Path, count: int) -> None:
        names = ("a", "b", "c", "d")
        images = save_folders(tmp_path / "images", names)
        model = save_trained(
            tmp_path / "model", names, names[::-1], labels=(*names[::-1], "e")[:count]
        )
        with pytest.raises(
            UserError,
            match=f"has 4 outputs, and it tells {count} names \\[unmatched-classes\\]\n  classes",
        ):
            measured(images, model)

    def test_names_of_a_transformer_are_as_transformers_reads_them(self, tmp_path: Path) -> None:
        names = ("30", "10", "20")
        images = save_folders(tmp_path / "images", names)
        folder = save_colour_transformer(tmp_path / "vit")
        config = json.loads((folder / "config.json").read_text())
        config |= {
            "id2label": dict(enumerate(names)),
            "label2id": {name: i for i, name in enumerate(names)},
        }
        (folder / "config.json").write_text(json.dumps(config))
        module, processor = (
            kind.from_pretrained(folder)
            for kind in (AutoModelForImageClassification, AutoImageProcessor)
        )
        right = []
        for path, _ in of_torchvision(images):
            logits = module(**processor(images=Image.open(path), return_tensors="pt")).logits
            right.append(module.config.id2label[logits.argmax().item()] == Path(path).parent.name)
        result = measured(images, f"transformers:{folder}")
        assert top1(result).value == np.mean(right) == 1.0
        (images / "30").rename(images / "35")
        with pytest.raises(UserError, match="1 of 3 classes have no output of their name"):
            measured(images, f"transformers:{folder}")

    def test_names_that_nobody_gave_are_none(self, tmp_path: Path) -> None:
        images = save_folders(tmp_path / "images", NAMES)
        folder = save_colour_transformer(tmp_path / "vit", names=NAMES)
        config = json.loads((folder / "config.json").read_text())
        config |= {
            "id2label": {i: f"LABEL_{i}" for i in range(3)},
            "label2id": {f"LABEL_{i}": i for i in range(3)},
        }
        (folder / "config.json").write_text(json.dumps(config))
        # red, green, blue; the folders are sorted
        result = measured(images, f"transformers:{folder}")
        assert top1(result).value == pytest.approx(1 / 3)
        assert result.models[0].matched.startswith("by position")

    @pytest.mark.parametrize(
        ("names", "matched"),
        [
            (["blue", "red", "green"], "by name"),
            (("blue", "red", "green"), "by name"),
            (np.array(["blue", "red", "green"]), "by name"),
            ({"blue": 0, "red": 1, "green": 2}, None),
            ("blue red green", None),
            ([2, 0, 1], None),
        ],
    )
    def test_names_of_a_module_are_read_or_refused(
        self, tmp_path: Path, names: Any, matched: str | None
    ) -> None:
        images = save_folders(tmp_path / "images", NAMES)
        model: Any = ColourModule((2, 0, 1))
        model.label_names = names
        if matched is None:
            with pytest.raises(UserError, match="label_names"):
                measured(images, {"mine": model}, transform=as_tensor)
            return
        result = measured(images, {"mine": model}, transform=as_tensor)
        assert top1(result).value == 1.0 and result.models[0].matched.startswith(matched)


class TestPositions:
    @pytest.mark.parametrize(
        ("names", "reader", "order"),
        [
            (("Cherry", "apple", "banana", "date"), of_torchvision, "position"),
            (("img2", "img10", "img1", "img20"), of_timm, "timm"),
        ],
    )
    def test_where_training_programs_sort_differently_a_model_without_names_is_refused(
        self, tmp_path: Path, names: tuple[str, ...], reader: Callable[[Path], Any], order: str
    ) -> None:
        images = save_folders(tmp_path / "images", names)
        samples = reader(images)
        model = save_trained(tmp_path / "model", names, order_of(samples))
        assert timms_accuracy(model, samples) == 1.0
        with pytest.raises(UserError, match="does not tell the names of its outputs") as refused:
            measured(images, model)
        lines = refused.value.problems[0].splitlines()[2:]
        orders = order_of(of_torchvision(images)), order_of(of_timm(images))
        first = next(at for at, pair in enumerate(zip(*orders, strict=True)) if len(set(pair)) == 2)
        assert [tuple(line.split()) for line in lines] == [
            (a, "|", b) for a, b in zip(*orders, strict=True)
        ][first:]
        assert all(word in (refused.value.hint or "") for word in ("position", "timm", "FILE"))
        result = measured(images, model, class_order=order)
        assert top1(result).value == 1.0
        assert result.models[0].matched.endswith("(as --class-order says)")
        by_names = measured(images, model, class_order=order_of(samples))
        assert top1(by_names).value == 1.0

    def test_where_they_sort_alike_position_is_taken(self, tmp_path: Path) -> None:
        names = ("Apple", "Banana", "Cherry", "Date")
        images = save_folders(tmp_path / "images", names)
        assert order_of(of_torchvision(images)) == order_of(of_timm(images))
        model = save_trained(tmp_path / "model", names, order_of(of_timm(images)))
        result = measured(images, model)
        assert top1(result).value == timms_accuracy(model, of_torchvision(images)) == 1.0
        assert "torchvision's and timm's order" in result.models[0].matched

    def test_a_datasets_own_order_is_no_order_of_folders(
        self, dataset: Path, tmp_path: Path
    ) -> None:
        result = measured(dataset, save_trained(tmp_path / "model", NAMES, NAMES))
        assert top1(result).value == 1.0
        assert result.models[0].matched == "by position, in the dataset's order of labels"
        with pytest.raises(UserError, match="timm's order of 3 class folders is not known"):
            measured(dataset, f"local-dir:{tmp_path / 'model'}", class_order="timm")


class TestTold:
    def test_the_terminal_and_the_report_say_how_outputs_were_matched(self, tmp_path: Path) -> None:
        names = ("2", "10", "b", "c")
        images = save_folders(tmp_path / "images", names)
        timms = save_trained(tmp_path / "timms", names, ("2", "10", "b", "c"))
        named = save_trained(
            tmp_path / "named", names, ("b", "c", "2", "10"), labels=("b", "c", "2", "10")
        )
        out = tmp_path / "out"
        command = [
            "evaluate",
            str(images),
            "--device",
            "cpu",
            "--out",
            str(out),
            "--models",
            timms,
            named,
        ]
        ran = succeed(*command, "--class-order", f"{timms}=timm")
        sentences = (
            "Outputs of timms matched by position, in timm's order of the class names (as"
            " --class-order says).",
            "Outputs of named matched by name: 4 of 4 classes.",
        )
        report = html.unescape((out / "report.html").read_text())
        for sentence in sentences:
            assert sentence in ran.output.splitlines() and sentence in report
        document = json.loads((out / "results.json").read_text())
        assert [model["matched"] for model in document["models"]] == [
            sentences[0].removeprefix("Outputs of timms matched ").removesuffix("."), "by name: 4"
                " of 4 classes",
        ]  # fmt: skip

    def test_models_that_are_matched_alike_share_a_sentence(
        self, dataset: Path, tmp_path: Path
    ) -> None:
        models = [save_trained(tmp_path / name, NAMES, NAMES) for name in ("one", "two")]
        result = measured(dataset, models)  # type: ignore[arg-type]
        assert "Outputs matched by position, in the dataset's order of labels." in model_sentences(
            result.results
        )

    def test_results_that_do_not_say_it_are_still_read(self, tmp_path: Path) -> None:
        images = save_folders(tmp_path / "images", NAMES)
        result = measured(images, save_trained(tmp_path / "model", NAMES, sorted(NAMES)))
        document = result.results.to_json()
        for name in ("matched", "likely_order"):
            del document["models"][0][name]
        (before,) = results_from(json.dumps(document), "results.json").models
        assert before == replace(result.models[0], matched="", chance=before.chance)

    def test_an_order_that_cannot_be_used_is_refused(self, tmp_path: Path) -> None:
        images = save_folders(tmp_path / "images", NAMES)
        model = save_trained(tmp_path / "model", NAMES, sorted(NAMES))
        (tmp_path / "gap.txt").write_text("blue\n\nred\n")
        (tmp_path / "short.txt").write_text("blue\ngreen\n")
        (tmp_path / "other.txt").write_text("blue\ngreen\npurple\n")
        for order, says in (
            (tmp_path / "gap.txt", "line 2 of .* is empty.* .class-order"),
            (tmp_path / "short.txt", "has 3 outputs, and class order lists 2 names"),
            (tmp_path / "other.txt", "1 of 3 classes have no output of their name"),
            ("tim", "there is no file .*tim"),
            (["blue", 3, "red"], "expected the names of classes"),
            ({"modle": "timm"}, "'modle' is not one of the models .unlisted-model"),
        ):
            with pytest.raises(UserError, match=says):
                measured(images, model, class_order=order)

    def test_files_of_predictions_bring_their_names(self, tmp_path: Path) -> None:
        images = save_folders(tmp_path / "images", ("2", "10"))
        paths = [path.relative_to(images) for path in sorted(images.rglob("*.png"))]
        answers = tmp_path / "answers.csv"
        answers.write_text(
            "path,label\n" + "".join(f"{path},{path.parent.name}\n" for path in paths)
        )
        name = f"predictions:{answers}"
        result = measured(images, name, class_order="timm")
        assert top1(result).value == 1.0 and result.models[0].matched == "by name: 2 of 2 classes"
        with refuses("class-order", "class_order", name):
            measured(images, name, class_order={name: "timm"})
