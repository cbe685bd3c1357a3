"""Write the hyponyms of `recipes/captions/cifar.yaml`: what CIFAR-10's classes have below them in
WordNet 3.0.

    python scripts/write_hyponyms.py                     # rewrite the file from its line
    `hyponyms:` on python scripts/write_hyponyms.py --wordnet FOLDER    # the same, with WordNet 3.0
    from there

Jain 2023, C.1.2: the common names of all synsets below a class's own, without those that have
uncommon words. A synset is taken by its first name, where that name means nothing else more often;
each of its words must be a noun or an adjective of WordNet by itself (the paper asks a word list of
NLTK instead). Of a class with more than `MOST`, those nearest to the class are taken, which says
less of rare species: only birds have more.

WordNet's licence asks that its notice goes along, which is written below the names.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from program import new_parser
from wordnet_nouns import FOLDER, Nouns, read_nouns, read_senses, scalar

FILE = Path(__file__).resolve().parent.parent / "recipes" / "captions" / "cifar.yaml"
_FIRST = "# From here on written by scripts/write_hyponyms.py.\n"

# Class → the nouns below which its own stand: those of the paper's public implementation.
CIFAR = {
    "airplane": ("airplane",),
    "automobile": ("car",),
    "bird": ("bird",),
    "cat": ("cat",),
    "deer": ("deer", "antelope"),
    "dog": ("dog",),
    "frog": ("frog",),
    "horse": ("horse",),
    "ship": ("boat", "ship"),
    "truck": ("truck",),
}
# With CIFAR's 9 adjectives and 11 prepositions, 15,840 captions.
MOST = 160
# Words that people take as slurs.
_LEFT_OUT = frozenset({"gypsy", "kaffir"})


def common_names(
    nouns: Nouns, senses: dict[str, str], words: set[str], above: tuple[str, ...]
) -> Iterator[str]:
    """Yield the names below some nouns, themselves included, nearest first."""
    for noun in nouns.kinds([senses[word] for word in above]):
        name = nouns.by_id[noun].word
        words_of_name = name.lower().split()
        if (
            senses.get(name.lower()) == noun
            and words.issuperset(words_of_name)
            and _LEFT_OUT.isdisjoint(words_of_name)
        ):
            yield name


def hyponym_lines(wordnet: Path) -> list[str]:
    """Return the lines of YAML from `hyponyms:` on, and WordNet's notice."""
    nouns = read_nouns(wordnet)
    senses = read_senses(wordnet, "noun")
    words = {*senses, *read_senses(wordnet, "adj")}
    lines = ["hyponyms:"]
    for name, above in CIFAR.items():
        names = islice(common_names(nouns, senses, words, above), MOST)
        # No line ends within a name: textwrap breaks at no space that is no-break.
        listed = ", ".join(scalar(each).replace(" ", "\N{NO-BREAK SPACE}") for each in names)
        inside = textwrap.wrap(listed, 112, break_long_words=False, break_on_hyphens=False)
        lines += [f"  {name}: [", *(f"    {line}" for line in inside), "  ]"]
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
    return [*lines, *nouns.notice_lines()]


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument(
        "--wordnet", type=Path, default=FOLDER, help=f"folder of WordNet 3.0 (default: {FOLDER})"
    )
    options = parser.parse_args()
    by_hand, _, _ = FILE.read_text(encoding="utf-8").partition(_FIRST)
    lines = "\n".join(hyponym_lines(options.wordnet))
    FILE.write_text(f"{by_hand}{_FIRST}{lines}\n", encoding="utf-8")
    print(FILE)


if __name__ == "__main__":
    main()
