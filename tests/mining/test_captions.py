"""Caption grammars: read, refused, filled, bundled; gathered over classes; and in plain words."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.lab.vocabulary import (
    BACKGROUNDS,
    COLOURS,
    COMPANIONS,
    LIGHTS,
    PATTERNS,
    WEATHERS,
)
from counterfoil.mining.captions import (
    MOST_CAPTIONS,
    CaptionGrammar,
    CaptionNoun,
    ClassCaptions,
    gather_captions,
    words_of,
)
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.directions import grammar_captions
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.layering import bundled_folder, bundled_recipes
from counterfoil.recipe.loader import with_classes
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.recipe.schema_inputs import ClassEntry
from counterfoil.recipe.schema_mine import DirectionsSettings, Mine
from counterfoil.recipe.strict_yaml import dump_yaml
from lab_training.captions import caption_of
from support.refusals import problems_of

DOG = RecipeClass("d", "dog", 0, 0, (), parent="domestic animal", category="canine")
TEMPLATE = "a photo of a {adjective} {noun} {preposition}"
Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(text: str, name: str = "own.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def captions_of(grammar: CaptionGrammar, cls: RecipeClass, noun: CaptionNoun) -> ClassCaptions:
    captions = grammar.captions_or_misfits(cls, noun)
    if isinstance(captions, ClassCaptions):
        return captions
    problems = [f"captions: class '{cls.name}' {reason}" for reason, _ in captions]
    raise UserError(problems, " ".join(dict.fromkeys(advice for _, advice in captions)))


def test_every_combination_is_a_caption_and_an_empty_part_leaves_no_space(written: Written) -> None:
    path = written(f"""
templates: ["{TEMPLATE}", "{{noun}} and a flower"]
adjectives: [null, white]
prepositions: [null, outside]
by_name:
  canine: {{prepositions: [in the snow]}}
  dog: {{adjectives: [happy], captions: ["a dog of the kind {{category}} ({{parent}})"]}}
  cat: {{adjectives: [sly]}}
""")
    captions = captions_of(CaptionGrammar.load(path), DOG, "class")
    assert captions.reference == "a photo of a dog"
    expected = {
        " ".join(word for word in ("a photo of a", adjective, "dog", preposition) if word)
        for adjective, preposition in product(
            (None, "white", "happy"), (None, "outside", "in the snow")
        )
    }
    expected |= {"dog and a flower", "a dog of the kind canine (domestic animal)"}
    assert set(captions.texts) == expected - {captions.reference}
    assert len(captions.texts) == len(set(captions.texts))


def test_the_noun_is_the_name_the_category_or_each_hyponym(written: Written) -> None:
    text = "captions: ['a {noun} outside', '{class}: {noun}']\nhyponyms: {dog: [dog, red setter]}\n"
    grammar = CaptionGrammar.load(written(text))
    by_noun = {noun: captions_of(grammar, DOG, noun) for noun in ("class", "category", "hyponyms")}
    assert by_noun["class"].texts == ("a dog outside", "dog: dog")
    assert by_noun["category"].texts == ("a canine outside", "dog: canine")
    assert by_noun["hyponyms"].texts == (
        "a dog outside",
        "a red setter outside",
        "dog: dog",
        "dog: red setter",
    )
    assert {noun: captions.reference for noun, captions in by_noun.items()} == {
        "class": "a photo of a dog",
        "category": "a photo of a canine",
        "hyponyms": "a photo of a dog",
    }


def test_a_name_is_never_read_as_a_template(written: Written) -> None:
    odd = RecipeClass("o", "{noun} {x}", 0, 0, ())
    assert captions_of(
        CaptionGrammar.load(written("captions: ['a {noun} outside']")), odd, "class"
    ).texts == ("a {noun} {x} outside",)


def test_what_is_said_of_a_name_goes_before_what_is_said_of_a_category(written: Written) -> None:
    path = written("""
captions: [outside]
by_name:
  dog: {reference: a hound}
  canine: {reference: a beast}
""")
    assert captions_of(CaptionGrammar.load(path), DOG, "class").reference == "a hound"


def test_lists_in_yaml_and_text_are_captions_of_all_classes(written: Written) -> None:
    in_yaml = CaptionGrammar.load(written("- a {noun} in the snow\n- a  picture of nothing\n"))
    in_text = CaptionGrammar.load(
        written("# mine\n\na {noun} in the snow\r\n  a picture of  nothing \n", "own.txt")
    )
    for grammar in (in_yaml, in_text):
        assert captions_of(grammar, DOG, "class").texts == (
            "a dog in the snow",
            "a picture of nothing",
        )
    assert captions_of(
        CaptionGrammar.load(str(written("- a {noun} in the snow\n"))), DOG, "class"
    ).texts == ("a dog in the snow",)


MISTAKES = {
    "adjectivs: [red]\ncaptions: ['a {noun}']": "adjectivs (own.yaml:1): unknown key; did you mean"
    " 'adjectives'?",
    "captions: ['a {noun}']\nby_name: {dog: {adjectifs: [a]}}": "by_name.dog.adjectifs"
    " (own.yaml:2): unknown key",
    "templates: [a photo]": "templates[0] (own.yaml:1): found 'a photo', expected it to contain"
    " '{noun}' or '{class}'",
    "templates:\n- a {noun}\n- a {nuon}": "templates[1] (own.yaml:3): unknown placeholder '{nuon}'",
    "captions:\n- a {noun}\n- a {adjective} {noun}": "captions[1] (own.yaml:3): unknown placeholder"
    " '{adjective}'",
    "captions:\n- a {noun": "found an unmatched brace in 'a {noun'",
    "captions: ['a {noun}']\nreference: a {thing}": "reference (own.yaml:2): unknown placeholder"
    " '{thing}'",
    "captions: ['']": "captions[0] (own.yaml:1): found empty text",
    "captions: [5]": "captions[0] (own.yaml:1): found the number 5, expected text; put it in quotes",
    "captions: [null]": "captions[0] (own.yaml:1): found null, expected text",
    "captions: a dog": "captions (own.yaml:1): found 'a dog', expected a list",
    'captions: ["a \\0 {noun}"]': "expected printable text",
    f"captions: [{'long ' * 101}]": "characters, expected at most 500",
    "templates: ['{adjective} {noun}']\nadjectives: [red, red]": "adjectives[1] (own.yaml:2): found"
    " 'red' again",
    "templates: ['{adjective} {noun}']\nadjectives: ['{noun}']": "adjectives[0] (own.yaml:2):"
    " unknown placeholder",
    "templates: ['{noun}']\nadjectives: [red]": "adjectives (own.yaml:2): no template uses"
    " '{adjective}'",
    "templates: ['{noun}']\nby_name:\n  dog: {prepositions: [up]}": "by_name.dog.prepositions"
    " (own.yaml:3): no",
    "captions: ['a {noun}']\ncovers: [dog]\nby_name: {dgo: {captions: [x]}}": "expected a name of"
    " `covers`; did you",
    "captions: ['a {noun}']\nhyponyms: {dog: []}": "hyponyms.dog (own.yaml:2): found an empty list",
    "about: nothing": "found no captions, expected `templates` or `captions`",
    "5": "own.yaml: found neither keys nor a list, expected a caption grammar or a list of captions",
    "captions: [": "not valid YAML",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_with_its_place(
    text: str, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(text).parent)
    with pytest.raises(UserError) as caught:
        CaptionGrammar.load("./own.yaml")
    assert MISTAKES[text] in str(caught.value)


def test_mistakes_are_told_together_in_the_order_of_their_lines(written: Written) -> None:
    path = written("colors: [red]\ntemplates: [a photo]\ncaptions: [5]\nreference: ''\n")
    problems = problems_of(CaptionGrammar.load, path)
    lines = [int(re.findall(r"own\.yaml:(\d+)", problem)[0]) for problem in problems]
    assert lines == [1, 2, 3, 4]


def test_in_a_text_file_too_the_line_is_told(written: Written) -> None:
    with pytest.raises(
        UserError,
        match=r"captions\[1\] \(.*own\.txt:4\): unknown placeholder '\{nuon\}'.*mean 'noun'",
    ):
        CaptionGrammar.load(written("# one\na {noun}\n\na {nuon}\n", "own.txt"))
    with pytest.raises(UserError, match="found no captions"):
        CaptionGrammar.load(written("# nothing\n", "own.txt"))


def test_names_and_files_that_there_are_not(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="there are no bundled captions named 'imagenett'; did you mean 'imagenet'"
    ) as caught:
        CaptionGrammar.load("imagenett")
    assert caught.value.hint == (
        "Bundled captions: any, cifar, imagenet, wardrobe. A file is named by its path, as in"
        " ./imagenett.yaml."
    )
    with pytest.raises(UserError, match="cannot be read: No such file"):
        CaptionGrammar.load(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="is a folder"):
        CaptionGrammar.load(tmp_path)


def test_what_a_class_lacks_is_told_with_what_to_do(written: Written) -> None:
    bare = RecipeClass("b", "bear", 0, 0, ())
    grammar = CaptionGrammar.load(
        written("captions: ['a {noun}, a {parent}']\nhyponyms: {beer: [ale]}")
    )
    with pytest.raises(UserError) as caught:
        captions_of(grammar, bare, "hyponyms")
    assert caught.value.problems == (
        "captions: class 'bear' has no hyponyms; did you mean 'beer'?",
        "captions: class 'bear' has no parent",
    )
    assert caught.value.hint is not None
    assert "{parent}" in caught.value.hint
    with pytest.raises(UserError, match="class 'bear' has no category"):
        captions_of(CaptionGrammar.load("imagenet"), bare, "category")


def test_a_class_with_its_reference_alone_has_no_captions(written: Written) -> None:
    grammar = CaptionGrammar.load(written("captions: ['a photo of a {noun}']"))
    with pytest.raises(
        UserError, match="class 'dog' has no caption other than its reference 'a photo of a dog'"
    ):
        captions_of(grammar, DOG, "class")


def test_too_many_captions_of_a_class_are_refused_before_they_are_made(written: Written) -> None:
    words = ", ".join(f"w{number}" for number in range(1000))
    grammar = CaptionGrammar.load(
        written(f"templates: ['{TEMPLATE}']\nadjectives: [{words}]\nprepositions: [{words}]")
    )
    with pytest.raises(
        UserError, match=f"class 'dog' has 1,000,000 captions, expected at most {MOST_CAPTIONS:,}"
    ):
        captions_of(grammar, DOG, "class")


WORDS = st.lists(
    st.sampled_from([None, "red", "far  away", " in a\ttank", "x"]),
    min_size=1,
    max_size=4,
    unique=True,
)
TEMPLATES = st.permutations(["{adjective}", "{noun}", "{preposition}", " ", "of", "\t"]).map(
    " ".join
)


@given(WORDS, WORDS, st.lists(TEMPLATES, min_size=1, max_size=3))
def test_no_caption_is_empty_or_has_a_space_too_many(
    adjectives: list, prepositions: list, templates: list
) -> None:
    raw = {
        "templates": tuple(templates),
        "adjectives": tuple(adjectives),
        "prepositions": tuple(prepositions),
    }
    grammar = CaptionGrammar.model_validate({**raw, "reference": "{class}"}, strict=True)
    captions = captions_of(grammar, RecipeClass("0", " red  fox ", 0, 0, ()), "class")
    for text in (captions.reference, *captions.texts):
        assert text
        assert text == " ".join(text.split())
        assert "red fox" in text
    distinct = len({" ".join(word.split()) if word else None for word in adjectives})
    assert len(captions.texts) == len(set(captions.texts)) >= distinct - 1


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["", "a {noun}", "{", "{adjective}", "red"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["dog", "captions"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*CaptionGrammar.model_fields, "colours"]), ODD, max_size=4))
def test_nothing_odd_ends_in_anything_but_a_grammar_or_words(raw: dict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "odd.yaml"
        path.write_text(dump_yaml(raw), encoding="utf-8")
        try:
            captions = captions_of(CaptionGrammar.load(path), DOG, "class")
        except UserError as error:
            assert all(error.problems)
        else:
            assert captions.texts


# Jain 2023, C.1.2.
CIFAR_PREPOSITIONS = {
    "dog": 4, "cat": 4, "bird": 4, "horse": 2, "airplane": 4, "truck": 2, "automobile": 2, "deer": 4, "ship": 4,
    "frog": 2,
}  # fmt: skip


def classes_called(*names: str) -> tuple[RecipeClass, ...]:
    return tuple(
        RecipeClass(f"{label:02d}", name, label, label, ()) for label, name in enumerate(names)
    )


@pytest.fixture(scope="module")
def imagenet() -> tuple[RecipeClass, ...]:
    return load_recipe("imagenet-star").classes


def test_a_thousand_imagenet_classes_share_about_five_thousand_captions(
    imagenet: tuple[RecipeClass, ...],
) -> None:
    texts, references, candidates = gather_captions(
        CaptionGrammar.load("imagenet"), imagenet, "category"
    )
    # 13 adjectives, 8 prepositions, and those that belong to one of 37 categories (Jain 2023, C.2).
    assert len(texts) == len(set(texts)) == 5278
    assert len({texts[row] for row in references}) == 37
    by_category = {
        str(cls.category): len(rows) for cls, rows in zip(imagenet, candidates, strict=True)
    }
    of_category = {
        "bird": 6,
        "canine": 5,
        "food": 4,
        "vessel": 3,
        "bus": 2,
        "furniture": 1,
        "entity": 0,
    }
    for category, prepositions in of_category.items():
        assert by_category[category] == 13 * (8 + prepositions) - 1
    assert "a photo of a white canine outside" in texts  # figure 10a, as are the next two
    assert "a photo of a close-up fish" in texts
    assert "a photo of a orange fish with a person" in texts
    assert not [text for text in texts if "one the" in text]  # a slip in the paper's list


def test_any_classes_have_captions_where_a_recipe_names_none(
    imagenet: tuple[RecipeClass, ...],
) -> None:
    """Check classes with odd names, and that captions of a thousand classes are few enough to
    encode."""
    odd = classes_called("IMG {x}", "Ärztin", "n01440764", "a")
    gathered, (note,) = grammar_captions(
        MiningRun(replace_classes(odd), Mine(), DirectionsSettings(), "", (), Path())
    )
    texts, references, candidates = gathered
    assert [texts[row] for row in references] == [f"a photo of a {cls.name}" for cls in odd]
    by_class = [{texts[row] for row in rows} for rows in candidates]
    assert len({len(captions) for captions in by_class}) == 1
    assert len(by_class[0]) > 60
    wanted = ("in the snow", "at night", "in the fog", "from above", "in a drawing")
    assert {f"a photo of a Ärztin {words}" for words in wanted} | {
        "a photo of a red Ärztin"
    } <= by_class[1]
    assert "grammar 'any'" in note and all(
        name in note for name in ("cifar", "imagenet", "wardrobe")
    )
    assert len(gather_captions(CaptionGrammar.load("any"), imagenet, "class")[0]) < 80_000


def replace_classes(classes: tuple[RecipeClass, ...]) -> Recipe:
    entries = [ClassEntry(id=cls.id, name=cls.name, source_label=cls.label) for cls in classes]
    return with_classes(load_recipe("wardrobe-corrupt"), entries)


def test_cifar_has_the_papers_words_and_in_its_extended_form_nouns_below_each_class() -> None:
    grammar = CaptionGrammar.load("cifar")
    classes = classes_called(*CIFAR_PREPOSITIONS)
    for cls in classes:
        simple = 9 * (7 + CIFAR_PREPOSITIONS[cls.name])
        assert len(captions_of(grammar, cls, "class").texts) == simple - 1
        nouns = grammar.hyponyms[cls.name]
        assert len(nouns) == len(set(nouns)) <= 160
        extended = captions_of(grammar, cls, "hyponyms")
        assert extended.reference == f"a photo of a {cls.name}"
        # Nearly all combinations: some are the reference, and "red" and "jungle fowl" make another
        # noun of the list.
        assert simple * len(nouns) >= len(extended.texts) > 0.99 * simple * len(nouns)
    (cat, deer) = (cls for cls in classes if cls.name in ("cat", "deer"))
    assert (
        "a photo of a white Persian cat on the grass" in captions_of(grammar, cat, "hyponyms").texts
    )
    assert "a photo of a kob inside" in captions_of(grammar, deer, "hyponyms").texts  # the paper's
    text = (bundled_folder() / "captions" / "cifar.yaml").read_text(encoding="utf-8")
    assert "# WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved.\n" in text


def captions_of_the_world(name: str) -> set[str]:
    """Return the lab's own captions of a class: a look with a place, weather or light; or a
    companion."""
    looks = [
        {},
        *({"colour": colour} for colour in COLOURS),
        *({"pattern": p} for p in PATTERNS if p != "plain"),
    ]
    around = [{}, *({"background": background} for background in BACKGROUNDS)]
    around += [{"weather": weather} for weather in WEATHERS if weather != "clear"]
    around += [{"light": light} for light in LIGHTS if light != "day"]
    claims = [look | context for look, context in product(looks, around)]
    claims += [{"companion": companion} for companion in COMPANIONS if companion != "none"]
    return {caption_of({"style": "photo", "class": name} | claim) for claim in claims}


@pytest.mark.parametrize("name", ["trouser", "ankle boot"])
def test_the_wardrobes_captions_are_the_worlds_own_to_the_word(name: str) -> None:
    (cls,) = classes_called(name)
    captions = captions_of(CaptionGrammar.load("wardrobe"), cls, "class")
    assert captions.reference == f"a photo of a {name}"
    assert {captions.reference, *captions.texts} == captions_of_the_world(name)
    assert len(captions.texts) == 12 * 17 + 2 - 1


def test_a_merged_class_is_called_by_each_of_its_garments() -> None:
    (merged,) = classes_called("t-shirt or dress")
    captions = captions_of(CaptionGrammar.load("wardrobe"), merged, "hyponyms")
    assert set(captions.texts) == captions_of_the_world("t-shirt") | captions_of_the_world("dress")
    assert captions.reference not in captions.texts


def test_caption_grammars_are_no_recipes() -> None:
    files = {path.stem for path in (bundled_folder() / "captions").iterdir()}
    assert files == {"any", "cifar", "imagenet", "wardrobe"}
    assert not files & set(bundled_recipes())


NAMES = st.sampled_from(["dog", "puppy", "cat", "crane", "red fox"])
SEVERAL = st.lists(st.tuples(NAMES, st.sampled_from(["canine", "bird"])), min_size=1, max_size=8)


def grammar_of(**keys: object) -> CaptionGrammar:
    return CaptionGrammar.model_validate(keys, strict=True)


def classes_of(*about: tuple[str, str | None]) -> list[RecipeClass]:
    return [
        RecipeClass(str(n), name, n, n, (), category=category)
        for n, (name, category) in enumerate(about)
    ]


@given(SEVERAL, st.sampled_from(["class", "category", "hyponyms"]))
def test_each_text_stands_once_and_each_class_has_its_own(about: list, noun: CaptionNoun) -> None:
    # "puppy" is a class of its own and a hyponym of another: reference of one, candidate of the
    # other.
    grammar = grammar_of(
        templates=("a photo of a {adjective} {noun}",),
        adjectives=(None, "white"),
        captions=("a photo of snow",),
        covers=("canine",),
        by_name={"canine": {"captions": ("{noun} outside",)}},
        hyponyms={
            name: (name, "puppy", "kit") if name == "dog" else (name, "kit") for name, _ in about
        },
    )
    classes = classes_of(*about)
    texts, references, candidates = gather_captions(grammar, classes, noun)
    assert len(set(texts)) == len(texts)
    assert {*references, *(int(row) for candidate in candidates for row in candidate)} == set(
        range(len(texts))
    )
    for cls, reference, rows in zip(classes, references, candidates, strict=True):
        alone = captions_of(grammar, cls, noun)
        assert texts[reference] == alone.reference
        assert rows.dtype.name == "int64"
        assert tuple(texts[row] for row in rows) == alone.texts


def test_classes_that_lack_the_same_are_told_in_one_line() -> None:
    grammar = grammar_of(captions=("a {noun} outside",))
    classes = classes_of(*((f"class {number}", None) for number in range(7)), ("dog", "canine"))
    with pytest.raises(UserError) as caught:
        gather_captions(grammar, classes, "category")
    named = ", ".join(f"'class {number}'" for number in range(5))
    assert caught.value.problems == (
        f"captions: each of 7 classes ({named} and 2 more) has no category",
    )
    assert caught.value.hint == "Give it a `category` in the recipe, or set noun: class."


def test_every_name_that_is_of_no_class_is_told() -> None:
    grammar = grammar_of(
        captions=("a {noun} outside",), by_name={"dgo": {}, "canine": {}, "cta": {}}
    )
    with pytest.raises(UserError) as caught:
        gather_captions(grammar, classes_of(("dog", "canine"), ("cat", None)), "category")
    assert caught.value.problems == (
        "captions: by_name.dgo: expected the name or category of a class of the recipe; did you"
        " mean 'dog'?",
        "captions: by_name.cta: expected the name or category of a class of the recipe; did you"
        " mean 'cat'?",
        "captions: class 'cat' has no category",
    )


def test_a_grammar_for_more_classes_than_a_recipe_has_says_so() -> None:
    keys = {"captions": ("a {noun} outside",), "by_name": {"cat": {"captions": ("a tabby",)}}}
    with pytest.raises(UserError, match=r"by_name\.cat"):
        gather_captions(grammar_of(**keys), classes_of(("dog", None)), "class")
    texts, _, _ = gather_captions(
        grammar_of(**keys, covers=("dog", "cat")), classes_of(("dog", None)), "class"
    )
    assert texts == ("a photo of a dog", "a dog outside")


def test_many_problems_are_cut_with_their_number() -> None:
    grammar = grammar_of(
        captions=("a {noun}",), by_name={f"none {number}": {} for number in range(25)}
    )
    with pytest.raises(UserError) as caught:
        gather_captions(grammar, classes_of(("dog", None)), "class")
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == "… and 5 more"


def test_more_captions_in_all_than_can_be_encoded_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("counterfoil.mining.captions.MOST_TEXTS", 10)
    grammar = grammar_of(templates=("a {adjective} {noun}",), adjectives=("red", "blue", "green"))
    assert len(gather_captions(grammar, classes_of(("dog", None), ("cat", None)), "class")[0]) == 8
    with pytest.raises(UserError, match="more than 10 in total, reached at class 'hen', 3 of 4"):
        gather_captions(
            grammar, classes_of(("dog", None), ("cat", None), ("hen", None), ("cow", None)), "class"
        )


# Class name, caption, reference: the words of the set like it, the words of the set unlike it.
SAID = [
    ("coat", "a photo of a checked coat", "a photo of a coat", "checked coat", "coat, not checked"),
    (
        "sandal", "a photo of a sandal on the beach", "a photo of a sandal",
        "sandal on the beach", "sandal not on the beach",
    ),
    (
        "sandal", "a photo of a orange sandal on the beach", "a photo of a sandal",
        "orange sandal on the beach", "sandal, not an orange one on the beach",
    ),
    (
        "sandal", "a photo of a person and a sandal", "a photo of a sandal",
        "sandal with a person", "sandal without a person",
    ),
    (
        "sandal", "a photo of a sandal and a flower", "a photo of a sandal",
        "sandal with a flower", "sandal without a flower",
    ),
    (
        "red wolf", "a photo of a white canine outside", "a photo of a canine",
        "white red wolf outside", "red wolf, not a white one outside",
    ),
    (
        "tench", "a photo of a fish with a person", "a photo of a fish",
        "tench with a person", "tench without a person",
    ),
    (
        "tench", "a photo of a group of fish in a tank", "a photo of a fish",
        "group of tench in a tank", "tench, not a group of tench in a tank",
    ),
    ("deer", "a photo of a kob", "a photo of a deer", "kob (deer)", "deer, not a kob"),
    ("cat", "a photo of a Persian cat", "a photo of a cat", "Persian cat", "cat, not Persian"),
    ("shirt", "a photo of a t-shirt", "a photo of a shirt", "t-shirt (shirt)", "shirt, not a"
        " t-shirt"),
    (
        "t-shirt or coat", "a photo of a coat", "a photo of a t-shirt and a coat",
        "coat (t-shirt or coat)", "t-shirt or coat, not a coat",
    ),
    ("coat", "a photo of a coat in snow", "a photo", "coat in snow", "coat not in snow"),
    ("coat", "a photo of a coat", "a photo of a coat", "coat", "coat"),
    ("ankle boot", "an Ankle Boot at dusk", "an ankle boot", "ankle boot at dusk", "ankle boot not"
        " at dusk"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "caption", "reference", "hard", "far_from"), SAID)
def test_sets_are_named_as_people_would(
    name: str, caption: str, reference: str, hard: str, far_from: str
) -> None:
    assert words_of(name, caption, reference, "hard") == hard
    assert words_of(name, caption, reference, "far_from") == far_from


@pytest.mark.parametrize(("grammar", "name", "category", "noun"), [
    ("wardrobe", "coat", None, "class"), ("wardrobe", "ankle boot", None, "class"),
    ("wardrobe", "t-shirt or dress", None, "hyponyms"), ("imagenet", "red wolf", "canine", "category"),
    ("imagenet", "fire engine", "wheeled vehicle", "category"), ("cifar", "cat", None, "hyponyms"),
])  # fmt: skip
def test_two_captions_of_a_class_never_have_the_same_words(
    grammar: str, name: str, category: str | None, noun: CaptionNoun
) -> None:
    captions = captions_of(
        CaptionGrammar.load(grammar), RecipeClass("0", name, 0, 0, (), category=category), noun
    )
    for role in ("hard", "far_from"):
        words = [words_of(name, text, captions.reference, role) for text in captions.texts]
        assert len(set(words)) == len(words)
        assert name not in words
        assert all(name in word and word == " ".join(word.split()) for word in words)
