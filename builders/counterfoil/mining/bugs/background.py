"""Which words of a description are its background, all of them as one, and what a failure has to do with it.

Wiles 2022, Figure 5a: "the background is green" was found where snow is what fails. Single pieces are tried as they are
(`shortening`); here all pieces of the background stand together, so that it is asked whether the place alone explains
a failure.

The rule: a phrase behind the class is of its background where it begins with a preposition of place and a noun phrase
follows, or is a word such as "outdoors"; words such as "sitting" may stand before. A sentence is where it begins with
"the background" or "in the background", or goes on so behind its first "is" ("it is walking in the snow"). The head of
the noun phrase must not name a time, light, weather, people, or what is of the picture itself: "at night", "in the
rain" and "in focus" are no places. What stands before the class never is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from counterfoil.mining.bugs.descriptions import Description, Piece
from counterfoil.mining.bugs.phrases import DETERMINERS, listed, openings, opens_noun
from counterfoil.mining.bugs.shortening import keeps_up, shorter
from counterfoil.mining.bugs.trials import BugHypothesis
from counterfoil.paired_stats import PairCount

# Under which a finding's `about` tells of its background.
BACKGROUND = "background"
Explains = Literal["background", "rest", "either", "both"]

_PLACES = listed(
    "in on at by near against under beneath over beside besides behind underneath inside outside above below around "
    "along across among amid amidst between into onto through upon within"
)
# Those that are a place without a noun: "a sandal outside".
_ALONE = listed("inside outside indoors outdoors underwater nearby")
_OF_SEVERAL = tuple(
    tuple(words.split())
    for words in ("in front of", "on top of", "next to", "close to", "adjacent to", "surrounded by")
)
_STANDING = listed(
    "sitting standing lying laying hanging resting leaning floating flying walking running jumping swimming sleeping "
    "posing playing placed parked"
)
_NO_PLACES = listed(
    "night nighttime day daytime morning noon midday afternoon evening dusk dawn sunset sunrise twilight midnight "
    "spring summer autumn fall winter time "
    "light lights lighting sunlight sun sunshine daylight moonlight flash shade shadow shadows dark darkness "
    "rain fog mist storm wind weather "
    "person people man men woman women boy girl child children hand hands foot feet head "
    "focus colour color colours colors black white style view frame picture photo photograph image foreground motion "
    "detail quality resolution size shape angle distance camera"
)
_IS, _NOTHING_OF_ITS_OWN = listed("is are was were"), listed("there this that these those here")
_ENDS = _IS | listed("of to that which who has have it")


@dataclass(frozen=True, slots=True)
class BackgroundCounts:
    """Pairs on new noise: the whole description, its background alone, and all but its background.

    None where a part was not drawn. A description that is all background has no rest.
    """

    whole: PairCount
    alone: PairCount | None
    rest: PairCount | None

    @property
    def explains(self) -> Explains | None:
        """What is enough for the failure: the `background`, the `rest`, `either`, or it takes `both`; None if unknown.

        Enough is what keeps up with the whole (`keeps_up`). An absent rest is never enough.
        """
        counts = (self.alone, self.rest)
        if not self.whole.pairs or any(one is None or not one.pairs for one in counts):
            return None
        alone, rest = (one is not None and keeps_up(one, self.whole) for one in counts)
        return "either" if alone and rest else "background" if alone else "rest" if rest else "both"


def is_background(piece: Piece) -> bool:
    """Whether a piece of a description says where the class is, by the rule above."""
    if piece.place != "after":
        return False
    words = piece.words.removesuffix(".").replace(",", "").split()
    if not piece.sentence:
        # "that is sitting on a floor"
        return _begins_with_place(words[2:] if words[:1] in (["that"], ["which"]) and words[1:2] == ["is"] else words)
    plain = [word for word in words if word not in DETERMINERS]
    if plain[:1] == ["background"] or plain[:2] == ["in", "background"]:
        return True
    at = next((at for at, word in enumerate(words) if word in _IS), 0)
    behind = words[at + 1 :]
    if not at or words[0] in _NOTHING_OF_ITS_OWN or openings(behind)[:1] != [0]:
        return False
    return any(_begins_with_place(behind[low:]) for low in openings(behind))


def background_of(description: Description) -> tuple[Piece, ...]:
    """The pieces of a description that are its background, in its order."""
    return tuple(piece for piece in description.pieces if is_background(piece))


def parts_of(description: Description) -> tuple[Description, Description] | None:
    """A description's background alone, and all but its background; None where either would be nothing."""
    background = background_of(description)
    rest = tuple(piece for piece in description.pieces if piece not in background)
    return (Description(background), Description(rest)) if background and rest else None


def tried_shorter(description: Description, most: int) -> tuple[Description, ...]:
    """At most so many shorter descriptions, shortest first: its background and its rest, then the shortest others."""
    parts = parts_of(description) or ()
    every = dict.fromkeys((*shorter(description), *parts))
    left = [one for one in every if one not in parts][: max(most - len(parts), 0)]
    return tuple(sorted((one for one in every if one in parts or one in left), key=lambda one: one.length))


def told_background(description: Description, counts: BackgroundCounts | None = None) -> dict[str, Any]:
    """What a finding's `about` says of its background, as JSON takes it; nothing where it has none."""
    words = [piece.words.removesuffix(".") for piece in background_of(description)]
    if not words:
        return {}
    told: dict[str, Any] = {"words": words, "all": len(words) == len(description.pieces)}
    if counts is not None:
        parts = {"whole": counts.whole, "alone": counts.alone, "rest": counts.rest}
        told |= {name: count.told() for name, count in parts.items() if count is not None and count.pairs}
        told |= {} if counts.explains is None else {"explains": counts.explains}
    return {BACKGROUND: told}


def counts_of_background(
    one: BugHypothesis, drawn: Mapping[tuple[int, Description], PairCount]
) -> BackgroundCounts | None:
    """The counts of a hypothesis' background among those of a class and a description, all on the same new noise.

    None where it has no background beside a rest, or was not drawn itself.
    """
    parts, whole = parts_of(one.description), drawn.get((one.label, one.description))
    if parts is None or whole is None:
        return None
    alone, rest = (drawn.get((one.label, part)) for part in parts)
    return BackgroundCounts(whole, alone, rest)


def _begins_with_place(words: Sequence[str]) -> bool:
    at = 0
    while at < len(words) and words[at] in _STANDING:
        at += 1
    several = next((one for one in _OF_SEVERAL if tuple(words[at : at + len(one)]) == one), None)
    if several is None and words[at : at + 1] and words[at] not in _PLACES | _ALONE:
        return False
    noun = list(words[at + (1 if several is None else len(several)) :])
    while noun and noun[0] in DETERMINERS:
        noun.pop(0)
    # Its head is the last word before another phrase: "side" of "the red side of the road".
    end = next((place for place, word in enumerate(noun) if word in _ENDS or opens_noun(word)), len(noun))
    if not noun[:end]:
        return several is None and at < len(words) and words[at] in _ALONE
    return noun[end - 1] not in _NO_PLACES and (words[at] in _PLACES or several is not None)
