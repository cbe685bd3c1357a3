"""A model is scored against the right outputs, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timm.utils.misc import natural_key

from counterfoil.errors import UserError
from counterfoil.models.classifiers import ClassifierFacts
from counterfoil.models.score_scale import confidences
from counterfoil.prediction.class_map import ClassMap, Outputs, map_classes
from counterfoil.prediction.inference import answer_columns, torch_softmax
from counterfoil.recipe.prompts import RecipeClass
from support.refusals import refuses

softmax_of_logits = partial(confidences, scale="logits")


def facts(num_classes: int, labels: tuple[str, ...] | None = None) -> ClassifierFacts:
    return ClassifierFacts("m", "m", "resnet18", num_classes, labels)


def classes(*imagenet: tuple[int, ...], source: tuple[int, ...] = (0, 1, 2)) -> list[RecipeClass]:
    names = ("cat", "dog", "bird")
    indices = imagenet or ((), (), ())
    return [RecipeClass(f"c{i}", names[i], i, source[i], indices[i]) for i in range(len(indices))]


def test_imagenet_outputs_use_the_imagenet_indices() -> None:
    class_map = map_classes(classes((281, 282), (207,)), facts(1000))
    assert (class_map.outputs, class_map.targets, class_map.top_k) == (
        "imagenet",
        ((281, 282), (207,)),
        5,
    )


def test_source_labels_are_the_outputs_of_a_model_of_that_many() -> None:
    class_map = map_classes(classes(source=(2, 0, 1)), facts(3))
    assert (class_map.outputs, class_map.targets, class_map.top_k) == (
        "source labels",
        ((2,), (0,), (1,)),
        2,
    )


def test_a_model_of_the_source_dataset_is_scored_even_where_indices_are_listed() -> None:
    assert map_classes(classes((1,), (2,), (3,)), facts(3)).outputs == "source labels"


def test_named_outputs_prove_the_map_for_a_recipe_over_fewer_classes() -> None:
    names = ("cat", "dog", "Bird", "horse", "frog")
    assert map_classes(classes(), facts(5, names)).targets == ((0,), (1,), (2,))
    with pytest.raises(UserError, match="has 5 outputs, and the classes need 3"):
        map_classes(classes(), facts(5))


@pytest.mark.parametrize(
    ("number", "names", "imagenet", "problem", "hint"),
    [
        (
            1,
            ("cat", "dog"),
            (),
            "need 2, one for each source label: 0 cat, 1 dog",
            "[1 - p, p]",
        ),
        (
            1,
            ("cat", "dog", "owl"),
            (),
            "has 1 output, and the classes need 3",
            "an output for each class",
        ),
        (4, ("cat", "dog", "owl"), (), "has 4 outputs, and the classes need 3", "an empty folder"),
        (
            2,
            ("cat", "dog", "owl"),
            (),
            "has 2 outputs, and the classes need 3",
            "--class-order FILE",
        ),
        (
            1000,
            ("cat", "dog"),
            (),
            "has 1,000 outputs, and the classes need 2",
            "Add `imagenet: [indices]`",
        ),
        (
            4,
            ("cat", "dog"),
            ((281,), (207,)),
            "has 4 outputs, and the classes need 2",
            "`imagenet` indices need",
        ),
    ],
)
def test_another_number_of_outputs_is_refused_with_what_helps(
    number: int,
    names: tuple[str, ...],
    imagenet: tuple[tuple[int, ...], ...],
    problem: str,
    hint: str,
) -> None:
    given = [
        RecipeClass(f"c{label}", name, label, label, imagenet[label] if imagenet else ())
        for label, name in enumerate(names)
    ]
    with pytest.raises(UserError) as refused:
        map_classes(given, facts(number))
    assert problem in refused.value.problems[0]
    assert hint in (refused.value.hint or "")
    assert ("imagenet" in (refused.value.hint or "")) is ("imagenet" in hint)


@pytest.mark.parametrize(
    ("folders", "outputs"),
    [
        (("Café", "thé"), ("thé", "Café")),
        (("Café", "thé"), ("thé", "Café")),
        (("Caf\u00e9", "the\u0301"), ("th\u00e9", "Cafe\u0301")),
        (("Cafe\u0301", "CAFE\u0301"), ("CAF\u00c9", "Caf\u00e9")),
        (("-", "mug"), ("mug", "-")),
        (("-", "_"), ("_", "-")),
    ],
    ids=["composed", "as typed", "decomposed", "case decides", "a dash", "a dash and a line"],
)
def test_names_match_however_their_letters_are_composed(
    folders: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    given = [RecipeClass(f"c{label}", name, label, label, ()) for label, name in enumerate(folders)]
    assert map_classes(given, facts(2, outputs)).targets == ((1,), (0,))


@given(order=st.permutations(range(5)))
def test_named_outputs_are_found_in_any_order(order: list[int]) -> None:
    names = ["CAT", "dog", "horse, bird", "frog", "ship"]
    class_map = map_classes(classes(), facts(5, tuple(names[index] for index in order)))
    assert class_map.targets == tuple((order.index(index),) for index in range(3))
    assert class_map.outputs == (
        "source labels" if class_map.targets == ((0,), (1,), (2,)) else "names"
    )


def test_a_name_is_compared_without_case_and_separators_and_a_class_has_its_id_too() -> None:
    given = [
        RecipeClass("n02099601", "golden-retriever", 0, 0, ()),
        RecipeClass("01", "ankle_boot", 1, 1, ()),
    ]
    assert map_classes(given, facts(3, ("x", "Ankle Boot", "n02099601"))).targets == ((2,), (1,))
    assert map_classes(given, facts(3, ("ankle boot", "Golden Retriever", "y"))).targets == (
        (1,),
        (0,),
    )


def test_a_whole_name_comes_before_a_synonym_and_an_id_before_a_shared_name() -> None:
    swim = [RecipeClass("a", "maillot", 0, 0, ())]
    assert map_classes(swim, facts(2, ("maillot, tank suit", "maillot"))).targets == ((1,),)
    cranes = [RecipeClass("n1", "crane", 0, 0, ()), RecipeClass("n2", "crane", 1, 1, ())]
    assert map_classes(cranes, facts(3, ("n2", "x", "n1"))).targets == ((2,), (0,))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("cat", "dog", "bird", "Cat"), "'cat' is the name of the outputs 0, 3"),
        (("cat", "dog", "bird", "tabby, cat", "kitten, cat"), None),
        (("tabby, cat", "dog", "bird", "kitten, cat"), "'cat' is the name of the outputs 0, 3"),
        (
            ("cat, dog", "bird", "x"),
            "output 0, 'cat, dog', has the names of two classes: c0 and c1",
        ),
    ],
)
def test_a_name_of_two_outputs_or_classes_is_refused(
    names: tuple[str, ...], says: str | None
) -> None:
    if says is None:
        assert map_classes(classes(), facts(len(names), names)).targets == ((0,), (1,), (2,))
        return
    with refuses("unmatched-classes", None, says):
        map_classes(classes(), facts(len(names), names))


def test_classes_without_an_output_are_shown_beside_the_outputs_that_are_left() -> None:
    with pytest.raises(UserError) as refused:
        map_classes(classes(), facts(4, ("cat", "doge", "horse", "ship")))
    (problem,) = refused.value.problems
    assert problem.splitlines() == [
        "model 'm': 2 of 3 classes have no output of their name [unmatched-classes]",
        "  classes   | outputs that are left",
        "  dog (c1)  | doge  (nearest)",
        "  bird (c2) | horse",
        "            | ship",
    ]


def test_the_lists_are_short_however_many_there_are() -> None:
    many = [RecipeClass(f"i{i}", f"thing {i}", i, i, ()) for i in range(3000)]
    with pytest.raises(UserError) as refused:
        map_classes(many, facts(5000, (*(f"{'very ' * 50}{i}" for i in range(4999)), "thing 7")))
    (problem,) = refused.value.problems
    assert "2999 of 3000" in problem and "and 2,989 more" in problem and "and 4,989 more" in problem
    assert len(problem.splitlines()) <= 14 and len(problem) < 2000


def test_imagenet_outputs_in_another_order_are_found_by_name() -> None:
    given = classes((0,), (1,), (2,))
    usual = ("cat", "dog", "bird", *(f"thing {i}" for i in range(997)))
    assert map_classes(given, facts(1000, usual)).outputs == "imagenet"
    class_map = map_classes(given, facts(1000, usual[::-1]))
    assert (class_map.outputs, class_map.targets) == ("names", ((999,), (998,), (997,)))


def test_a_category_of_imagenet_keeps_its_indices_whatever_single_names_say() -> None:
    given = classes((281, 282), (207,), (10,))
    names = [f"thing {i}" for i in range(1000)]
    names[207] = "dog"
    names[10] = "bird"
    names[500] = "cat, tractor"
    assert map_classes(given, facts(1000, tuple(names))).targets == ((281, 282), (207,), (10,))


@pytest.mark.parametrize(
    "names", [("LABEL_0", "LABEL_1", "LABEL_2"), ("0", "1", "2"), ("class0", "class1", "class2")]
)
def test_names_that_nobody_gave_prove_nothing(names: tuple[str, ...]) -> None:
    assert map_classes(classes(), facts(3, names)).targets == ((0,), (1,), (2,))


def test_a_number_that_is_some_class_s_id_by_chance_proves_nothing_either() -> None:
    given = [RecipeClass(f"{i:02d}", f"thing {i}", i, i, ()) for i in range(12)]
    assert map_classes(given, facts(12, tuple(map(str, range(12))))).outputs == "source labels"
    given = [RecipeClass("n02", "cat", 0, 0, ()), RecipeClass("n09", "dog", 1, 1, ())]
    with pytest.raises(UserError, match="1 of 2 classes have no output"):
        map_classes(given, facts(2, ("n01", "n02")))


def test_names_of_other_things_are_refused_though_their_number_fits() -> None:
    with pytest.raises(UserError, match="3 of 3 classes have no output"):
        map_classes(classes(), facts(3, ("car", "ship", "plane")))


@pytest.mark.parametrize(
    "names", [("n01", "n02", "n03"), ("1", "2", "3"), ("class 1", "class 2", "class 3")]
)
def test_names_that_look_like_numbers_are_names(names: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="3 of 3 classes have no output"):
        map_classes(classes(), facts(3, names))
    numbered = [RecipeClass(f"c{i}", name, i, i, ()) for i, name in enumerate(names)]
    assert map_classes(numbered, facts(3, names[::-1])).targets == ((2,), (1,), (0,))


def test_numbers_are_names_where_one_of_them_is_a_class_s() -> None:
    folders = [RecipeClass(name, name, i, i, ()) for i, name in enumerate(("1", "2", "3"))]
    with pytest.raises(UserError, match="1 of 3 classes have no output of their name"):
        map_classes(folders, facts(3, ("0", "1", "2")))


def test_case_tells_classes_apart_where_nothing_else_does() -> None:
    given = [RecipeClass(name, name, i, i, ()) for i, name in enumerate(("Polish", "polish"))]
    assert map_classes(given, facts(2, ("polish", "Polish"))).targets == ((1,), (0,))


def test_timms_order_is_timms() -> None:
    rng = np.random.default_rng(0)
    outcomes: set[object] = set()
    for _ in range(300):
        letters = rng.choice(list("aB1_- 20é٣"), (6, 5))
        names = sorted({"".join(row[: rng.integers(1, 6)]) for row in letters.tolist()})
        given = [RecipeClass(str(i), name, i, i, ()) for i, name in enumerate(names)]
        timms = sorted(names, key=natural_key)
        if len({str(natural_key(name)) for name in names}) < len(names):
            with pytest.raises(UserError, match="timm's order of"):
                map_classes(given, facts(len(names)), "timm")
            outcomes.add("ties")
            continue
        assert [
            timms[output] for (output,) in map_classes(given, facts(len(names)), "timm").targets
        ] == names
        if timms == names:
            assert map_classes(given, facts(len(names))).targets == tuple(
                (i,) for i in range(len(names))
            )
        else:
            with pytest.raises(UserError, match="does not tell the names"):
                map_classes(given, facts(len(names)))
        outcomes.add(timms == names)
    assert outcomes == {"ties", True, False}


def test_a_space_in_a_recipe_is_the_underline_of_a_folder() -> None:
    folders = ["cup", "cup-small", "cup_big"]
    given = [
        RecipeClass(str(i), name.replace("_", " "), i, i, ()) for i, name in enumerate(folders)
    ]
    assert map_classes(given, facts(3), "timm").targets == ((0,), (1,), (2,))
    mixed = [
        RecipeClass(str(i), name.replace("_", " "), i, i, ())
        for i, name in enumerate(["Big_cup", "a_cup"])
    ]
    assert map_classes(mixed, facts(2), "timm").targets == ((1,), (0,))


# All class folders of the input dataset; those that a recipe or a split keeps; whether their order
# is clear.
LEFT_OUT = [
    (["1", "10", "2"], ["1", "2"], False),
    (["1", "10", "2"], ["2"], False),
    (["a", "b", "c"], ["a", "c"], True),
    (["Cherry", "apple", "banana"], ["apple", "banana"], False),
    (["a10", "a2", "b"], ["b"], False),
    (["cup", "mug", "plate", "spoon"], ["mug", "spoon"], True),
]


@pytest.mark.parametrize(("every", "kept", "clear"), LEFT_OUT)
def test_the_order_of_classes_is_that_of_all_folders_that_a_model_may_have_learned(
    every: list[str], kept: list[str], clear: bool
) -> None:
    timms = sorted(every, key=natural_key)
    assert (timms == sorted(every)) is clear
    given = [
        RecipeClass(name, name, label, every.index(name), ()) for label, name in enumerate(kept)
    ]
    model = facts(len(every))
    by_timm = map_classes(given, model, "timm", trained=every).targets
    assert by_timm == tuple((timms.index(name),) for name in kept)
    by_torchvision = tuple((every.index(name),) for name in kept)
    assert map_classes(given, model, "position", trained=every).targets == by_torchvision
    if clear:
        assert map_classes(given, model, trained=every).targets == by_torchvision == by_timm
    else:
        with pytest.raises(UserError, match="training programs sort these classes differently"):
            map_classes(given, model, trained=every)
    with pytest.raises(UserError, match="names of the other folders are not known"):
        map_classes(given, facts(max(cls.source_label for cls in given) + 1), trained=())
    with pytest.raises(UserError, match="one for each source label"):
        map_classes(given, facts(len(every) + 1), trained=every)


def test_outputs_of_fewer_classes_than_the_folder_has_are_not_matched_by_position() -> None:
    """Refuse a model of a, b, d, which has three outputs, for a recipe that keeps a and c, whose
    label is 2."""
    given = [
        RecipeClass(name, name, label, source, ())
        for label, (name, source) in enumerate((("a", 0), ("c", 2)))
    ]
    with pytest.raises(UserError, match="one for each source label"):
        map_classes(given, facts(3), trained=["a", "b", "c", "d"])


def test_where_a_recipe_leaves_classes_out_timms_order_is_not_known() -> None:
    given = [RecipeClass(str(i), name, i, i + 1, ()) for i, name in enumerate(("apple", "banana"))]
    assert map_classes(given, facts(3)).matched == "by position, in the dataset's order of labels"
    with pytest.raises(UserError, match="timm's order of 3 class folders is not known"):
        map_classes(given, facts(3), "timm")


@pytest.mark.parametrize(
    ("given", "outputs", "says"),
    [
        (classes(), 1000, "has 1,000 outputs, and the classes need 3"),
        (classes((1,), (), (3,)), 1000, "have no `imagenet` indices: c1"),
        (classes((1,), (2,), (1000,)), 1000, "outside 0 … 999: c2"),
        (classes((1,), (2,), (3,)), 21841, "need 3, one for each"),
    ],
)
def test_a_mismatch_says_what_is_missing(given: list[RecipeClass], outputs: int, says: str) -> None:
    with refuses("unmatched-classes", None, says):
        map_classes(given, facts(outputs))


@pytest.mark.parametrize("softmax", [softmax_of_logits, torch_softmax])
def test_judging_equals_loops_over_the_outputs(softmax: Callable[[np.ndarray], np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 12)).astype(np.float32)
    labels = rng.integers(0, 3, 50)
    targets = ((0, 7), (1,), (2, 3, 11))
    columns = answer_columns(logits, labels, ClassMap("imagenet", 12, targets), 7, softmax)
    for row in range(50):
        values = logits[row].tolist()
        order = sorted(range(12), key=lambda i: -values[i])
        right = targets[labels[row]]
        shares = np.exp(np.array(values, dtype=np.float64))
        shares /= shares.sum()
        assert columns["answers"][row].tolist() == order[:7]
        assert columns["shares"][row] == pytest.approx(shares[order[:7]], rel=1e-5)
        assert columns["correct"][row] == (order[0] in right)
        assert columns["correct_top_k"][row] == any(output in right for output in order[:5])
        assert columns["true_confidence"][row] == pytest.approx(
            sum(shares[output] for output in right), rel=1e-5
        )


def test_both_softmaxes_agree_and_leave_out_what_is_minus_infinity() -> None:
    logits = np.random.default_rng(0).normal(0, 30, (200, 50)).astype(np.float32)
    logits[::2, 7] = -np.inf
    np.testing.assert_allclose(
        softmax_of_logits(logits), torch_softmax(logits), rtol=1e-5, atol=1e-37
    )
    assert (
        softmax_of_logits(logits).dtype == np.float32
        and not softmax_of_logits(logits)[::2, 7].any()
    )


def test_both_ways_of_answering_equal_loops_over_their_outputs() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(60, 12)).astype(np.float32)
    labels = rng.integers(0, 3, 60)
    targets = ((0, 7), (1,), (2, 3, 11))
    class_outputs = (0, 1, 2, 3, 7, 11)
    by_way: dict[Outputs, dict[str, np.ndarray]] = {
        way: answer_columns(
            logits, labels, ClassMap("imagenet", 12, targets).answered_both_ways(way), 6
        )
        for way in ("all", "classes")
    }
    for row in range(60):
        values = logits[row].tolist()
        right = targets[labels[row]]
        order = sorted(class_outputs, key=lambda output: -values[output])
        shares = np.exp(np.array([values[output] for output in order]))
        over_all = int(np.argmax(values)) in right
        assert (
            by_way["all"]["correct"][row] == by_way["classes"]["correct_otherwise"][row] == over_all
        )
        assert (
            by_way["classes"]["correct"][row]
            == by_way["all"]["correct_otherwise"][row]
            == (order[0] in right)
        )
        assert by_way["classes"]["answers"][row].tolist() == order
        assert by_way["classes"]["shares"][row] == pytest.approx(shares / shares.sum(), rel=1e-5)
        assert by_way["classes"]["correct_top_k"][row] == any(
            output in right for output in order[:5]
        )
    assert not np.array_equal(by_way["all"]["correct"], by_way["classes"]["correct"])
    one_way = answer_columns(logits, labels, ClassMap("imagenet", 12, targets), 6)
    assert {name: by_way["all"][name].tolist() for name in one_way} == {
        k: v.tolist() for k, v in one_way.items()
    }


def test_there_are_two_ways_where_a_model_has_other_outputs_and_ranks_them() -> None:
    wide = ClassMap("names", 4, ((0,), (2,))).answered_both_ways("classes")
    assert (wide.class_outputs, wide.leads, wide.answering, wide.top_k) == ((0, 2), "classes", 2, 1)
    assert wide.chances.tolist() == [0.5, 0.5] and wide.answered_both_ways(
        "all"
    ).chances.tolist() == [0.25, 0.25]
    for class_map in (
        ClassMap("names", 2, ((0,), (1,))),  # no other output
        ClassMap("names", 4, ((1,),)),  # one class: its answer would always be right
        ClassMap("names", 4, ((0,), (2,)), most_ranked=1),  # labels of a file
    ):
        assert class_map.answered_both_ways("classes") == class_map


def test_of_equal_scores_the_first_output_is_the_answer() -> None:
    columns = answer_columns(
        np.array([[0.5, 1.0, 1.0, 0.5]], np.float32),
        np.array([0]),
        ClassMap("names", 4, ((1,),)),
        4,
    )
    assert columns["answers"].tolist() == [[1, 2, 0, 3]]
    assert columns["correct"].tolist() == [True]


def test_top_k_always_leaves_an_output_to_get_wrong() -> None:
    assert [ClassMap("source labels", n, ()).top_k for n in (1, 2, 3, 5, 6, 10, 1000)] == [
        1,
        1,
        2,
        4,
        5,
        5,
        5,
    ]
