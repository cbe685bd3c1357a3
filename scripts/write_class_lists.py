"""Write `recipes/classes/*.yaml`: the classes of ImageNet-1k, Oxford-IIIT Pet and FGVC-Aircraft in
label order.

    python scripts/write_class_lists.py                     # write the lists; nothing is fetched
    python scripts/write_class_lists.py --wordnet FOLDER    # the same, with WordNet 3.0 from there
    python scripts/write_class_lists.py --verify            # compare them with the label names of
    the input datasets

ImageNet's ids and names come from timm, the parents and categories of its classes from WordNet 3.0:
Debian's package `wordnet-base`, under Princeton's licence, which asks that its notice goes along
(`wordnet_nouns.py`). The other two lists are facts of their datasets, written down here. `--verify`
asks the Hub (or the folder that `--dataset` names) for the names of the label column, and needs a
network for that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from counterfoil.recipe import load_recipe
from program import new_parser
from wordnet_nouns import FOLDER, Nouns, read_nouns, scalar

RECIPES = Path(__file__).resolve().parent.parent / "recipes"

# annotations/list.txt of the dataset (labels 1 to 37 there), which `timm/oxford-iiit-pet` on the
# Hub keeps from 0.
PETS = """\
Abyssinian
American bulldog
American pit bull terrier
basset hound
beagle
Bengal
Birman
Bombay
boxer
British Shorthair
Chihuahua
Egyptian Mau
English cocker spaniel
English setter
German shorthaired
Great Pyrenees
Havanese
Japanese Chin
keeshond
Leonberger
Maine Coon
miniature pinscher
Newfoundland
Persian
Pomeranian
pug
Ragdoll
Russian Blue
Saint Bernard
Samoyed
Scottish terrier
Shiba Inu
Siamese
Sphynx
Staffordshire bull terrier
wheaten terrier
Yorkshire terrier
"""

# data/variants.txt of the dataset, whose line number is the label (so also in torchvision).
AIRCRAFT = """\
707-320
727-200
737-200
737-300
737-400
737-500
737-600
737-700
737-800
737-900
747-100
747-200
747-300
747-400
757-200
757-300
767-200
767-300
767-400
777-200
777-300
A300B4
A310
A318
A319
A320
A321
A330-200
A330-300
A340-200
A340-300
A340-500
A340-600
A380
ATR-42
ATR-72
An-12
BAE 146-200
BAE 146-300
BAE-125
Beechcraft 1900
Boeing 717
C-130
C-47
CRJ-200
CRJ-700
CRJ-900
Cessna 172
Cessna 208
Cessna 525
Cessna 560
Challenger 600
DC-10
DC-3
DC-6
DC-8
DC-9-30
DH-82
DHC-1
DHC-6
DHC-8-100
DHC-8-300
DR-400
Dornier 328
E-170
E-190
E-195
EMB-120
ERJ 135
ERJ 145
Embraer Legacy 600
Eurofighter Typhoon
F-16A/B
F/A-18
Falcon 2000
Falcon 900
Fokker 100
Fokker 50
Fokker 70
Global Express
Gulfstream IV
Gulfstream V
Hawk T1
Il-76
L-1011
MD-11
MD-80
MD-87
MD-90
Metroliner
Model B200
PA-28
SR-20
Saab 2000
Saab 340
Spitfire
Tornado
Tu-134
Tu-154
Yak-42
"""

ABOUT = {
    "imagenet": "ImageNet-1k in its usual order: WordNet ids, and the first name that WordNet gives"
    " each class.\n"
    "# Parent: two steps up WordNet 3.0, as Wiles 2022 prints parents. Kinds: the parents above a"
    " class, its own\n"
    "# first. Category: its first ancestor in the list of Jain 2023, C.2. All come from WordNet,"
    " whose notice is at\n"
    "# the end.",
    "pets": "Oxford-IIIT Pet in the dataset's own order, from 0: 12 breeds of cats and 25 of dogs.",
    "aircraft": "FGVC-Aircraft: its 100 variants in the order of the dataset's variants.txt, from"
    " 0.",
}


def imagenet_lines(nouns: Nouns) -> list[str]:
    """Return one line of YAML a class; the map to ImageNet's own outputs is the identity. Then
    WordNet's notice."""
    from timm.data import ImageNetInfo

    info = ImageNetInfo()
    names = [str(text).split(", ")[0] for text in info.label_descriptions()]
    lines = []
    parents = {nouns.parent(wordnet_id.removeprefix("n")) for wordnet_id in info.label_names()}
    for label, (wordnet_id, name) in enumerate(zip(info.label_names(), names, strict=True)):
        noun = wordnet_id.removeprefix("n")
        parent = nouns.parent(noun)
        words = f", parent: {scalar(nouns.by_id[parent].word)}"
        category = nouns.category(noun)
        if category is not None:
            words += f", category: {scalar(category)}"
        kinds = [parent, *sorted((nouns.above(noun) & parents) - {parent})]
        listed = ", ".join(f"n{kind}" for kind in kinds)
        lines.append(
            f"- {{id: {wordnet_id}, name: {scalar(name)}, source_label: {label}, imagenet:"
            f" [{label}]{words}, kinds: [{listed}]}}"
        )
    return [*lines, *nouns.notice_lines()]


def numbered_lines(names: Sequence[str]) -> list[str]:
    """Return one line of YAML a class; ids are source labels, padded to equal length."""
    width = len(str(len(names) - 1))
    return [
        f'- {{id: "{label:0{width}d}", name: {scalar(name)}, source_label: {label}}}'
        for label, name in enumerate(names)
    ]


def write_lists(wordnet: Path) -> None:
    lists = {
        "imagenet": imagenet_lines(read_nouns(wordnet)),
        "pets": numbered_lines(PETS.splitlines()),
        "aircraft": numbered_lines(AIRCRAFT.splitlines()),
    }
    for name, lines in lists.items():
        file = RECIPES / "classes" / f"{name}.yaml"
        head = [f"# {ABOUT[name]}", "# Written by scripts/write_class_lists.py."]
        file.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
        print(file)


def verify(recipe_name: str, dataset: str | None) -> list[str]:
    """Return how the recipe's classes differ from the names in its input dataset's labels; empty if
    they agree."""
    import datasets

    recipe = load_recipe(recipe_name)
    source = recipe.source
    entries = recipe.classes
    # Streamed: the names stand in the first file's header, and nothing more is downloaded.
    rows = datasets.load_dataset(
        dataset or source.dataset,
        source.config,
        split=source.train_split,
        revision=source.revision,
        streaming=True,
    )
    feature = (rows.features or {}).get(source.label_column)
    if not isinstance(feature, datasets.ClassLabel):
        of_dataset = f"column '{source.label_column}' of {dataset or source.dataset}"
        return [f"{recipe_name}: {of_dataset} names no classes"]
    problems = []
    names = list(feature.names)
    if len(names) != len(entries):
        problems.append(f"{recipe_name}: {len(entries)} classes, the dataset has {len(names)}")
    for entry in entries:
        label_name = names[entry.source_label] if entry.source_label < len(names) else "nothing"
        if not _same(entry.name, label_name):
            label = f"{recipe_name}: label {entry.source_label}"
            problems.append(f"{label} is '{entry.name}' here and '{label_name}' there")
    return problems


def _same(name: str, label_name: str) -> bool:
    """Compare names without case and with `_` as a space; ImageNet's list several, of which ours is
    the first."""
    plain = label_name.replace("_", " ").casefold()
    return name.casefold() in (plain, plain.split(", ")[0])


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument(
        "--wordnet", type=Path, default=FOLDER, help=f"folder of WordNet 3.0 (default: {FOLDER})"
    )
    parser.add_argument(
        "--verify", metavar="RECIPE", nargs="?", const="all", help="compare with the input dataset"
    )
    parser.add_argument(
        "--dataset", help="another copy of the input dataset: a Hub id, or a folder"
    )
    options = parser.parse_args()
    if options.verify is None:
        write_lists(options.wordnet)
        return
    recipes = [options.verify]
    if options.verify == "all":
        recipes = ["imagenet-star", "pets-star", "aircraft-star"]
    problems = [problem for name in recipes for problem in verify(name, options.dataset)]
    print("\n".join(problems) or f"{', '.join(recipes)}: in the order of their datasets")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
