"""WordNet's nouns, from the file `data.noun` of WordNet 3.0: what a noun is a kind of, and what
kinds of it there are.

Debian's package `wordnet-base` puts it into /usr/share/wordnet; Princeton offers the same files at
https://wordnet.princeton.edu. Its licence permits any use of what is taken from it as long as the
notice with which each of its files begins goes along: `Nouns.notice`. ImageNet's ids are `n` and
the eight digits by which WordNet 3.0 knows a synset; other versions have other digits, and are
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from counterfoil.recipe.strict_yaml import dump_yaml

FOLDER = Path("/usr/share/wordnet")
_VERSION = "WordNet 3.0 "
_HYPERNYM = "@"

# The ancestors by which ImageNet's classes get their prepositions (Jain 2023, C.2). Every noun is
# an entity at last.
CATEGORIES = """\
fish
bird
amphibian
reptile
invertebrate
mammal
marsupial
aquatic mammal
canine
feline
rodent
swine
bovid
primate
device
entity
vehicle
aircraft
structure
wheeled vehicle
container
equipment
implement
covering
furniture
vessel
fabric
train
instrumentality
appliance
bus
food
fruit
geological formation
person
flower
fungus
""".splitlines()


@dataclass(frozen=True, slots=True)
class Noun:
    """A synset: its first word, and the ids of what it is a kind of, in the file's order."""

    word: str
    hypernyms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nouns:
    """Nouns by their eight digits, and the notice that goes wherever they do."""

    by_id: Mapping[str, Noun]
    notice: tuple[str, ...]

    def notice_lines(self) -> list[str]:
        """Return the notice as comments of YAML, after an empty one."""
        return [f"# {line}".rstrip() for line in ("", *self.notice)]

    def parent(self, noun: str) -> str:
        """Return the id two steps up the shortest way to the root; of equal ways, the first in
        WordNet's file.

        That gives every parent that Wiles et al. 2022 print: fly (insect), Persian cat (domestic
        animal), crayfish (crustacean), saltshaker (container), ladybug (insect). No immediate
        parent is among them.
        """
        way = self._way(noun)
        return way[min(2, len(way) - 1)]

    def above(self, noun: str) -> set[str]:
        """Return the ids of everything that a noun is a kind of."""
        hypernyms = self.by_id[noun].hypernyms
        return {*hypernyms}.union(*map(self.above, hypernyms))

    def _way(self, noun: str) -> tuple[str, ...]:
        ways = map(self._way, self.by_id[noun].hypernyms)
        return noun, *min(ways, key=len, default=())

    def category(self, noun: str) -> str | None:
        """Return the first of `CATEGORIES` on the way up, the noun itself included; None if the way
        has no category.

        The way goes depth first, and takes several hypernyms in the order of their names: that
        gives the number of classes that Jain et al. print for each of the categories.
        """
        entry = self.by_id[noun]
        if entry.word in CATEGORIES:
            return entry.word
        above = (self.category(hypernym) for hypernym in sorted(entry.hypernyms, key=self._order))
        return next((category for category in above if category is not None), None)

    def kinds(self, nouns: Sequence[str]) -> Iterator[str]:
        """Yield the nouns and everything that is a kind of them, once, the nearest first, else in
        the file's order.

        Instances, which have names of their own (a ship called Titanic), are no kinds.
        """
        below: dict[str, list[str]] = {}
        for noun, about in self.by_id.items():
            for hypernym in about.hypernyms:
                below.setdefault(hypernym, []).append(noun)
        seen = set(nouns)
        level = list(nouns)
        while level:
            yield from level
            kinds = chain.from_iterable(below.get(noun, ()) for noun in level)
            level = [kind for kind in dict.fromkeys(kinds) if kind not in seen]
            seen.update(level)

    def _order(self, noun: str) -> str:
        """Return NLTK's order of synsets: names such as `free-reed_instrument.n.01`."""
        return f"{self.by_id[noun].word.replace(' ', '_').lower()}.n"


def read_nouns(folder: Path) -> Nouns:
    """Read the nouns of a folder of WordNet 3.0. End the script with a message for another folder
    or version."""
    nouns: dict[str, Noun] = {}
    notice: list[str] = []
    for line in _lines(folder / "data.noun"):
        if line.startswith("  "):  # a line of the notice, after its number
            notice.append(line.strip().partition(" ")[2].strip())
        else:
            noun, entry = _noun(line)
            nouns[noun] = entry
    if not any(line.startswith(_VERSION) for line in notice):
        raise SystemExit(
            f"{folder / 'data.noun'}: not of {_VERSION.strip()}, by whose numbers ImageNet names"
            " its classes"
        )
    return Nouns(nouns, tuple(notice))


def read_senses(folder: Path, part: str) -> dict[str, str]:
    """Return each lemma of a part of speech (`noun`, `adj`), in lower case, with the id of its most
    frequent sense."""
    lines = _lines(folder / f"index.{part}")
    # index.noun (wndb(5)): a lemma, its part, how many senses, other fields, and the senses' ids,
    # most frequent first.
    entries = [line.split() for line in lines if not line.startswith("  ")]
    return {fields[0].replace("_", " "): fields[-int(fields[2])] for fields in entries}


def _lines(file: Path) -> list[str]:
    if not file.is_file():
        raise SystemExit(
            f"{file}: no such file; expected WordNet 3.0, as Debian's package wordnet-base has it"
        )
    return file.read_text(encoding="latin-1").splitlines()


def scalar(text: str) -> str:
    """Return the text as YAML on one line, in quotes if it needs them inside a flow mapping."""
    return dump_yaml([text]).removeprefix("- ").rstrip("\n")


def _noun(line: str) -> tuple[str, Noun]:
    """Parse a line of data.noun (wndb(5)): an id, two fields, counted words, counted pointers of
    four fields each."""
    noun, _, _, n_words, *fields = line.partition(" | ")[0].split()
    n_pointers, *pointers = fields[2 * int(n_words, 16) :]
    symbols = pointers[0::4]
    ids = pointers[1::4]
    above = [other for symbol, other in zip(symbols, ids, strict=True) if symbol == _HYPERNYM]
    if len(symbols) != int(n_pointers):
        raise SystemExit(
            f"data.noun: synset {noun} has {len(symbols)} pointers, expected {int(n_pointers)}"
        )
    return noun, Noun(fields[0].replace("_", " "), tuple(above))
