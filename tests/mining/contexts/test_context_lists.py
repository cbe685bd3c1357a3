"""Lists of contexts: the bundled ones, those of people, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.lab.scenes import caption_of
from counterfoil.lab.vocabulary import BACKGROUNDS, COLOURS, PATTERNS
from counterfoil.mining.contexts import load_contexts, proposed_contexts, same_words
from counterfoil.recipe import load_recipe
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.recipe.schema_mine import ContextsSettings

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def called(name: str, category: str | None = None) -> RecipeClass:
    return RecipeClass("00", name, 0, 0, (), category=category)


def written(folder: Path, text: str, name: str = "contexts.yaml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def proposed(recipe: str, **settings: object):
    chosen = ContextsSettings.model_validate(settings)
    return proposed_contexts(load_recipe(recipe), chosen, Path("nowhere"), "cpu")


@pytest.mark.parametrize("name", ["wardrobe", "wardrobe-colours", "cifar10", "cifar100", "imagenet"])
def test_bundled_lists_give_each_class_eight_to_twenty_contexts_that_differ(name: str) -> None:
    found = load_contexts(name)
    for own in (found.contexts, *found.by_name.values()):
        assert not own or 8 <= len(own) <= 20
        assert len({same_words(text) for text in own}) == len(own)
    assert set(found.covers) == set(found.by_name)


def test_bundled_lists_know_every_class_of_their_dataset() -> None:
    imagenet = load_recipe("imagenet-star").classes
    for name, classes in (("cifar10", list(map(called, CIFAR10))), ("imagenet", list(imagenet))):
        assert all(load_contexts(name).of(cls) for cls in classes)
    by_name = load_contexts("cifar100").by_name
    assert by_name["palm_tree"] == by_name["palm tree"] == by_name["trees"]
    assert len([name for name in by_name if "_" not in name]) == 120  # 100 classes and 20 superclasses


def test_the_wardrobes_contexts_are_words_that_its_clip_has_read() -> None:
    places = proposed("wardrobe-star", contexts="wardrobe").by_label[9]
    settings = ContextsSettings(contexts="wardrobe")
    expected = [caption_of({"style": "photo", "class": "ankle boot", "background": place}) for place in BACKGROUNDS]
    assert [settings.caption("ankle boot", place) for place in places] == expected
    colours = ContextsSettings(contexts="wardrobe-colours", axis="colour")
    words = proposed("wardrobe-star", contexts="wardrobe-colours", axis="colour").by_label[9]
    expected = [caption_of({"style": "photo", "class": "ankle boot", "colour": one}) for one in COLOURS]
    expected += [caption_of({"style": "photo", "class": "ankle boot", "pattern": one}) for one in PATTERNS[1:]]
    assert [colours.caption("ankle boot", word) for word in words] == expected


def test_a_class_has_the_contexts_of_all_of_its_category_and_its_own_each_once(tmp_path: Path) -> None:
    path = written(
        tmp_path, "contexts: [in the snow, in fog]\nby_name:\n  pet: [on a sofa]\n  cat: [In Snow, in a box]\n"
    )
    found = load_contexts(path)
    assert found.of(called("cat", "pet")) == ("in the snow", "in fog", "on a sofa", "In Snow", "in a box")
    assert found.of(called("dog")) == ("in the snow", "in fog")
    with_bag = written(tmp_path, "contexts: [in the snow, in fog]\nby_name: {bag: [in snow, in a box]}\n")
    result = proposed("wardrobe-mini", contexts=str(with_bag))
    assert result.by_label[8] == ("in the snow", "in fog", "in a box")
    assert result.sources[8] == ("list",) * 3 and result.by_label[0] == ("in the snow", "in fog")


@pytest.mark.parametrize(
    ("name", "text"), [("a.yaml", "- in fog\n- at sea\n"), ("a.txt", "# mine\nin fog\n\nat sea\n")]
)
def test_a_plain_list_is_of_all_classes(tmp_path: Path, name: str, text: str) -> None:
    assert load_contexts(written(tmp_path, text, name)).contexts == ("in fog", "at sea")


def test_what_is_wrong_with_a_list_is_told_together_with_its_lines(tmp_path: Path) -> None:
    text = "contexts:\n  - in fog\n  - ''\n  - 3\n  - 'in {class}'\n  - '!!!'\nby_name: {cat: []}\nmore: 1\n"
    with pytest.raises(UserError) as told:
        load_contexts(written(tmp_path, text))
    lines = [problem.rpartition("contexts.yaml:")[2].partition(")")[0] for problem in told.value.problems]
    assert lines == ["3", "4", "5", "6", "7", "8"], told.value.problems


@pytest.mark.parametrize("text", [
    "contexts: [" + "x" * 201 + "]", "contexts:\n" + "  - in fog\n" * 2001, "contexts: []", "3", "",
    'contexts: ["in\\u0007fog"]', 'contexts: ["two\\nlines"]', "by_name: {cat: {}}", "- [in fog]",
    "covers: [dog]\nby_name: {cat: [in fog]}", "a: &a [x, *a]", "contexts: !!python/object/apply:os.getcwd []",
    "contexts: [in fog]\ncontexts: [at sea]",
])  # fmt: skip
def test_hostile_and_odd_files_are_refused_in_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError):
        load_contexts(written(tmp_path, text))


def test_a_name_of_no_class_another_axis_and_an_uncovered_class_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "axis: light\nby_name: {bags: [in fog]}\n")
    with pytest.raises(UserError) as told:
        proposed("wardrobe-mini", contexts=str(path))
    assert "--set mine.settings.axis=light" in told.value.problems[0]
    assert "did you mean 'bag'?" in told.value.problems[1]
    some = written(tmp_path, "by_name: {bag: [in fog]}\n")
    with pytest.raises(UserError, match=r"the list has none of 't-shirt', 'trouser'.* and 4 more"):
        proposed("wardrobe-mini", contexts=str(some))


def test_an_unknown_name_and_a_file_of_another_machine_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no bundled contexts are called 'cifar1O'; did you mean 'cifar10'"):
        load_contexts("cifar1O")
    with pytest.raises(UserError, match="of the machine that the dataset was built on"):
        load_contexts("elsewhere:./contexts.yaml")
