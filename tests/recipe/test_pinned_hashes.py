"""Hashes of the bundled recipes do not change: a new key, at its default, must leave every
directory resumable.

A recipe that is changed on purpose changes its line here, and the changelog says so under **Other
bytes**.
"""

from __future__ import annotations

import pytest

from counterfoil.recipe import bundled_recipes, dump_recipe, load_recipe

# A recipe, and below it the hashes of its plan and of its screen.
_PINNED = """
aircraft-star
  9f9c26dfe667d0d5933d484b73701c92d45ec06941a7e09738531a1e5d400f39
  810c027f9595bb639787a10fdb93ffa95117167c00130499161597380fc94761
flux-schnell
  56d465131c644ec6c6878f7e8e166264a3eb55c40535c6a225f0b4ca5cf7f2cd
  61131c9763acc781db01b18244886d9b7c1e420aa4b939b0beb2155561ad20ee
imagenet-star
  1faf130cecb37f75098bd5b3443e75a75c8e4381cf3f53226d087fac5aa37575
  61131c9763acc781db01b18244886d9b7c1e420aa4b939b0beb2155561ad20ee
imagenet-bugs
  f1b886f1d9d034616c2270163646b201b98493bfbf52100ee18b9e4756d2e59e
  f78f3639498b5a3efb0592dd70a2a1e47bf3855ffa9a6abbf44c016d0f65bbec
imagenet-c-5k
  99abcf125d60bc99c2a71564e592e68404102abc759f42b3c5311f2a7fe2b99c
  4d523c60783d623fe80cd0a17757d06aa7e8c9c5371ebf102b856162dcb22989
imagenet-severity
  47f02a1ce18a167d0ff5ce04af0b70f416b148e696ce4de2f32a6a7627fd1d2d
  bef247747c8a38d5bdea67bfdf4792659a09a3b4dde9069ea7f5617493e94fca
pets-star
  a4d28441d0d37f769854f107b690619d7cc75864332f77cf070494404768a99a
  4169c526d120826183414386e07a90195e53e8d7e13ad10bee8647c274aa260a
pets-siglip2
  a4d28441d0d37f769854f107b690619d7cc75864332f77cf070494404768a99a
  8a86065c79927e80ea6eb056138d62916f02129e3e01b83f99478430678771fc
pets-pe-core
  a4d28441d0d37f769854f107b690619d7cc75864332f77cf070494404768a99a
  8178825a358d6f3fe01d1281e73be473b39e3aa461bcc9ead47a8d07923d1d83
sd35-medium
  a44c5847f06cf4fcbd54f673e33a021948d2637013e8cb7d2cbb0cad1ed1f896
  61131c9763acc781db01b18244886d9b7c1e420aa4b939b0beb2155561ad20ee
wardrobe-boxes
  f9198979cec12f2a7603aec534940b66a839eb930b8923a9b56bc9a5af24c50d
  2917a4386076c22d8dcd70ad99898a67dd8ae88dc1cfab31123103da467733b7
wardrobe-bugs
  6ca14f9d193ac1a5f68fde64e5bf7b29687045179d148c169cf81f0c2038a59a
  82d3303b3f80157ff9d74ae7a7e2534bc0ad62c62a66d037058ad35b8e8f4689
wardrobe-contexts
  82a7d18e4232f2139aefde1bcee34ae1312a58d649882c7134276a9fdc84f424
  0f39afd58690db21033bceafd377ef17015c0d2001b0593e9a035bea7e18c5a5
wardrobe-corrupt
  ebda78cd4a8a10615f00263b99acf2ea8734fe065fd12100aa6fe704edcc2024
  bc3c54ea8f96881c54535a64c5d90a81d0fee7f4b9c17c7f4219c4cd9213226b
wardrobe-corrupt-severity
  8bd15cb923213878550c6235c9c5b6352f14aa06f864c92686c19fc03e1ef313
  7ba933e0fa6079a924eaf414f247ebf4b70d9c5adcc0bf857e621c2de4c4df03
wardrobe-edited
  391eccbc2dde3b7eb8b402b27f067aca666e2375aea76bdcff7f813fe6d29d4f
  0b7e334b61b0206a7aaed7b58e2847ea63599aa849c250aaf962356c15c2c100
wardrobe-lance
  2ed36325fb92267dfcd03dc852e5656c017ed6112befd697c040457894679598
  e65365a1c528653f3453773ea3d219f089175783815968e130a4db474fef7887
wardrobe-masks
  037c89d01485993713424d1caf657b009cfaa1dd5e2f54aba005ded08ecb1030
  2917a4386076c22d8dcd70ad99898a67dd8ae88dc1cfab31123103da467733b7
wardrobe-mini
  f42045abe55e851bbf8c8a1dddea486ff6436332443acec519e2bac5edb5d246
  71f1f4b5b2de4b4b47150b81f6cd43050fb4fee53331c75ad0c1f53d543ab480
wardrobe-pairs
  64e870d07ffa754f502ca03eff4d64764093da67aac1909671b19d2080f0f940
  71f1f4b5b2de4b4b47150b81f6cd43050fb4fee53331c75ad0c1f53d543ab480
wardrobe-retrieved
  6e54b198b2efe856193bee4a1fa583e3bd9faa230013e1b4451a697e261e61ec
  71f1f4b5b2de4b4b47150b81f6cd43050fb4fee53331c75ad0c1f53d543ab480
wardrobe-severity
  56e57e251d1d2c35a2d3ae0fdce623d08b358e880eb6517c39a3d4486298588b
  5241445f91257acd46ba94e9bdf9d4729ee621c38ab3b0ffff85ab7720080b2e
wardrobe-star
  101dd7a5d7c1891f2db87fbc97e20276b7a624513695dcbe947f97c7f17effef
  0f39afd58690db21033bceafd377ef17015c0d2001b0593e9a035bea7e18c5a5
z-image
  7d0926346c153f6bb52d7712ec92a5bfe752fcb8cd7c3303f8886a2de7888949
  61131c9763acc781db01b18244886d9b7c1e420aa4b939b0beb2155561ad20ee
"""
_words = _PINNED.split()
PINNED: dict[str, tuple[str, str]] = dict(
    zip(_words[::3], zip(_words[1::3], _words[2::3], strict=True), strict=True)
)

# As wardrobe-mini was before it measured visibility, had a judge and kept rejected images:
# directories of then go on by these.
BEFORE = ("screen.keep_rejected=false", "screen.keep=thresholds", "screen.judge=null")
MINI_BEFORE = "a5ef224a4cfb6479644d41d39f4fe3d1b2cf36912d3b8c9775055f1ee6697dcf"

# Before there were tokens of the lab, the wardrobe recipes prompted by class name.
BY_NAME = {
    "wardrobe-mini": "4baccb60bbc05a3f4003c811a9ce0df0de20102cff6e94a32c5b3e15ab381893",
    "wardrobe-star": "a0620dd6d5d634e1d742722b871b7730da3b0617e9674960a560995255083edd",
}

# Before rows of corrupted and edited images stored their unit (version 1 of the rows).
FIRST = {
    "wardrobe-corrupt": "35d057c1a8dfb3723c043d3224acf847aa89e136d87494ce48236108de16e4a3",
    "wardrobe-corrupt-severity": "f3621d46500430e1c8d78bf4d4e6b99bfe5a8d9c6d8428a729e24258f1a0d0dc",
    "wardrobe-edited": "2950e8241f48da0afcfae87734afd48bdd5af15b8e5ad336ea4f7a2e513c48a5",
    "wardrobe-lance": "6c6d29fb0aaff4485e74c0381c855ef99fac61f3821f4da72e8df5e789cd320e",
}


def test_every_bundled_recipe_is_pinned() -> None:
    assert set(PINNED) == set(bundled_recipes())


@pytest.mark.parametrize("name", PINNED)
def test_hashes_are_what_they_were(name: str) -> None:
    recipe = load_recipe(name)
    assert (recipe.plan_hash, recipe.screen_hash) == PINNED[name]


@pytest.mark.parametrize("name", [*FIRST, "wardrobe-mini", "wardrobe-retrieved"])
def test_with_the_first_version_of_rows_a_plan_is_what_it_was(name: str) -> None:
    recipe = load_recipe(name, ["output.row_version=1"])
    assert (recipe.plan_hash, recipe.screen_hash) == (
        FIRST.get(name, PINNED[name][0]),
        PINNED[name][1],
    )


def test_without_what_came_later_the_small_recipe_is_what_it_was() -> None:
    assert load_recipe("wardrobe-mini", BEFORE).screen_hash == MINI_BEFORE


@pytest.mark.parametrize("name", BY_NAME)
def test_by_class_name_a_recipe_is_the_plan_that_it_was(name: str) -> None:
    recipe = load_recipe(name, ["tokens=null"])
    assert (recipe.plan_hash, recipe.screen_hash) == (BY_NAME[name], PINNED[name][1])


@pytest.mark.parametrize(
    "written", ["thresholds", "[thresholds]", "[{thresholds: {}}]", "{thresholds: {}}", "null"]
)
def test_the_default_of_a_later_key_enters_no_hash(written: str) -> None:
    recipe = load_recipe(
        "wardrobe-star", [f"screen.keep={written}", "prompts.shifts.red.keep=null"]
    )
    assert (recipe.plan_hash, recipe.screen_hash) == PINNED["wardrobe-star"]


def judged(rule: str = "", *more: str) -> str:
    keep = f"screen.keep=[thresholds, {{misclassified: {{models: ['lab:resnet10t']{rule}}}}}]"
    return load_recipe("wardrobe-mini", [*BEFORE, keep, *more]).screen_hash


def test_a_failure_rule_enters_where_it_is_another_and_parents_where_it_reads_them() -> None:
    assert (
        judged()
        == judged(", failure: top1")
        == "e1eb5e56907bd610fd9ec655055298e57422391485ee1940bf70b69460c9143f"
    )
    assert (
        len(
            {
                judged(f", failure: {rule}")
                for rule in ("top1", "top3", "'answered:00'", "'answered:05'")
            }
        )
        == 4
    )
    parents = [
        f"source.classes=[{{id: '00', name: t-shirt, source_label: 0, parent: {parent}}}]"
        for parent in ("top", "wear")
    ]
    assert len({judged(", failure: parent", parent) for parent in parents}) == 2
    assert len({judged(", failure: top3", parent) for parent in parents}) == 1


@pytest.mark.parametrize("name", [name for name in PINNED if name.startswith("wardrobe-")])
def test_what_rows_share_enters_the_plan_of_rows(name: str) -> None:
    recipe = load_recipe(name, ["source.unit_column=patient"])
    assert recipe.source.unit_column == "patient"
    # Images made from rows of the input dataset store their unit, so their plan is another one.
    assert (recipe.plan_hash == PINNED[name][0]) == (not recipe.kind.alters_rows)
    assert recipe.screen_hash == PINNED[name][1]
    assert "unit_column" not in dump_recipe(load_recipe(name, ["source.unit_column=null"]))
