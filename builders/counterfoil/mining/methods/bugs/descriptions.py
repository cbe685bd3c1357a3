"""Descriptions of failures. A captioner's text is cut into pieces, and the pieces are joined to a
prompt again.

A caption can add four kinds of pieces to a base prompt: words that replace "a photo of", words
before the class, phrases after the class, and whole sentences (Wiles 2022 has only sentences).
Descriptions can be shortened. The background of a description is also tested alone, to see whether
the place explains a failure (Wiles 2022, Figure 5a).

A phrase is background if it begins with a preposition of place ("in the snow"). A sentence is
background if such a phrase follows the first "is" of the sentence. The exceptions are phrases whose
noun names a time, light, weather, people, or a property of the picture ("in focus").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import Any, Literal

from counterfoil.mining.captions import article_for, words_of
from counterfoil.mining.methods.bugs.phrases import (
    DETERMINERS,
    EMPTY,
    JOINING,
    REFUSED,
    before_noun,
    first_sentence,
    grouped_words,
    opens_noun,
    phrase_openings,
    phrases_of,
    sentences_of,
    tidy_text,
    word_set,
    words_of_text,
)
from counterfoil.paired_stats import PairCount
from counterfoil.stats import wilson_interval

CLASS = "{class}"
_ARTICLE = re.compile(r"\b(an?|the)\s+$", re.IGNORECASE)
# Words for a picture. The words in `_PLAIN_PICTURES` add nothing to a description.
_PLAIN_PICTURES = word_set("photo photograph picture image pic snapshot")
_PICTURES = _PLAIN_PICTURES | word_set(
    "painting drawing sketch embroidery illustration cartoon rendering render depiction sculpture"
    " statue figurine print engraving etching mosaic tattoo artwork art graffiti silhouette"
    " portrait x-ray scan screenshot sticker poster origami toy view shot closeup close-up"
    " watercolor watercolour collage still"
)
# Beginnings of captions that add nothing.
_THERE_IS = re.compile(
    r"\s*(?:there (?:is|are)|this is|it is|(?:an?|the|this) (?:photo|photograph|picture|image) "
    r"(?:shows|depicts|features))(?=\s)"
)
_LONGEST_LEAD = 8
_LONGEST_PIECE = 400
_MOST_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a description. Raise ValueError for words that a prompt template cannot hold."""

    words: str
    place: Literal["lead", "before", "after"]
    """Where the words stand in a prompt. A `lead` replaces "a photo of" ("oil painting of"). Words
    with the place `before` stand before the class ("striped", "person and a"). Words with the place
    `after` are a phrase behind the class ("in the snow") or a sentence."""

    def __post_init__(self) -> None:
        words = self.words
        tidy = " ".join(words.split())
        plain = words.isprintable() and REFUSED.isdisjoint(words)
        if not words or not plain or words != tidy:
            raise ValueError(f"no words for a prompt: {words[:80]!r}")
        if len(words) > _LONGEST_PIECE:
            raise ValueError(
                f"{len(words)} characters are too many for a piece, expected {_LONGEST_PIECE} at"
                " most"
            )

    @property
    def sentence(self) -> bool:
        return self.place == "after" and self.words.endswith(".")

    @property
    def opening(self) -> bool:
        """Whether the piece stands before the adjectives of the class: "person and a"."""
        *_, last = self.words.split()
        return self.place == "before" and opens_noun(last)

    @property
    def rank(self) -> int:
        """The position of the piece in a description: lead 0, opening 1, adjectives 2, phrases 3,
        sentences 4."""
        if self.place == "after":
            return 4 if self.sentence else 3
        if self.place == "lead":
            return 0
        return 1 if self.opening else 2


@dataclass(frozen=True, slots=True)
class Description:
    """Pieces in the order in which a prompt has them. A description without pieces means the base
    prompt.

    Raise ValueError for repeated pieces, and for more than one lead or opening.
    """

    pieces: tuple[Piece, ...]

    def __post_init__(self) -> None:
        ordered = sorted(self.pieces, key=lambda piece: piece.rank)
        object.__setattr__(self, "pieces", tuple(ordered))
        ranks = [piece.rank for piece in ordered]
        repeated = len(set(ordered)) < len(ordered)
        most = max(ranks.count(0), ranks.count(1))
        if repeated or most > 1:
            words = ", ".join(repr(piece.words) for piece in ordered)
            raise ValueError(f"pieces that make no description: {words}")

    @property
    def length(self) -> int:
        """The number of words."""
        return sum(len(piece.words.split()) for piece in self.pieces)

    @property
    def styled(self) -> bool:
        """Whether the description names a kind of picture, such as an oil painting, in place of the
        base's photo."""
        return any(piece.place == "lead" for piece in self.pieces)

    @property
    def caption(self) -> str:
        """Return a caption that does not name the class: "a photo red in the snow", "an oil
        painting"."""
        lead, opening, adjectives, phrases, sentences = self._by_rank()
        picture = lead[0].removesuffix(" of") if lead else "photo"
        beside = []
        others = []
        for words in opening:
            # "person and a" names "person".
            stripped = words.split()
            while stripped and (opens_noun(stripped[-1]) or stripped[-1] in EMPTY):
                stripped.pop()
            beside.append(" ".join(stripped))
        for words in phrases:
            if words.startswith("and "):
                beside.append(words.removeprefix("and "))
            else:
                others.append(words)
        of_picture = adjectives
        for words in filter(None, beside):
            of_picture.append(f"of {_with_article(words)}")
        behind = _behind(others)
        if sentences and not (lead or of_picture or behind):
            return " ".join(sentences)
        alone = " ".join([article_for(picture), picture, *of_picture])
        alone += behind
        if not sentences:
            return alone
        return " ".join([f"{alone}.", *sentences])

    def prompt(
        self,
        base: str,
        class_name: str | None = None,
        *,
        mended: bool = False,
    ) -> str:
        """Return the base prompt with every piece in its position. If `class_name` is given, it
        replaces `{class}`.

        mended: write "an" before a vowel. Recipes and the lab's captions write "a" everywhere, so
        this is off by default. Raise ValueError for a base without `{class}`.
        """
        stem, article, tail, stop, rest = _cut(base)
        lead, opening, adjectives, phrases, sentences = self._by_rank()
        mended = mended or article.lower() == "an"
        if lead:
            # The lead takes an article and a capital letter if the base has them.
            began = stem or article
            stem = f"{lead[0]} "
            if re.match(r"(?:an?|the)\b", began, re.IGNORECASE):
                stem = f"{article_for(lead[0])} {stem}"
            if began[:1].isupper():
                stem = stem[0].upper() + stem[1:]
            article = article.lower()
        words = " ".join([*opening, *adjectives]).split()
        if words and article.lower() in ("a", "an"):
            vowel = mended and article_for(words[0]) == "an"
            article = article[0] + "n" * vowel
        end = len(" ".join(opening).split())
        if mended and 0 < end < len(words) and words[end - 1] == "a":
            words[end - 1] = article_for(words[end])
        with_article = (article, *words, CLASS)
        noun_phrase = " ".join(filter(None, with_article))
        text = f"{stem}{noun_phrase}{tail}{_behind(phrases)}"
        if sentences:
            text = " ".join([f"{text}{stop or '.'}{rest.rstrip()}", *sentences])
        else:
            text += f"{stop}{rest}"
        return text if class_name is None else text.replace(CLASS, class_name)

    def words(self, class_name: str) -> str:
        """Return the description as people read it: "sandal in the snow", "fly: it is on a yellow
        flower"."""
        lead, _, _, phrases, sentences = self._by_rank()
        before = [piece for piece in self.pieces if piece.rank in (1, 2)]
        near = Description(tuple(before))
        text = near.prompt(f"a {CLASS}", class_name, mended=True)
        if phrases:
            text += _behind(phrases).removeprefix(",")
        text = words_of(class_name, text, f"a {class_name}", "hard")
        if lead:
            text = f"{lead[0]} {_with_article(text)}"
        if not sentences:
            return text
        stated = "; ".join(words.removesuffix(".") for words in sentences)
        return f"{text}: {stated}"

    def _by_rank(self) -> list[list[str]]:
        by_rank: list[list[str]] = [[] for _ in range(5)]
        for piece in self.pieces:
            by_rank[piece.rank].append(piece.words)
        return by_rank


def pieces_of(
    caption: str,
    base: str,
    class_name: str,
) -> tuple[Piece, ...] | None:
    """Return the pieces that a caption adds to the base prompt, in order, or None if the caption
    does not name the class. The caller must fill every placeholder of the base except `{class}`.
    Raise ValueError for a base without `{class}`.
    """
    stem, _, tail, _, rest = _cut(base)
    name = tidy_text(class_name)
    text = tidy_text(caption)
    noun = rf"(?:{re.escape(name)}|{re.escape(CLASS)})"
    stem_words = tidy_text(stem)
    tail_words = tidy_text(tail)
    tail_pattern = _pattern(tail_words, noun)
    led = re.match(_pattern(stem_words, noun), text) if stem_words else None
    start = led.end() if led else 0
    # A base such as "{class}s" continues the word.
    glued = "" if not tail or tail[0].isspace() else rf"(?={tail_pattern})|"
    named = re.compile(rf"(?<![\w-]){noun}(?:{glued}(?!['-]?\w))")
    match = named.search(text, start)
    if match is None:
        return None
    before = text[start : match.start()]
    behind = text[match.end() :]
    pieces = []
    if not led:
        lead, before = _lead(before, stem_words)
        if lead is not None:
            pieces.append(Piece(lead, "lead"))
    if tail_words and (same := re.match(rf"\s*{tail_pattern}", behind)):
        behind = behind[same.end() :]
    for words in before_noun(before):
        pieces.append(Piece(words, "before"))
    first, more = first_sentence(behind)
    for words in _beyond(name, phrases_of(first)):
        pieces.append(Piece(words, "after"))
    base_sentences = sentences_of(tidy_text(base.replace(CLASS, class_name)))
    beyond_base = more.strip().removeprefix(tidy_text(rest))
    for words in sentences_of(beyond_base):
        if words not in base_sentences:
            pieces.append(Piece(words, "after"))
    return _within(pieces)


def _beyond(name: str, phrases: list[str]) -> list[str]:
    """Return the phrases after a noun. If the first phrase repeats the noun ("sandal, sandal
    running"), drop the noun from that phrase.
    """
    noun = " ".join(word for word in words_of_text(name) if word)
    while phrases and f"{phrases[0]} ".startswith(f"{noun} "):
        first, *others = phrases
        after_noun = phrases_of(first.removeprefix(noun))
        phrases = list(dict.fromkeys([*after_noun, *others]))
    return phrases


def _cut(base: str) -> tuple[str, str, str, str, str]:
    """Split a base prompt at its class into five texts. "a photo of a {class} (insect)." gives "a
    photo of ", "a", " (insect)", ".", and the text after the first sentence.
    """
    head, separator, tail = base.partition(CLASS)
    if not separator:
        raise ValueError(f"expected '{CLASS}' in the base prompt '{base}'")
    article = ""
    if match := _ARTICLE.search(head):
        head = head[: match.start()]
        article = match[1]
    first, rest = first_sentence(tail)
    stop = tail[len(first) : len(tail) - len(rest)]
    return head, article, first, stop, rest


def _lead(before: str, stem: str) -> tuple[str | None, str]:
    """Return the lead that begins the text `before` a class, and the text after the lead. Synonyms
    of "a photo of" are skipped, because they say the same as the base.
    """
    # A refused word becomes "{}", so that later steps refuse it too.
    unpunctuated = words_of_text(re.sub(r"[,;:]", " ", before))
    before = " ".join(word or "{}" for word in unpunctuated)
    while True:
        if opening := _THERE_IS.match(before):
            before = before[opening.end() :]
            continue
        match = re.match(r"\s*(?:(?:an?|the) )?(.{1,80}?) of\b", before)
        if match is None:
            break
        words = words_of_text(match[1])
        plain = [word for word in words if word is not None and not opens_noun(word)]
        if not 0 < len(plain) <= _LONGEST_LEAD or len(plain) < len(words):
            break
        *adjectives, noun = plain
        if noun not in _PICTURES and plain[-2:] != ["close", "up"]:
            break
        before = before[match.end() :]
        added = set(adjectives).difference(stem.split())
        if added or noun not in _PLAIN_PICTURES:
            return f"{' '.join(plain)} of", before
    return None, before


def _pattern(text: str, noun: str) -> str:
    """Return a regular expression for a part of a base prompt. A placeholder matches itself or up
    to 80 characters."""
    pattern = ""
    for part in re.split(r"(\{[^{}]*\})", text):
        escaped = re.escape(part)
        if part == CLASS:
            pattern += noun
        elif part.startswith("{") and part.endswith("}"):
            pattern += rf"(?:{escaped}|.{{1,80}}?)"
        else:
            pattern += escaped
    if text[-1:].isalnum():
        pattern += r"(?!\w)"
    return pattern


def _behind(phrases: Sequence[str]) -> str:
    """Return phrases as they follow a noun, with a comma between those that would merge."""
    text = ""
    before = None
    for words in phrases:
        if before is None:
            parted = bool(phrase_openings(words.split()))
        else:
            parted = phrases_of(f"{before} {words}") == [before, words]
        text += f" {words}" if parted else f", {words}"
        before = words
    return text


def _within(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    left = _MOST_CHARACTERS
    fitting = []
    for piece in pieces:
        left -= len(piece.words)
        if left >= 0:
            fitting.append(piece)
    return tuple(fitting)


def _with_article(words: str) -> str:
    return words if words.split()[0] in DETERMINERS else f"{article_for(words)} {words}"


# Words that end the noun phrase before them.
_ENDS = word_set("of to that which who is are was were has have it")


def shorter(description: Description) -> tuple[Description, ...]:
    """Return shorter descriptions, shortest first: single pieces, and those without a piece or
    without adjectives."""
    pieces = description.pieces
    candidates = [[piece] for piece in pieces]
    for at in range(len(pieces)):
        others = [*pieces[:at], *pieces[at + 1 :]]
        candidates.append(others)
    for at, piece in enumerate(pieces):
        for plainer in (*_one_less(piece), _plainest(piece)):
            shortened = [*pieces[:at], plainer, *pieces[at + 1 :]]
            candidates.append(shortened)
    candidates.append(list(map(_plainest, pieces)))
    described: dict[Description, None] = {}
    for shortened in filter(None, candidates):
        described[Description(tuple(dict.fromkeys(shortened)))] = None
    described.pop(description, None)
    return tuple(sorted(described, key=lambda candidate: candidate.length))


def shortest_kept(
    candidates: Sequence[tuple[Description, PairCount]],
    whole: PairCount,
) -> int | None:
    """Return the index of the shortest candidate that keeps up with the whole description, or None.
    Of two candidates of equal length, take the one with the higher rate.
    """
    kept = []
    for at, (description, count) in enumerate(candidates):
        if keeps_up(count, whole):
            kept.append((description.length, -count.rate, at))
    return min(kept)[2] if kept else None


def keeps_up(count: PairCount, whole: PairCount) -> bool:
    """Check whether the rate of `count` reaches the lower bound of the 95 % Wilson interval of
    `whole`."""
    if min(whole.pairs, count.pairs) < 1:
        return False
    failures = round(whole.rate * whole.pairs)
    lower, _ = wilson_interval(failures, whole.pairs)
    return count.rate >= lower


def _one_less(piece: Piece) -> Iterator[Piece]:
    """Yield the piece without one adjective, once for each of its adjectives. Only a piece after
    the class has any."""
    if piece.place != "after":
        return
    words = piece.words.removesuffix(".").split()
    stop = "." if piece.sentence else ""
    for low, high in _adjectives(words):
        left = [*words[:low], *words[high:]]
        # "an old wall" becomes "a wall". If the captioner wrote "a old wall", its articles stay as
        # they are.
        article = words[low - 1]
        if article in ("a", "an") and article == article_for(words[low]):
            left[low - 1] = article_for(left[low])
        yield replace(piece, words=" ".join(left) + stop)


def _plainest(piece: Piece) -> Piece:
    while (plainer := next(_one_less(piece), None)) is not None:
        piece = plainer
    return piece


def _adjectives(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each adjective. Adjectives stand between a determiner and the
    last word of the determiner's phrase.
    """
    ends = {*phrase_openings(words), len(words)}
    ends |= {at for at in range(len(words)) if _ends(words, at)}
    for determiner, word in enumerate(words):
        if word not in DETERMINERS:
            continue
        at = determiner + 1
        last = min(end for end in ends if end >= at) - 1
        for group in grouped_words(words[at:last]):
            while words[at] != group[0]:
                at += 1
            if group[-1] not in JOINING and group[-1] != "of":
                yield at, at + len(group)
            at += len(group)


def _ends(words: Sequence[str], at: int) -> bool:
    """Check whether a phrase ends before this word."""
    word = words[at]
    after = words[at + 1 : at + 2]
    if word in JOINING:
        return not after or after[0] in DETERMINERS
    if word in _ENDS or word in DETERMINERS:
        return True
    return at > 0 and words[at - 1].endswith(",")


# The key of a finding's `about` that holds facts on the background.
BACKGROUND = "background"
Explains = Literal["background", "rest", "either", "both"]
_PLACES = word_set(
    "in on at by near against under beneath over beside besides behind underneath inside outside"
    " above below around along across among amid amidst between into onto through upon within"
)
# Words that name a place without a noun: "a sandal outside".
_ALONE = word_set("inside outside indoors outdoors underwater nearby")
_OF_SEVERAL = [
    phrase.split()
    for phrase in (
        "in front of",
        "on top of",
        "next to",
        "close to",
        "adjacent to",
        "surrounded by",
    )
]
_STANDING = word_set(
    "sitting standing lying laying hanging resting leaning floating flying walking running jumping"
    " swimming sleeping posing playing placed parked"
)
_NO_PLACES = word_set(
    "night nighttime day daytime morning noon midday afternoon evening dusk dawn sunset sunrise"
    " twilight midnight spring summer autumn fall winter time light lights lighting sunlight sun"
    " sunshine daylight moonlight flash shade shadow shadows dark darkness rain fog mist storm wind"
    " weather person people man men woman women boy girl child children hand hands foot feet head "
    "focus colour color colours colors black white style view frame picture photo photograph image"
    " foreground motion detail quality resolution size shape angle distance camera"
)
_IS = word_set("is are was were")
_NOTHING_OF_ITS_OWN = word_set("there this that these those here")
_PLACE_ENDS = _IS | word_set("of to that which who has have it")


@dataclass(frozen=True, slots=True)
class BackgroundCounts:
    """Counts of pairs that start from the same new noise. A count that was not drawn is None."""

    whole: PairCount
    """For the whole description."""
    alone: PairCount | None
    """For its background alone."""
    rest: PairCount | None
    """For the rest alone."""

    @property
    def explains(self) -> Explains | None:
        """The part that fails alone as often as the whole description: `background`, `rest`, or
        `either` of them. If neither part does, both are needed: `both`. None if a count is missing.
        """
        if self.alone is None or self.rest is None:
            return None
        for count in (self.whole, self.alone, self.rest):
            if not count.pairs:
                return None
        rest = keeps_up(self.rest, self.whole)
        if keeps_up(self.alone, self.whole):
            return "either" if rest else "background"
        return "rest" if rest else "both"


def is_background(piece: Piece) -> bool:
    """Check whether a piece says where the object is. The docstring of this module states the
    rule."""
    if piece.place != "after":
        return False
    text = piece.words.removesuffix(".")
    words = text.replace(",", "").split()
    if not piece.sentence:
        # "that is sitting on a floor"
        if words[:2] in (["that", "is"], ["which", "is"]):
            words = words[2:]
        return _begins_with_place(words)
    plain = [word for word in words if word not in DETERMINERS]
    if plain[:1] == ["background"] or plain[:2] == ["in", "background"]:
        return True
    verbs = [at for at, word in enumerate(words) if word in _IS]
    at = min(verbs, default=0)
    if not at or words[0] in _NOTHING_OF_ITS_OWN:
        return False
    behind = words[at + 1 :]
    openings = phrase_openings(behind)
    if openings[:1] != [0]:
        return False
    return any(_begins_with_place(behind[low:]) for low in openings)


def background_of(description: Description) -> tuple[Piece, ...]:
    return tuple(piece for piece in description.pieces if is_background(piece))


def parts_of(description: Description) -> tuple[Description, Description] | None:
    """Return a description's background and its rest as two descriptions, or None if either would
    be empty."""
    background = background_of(description)
    rest = tuple(piece for piece in description.pieces if piece not in background)
    if not background or not rest:
        return None
    return Description(background), Description(rest)


def tried_shorter(description: Description, most: int) -> tuple[Description, ...]:
    """Return at most `most` shorter descriptions, shortest first. The background and the rest of
    the description are always among them.
    """
    parts = parts_of(description) or ()
    every = dict.fromkeys((*shorter(description), *parts))
    room = max(most - len(parts), 0)
    chosen = []
    for candidate in every:
        if candidate not in parts:
            room -= 1
        if candidate in parts or room >= 0:
            chosen.append(candidate)
    return tuple(sorted(chosen, key=lambda candidate: candidate.length))


def background_facts(
    description: Description,
    counts: BackgroundCounts | None = None,
) -> dict[str, Any]:
    """Return facts on the background for a finding's `about`. The mapping is empty if there is no
    background."""
    words = [piece.words.removesuffix(".") for piece in background_of(description)]
    if not words:
        return {}
    facts: dict[str, Any] = {"words": words, "all": len(words) == len(description.pieces)}
    if counts is not None:
        for name in ("whole", "alone", "rest"):
            count = getattr(counts, name)
            if count is not None and count.pairs:
                facts[name] = count.summary()
        if counts.explains is not None:
            facts["explains"] = counts.explains
    return {BACKGROUND: facts}


def counts_of_background(
    label: int,
    description: Description,
    drawn: Mapping[tuple[int, Description], PairCount],
) -> BackgroundCounts | None:
    """Return the counts of a description, of its background and of its rest on the same new noise.
    Return None if the description has no such parts or was not drawn.
    """
    parts = parts_of(description)
    whole = drawn.get((label, description))
    if parts is None or whole is None:
        return None
    alone, rest = (drawn.get((label, part)) for part in parts)
    return BackgroundCounts(whole, alone, rest)


def _begins_with_place(words: Sequence[str]) -> bool:
    place = list(dropwhile(_STANDING.__contains__, words))
    if not place:
        return False
    first = place[0]
    several = 0
    for phrase in _OF_SEVERAL:
        if place[: len(phrase)] == phrase:
            several = len(phrase)
    if not several and first not in _PLACES | _ALONE:
        return False
    after = place[several or 1 :]
    # The noun's head is the last word before the next phrase: "side" in "the red side of the road".
    head = ""
    for word in dropwhile(DETERMINERS.__contains__, after):
        if word in _PLACE_ENDS or opens_noun(word):
            break
        head = word
    if not head:
        return not several and first in _ALONE
    return head not in _NO_PLACES and (first in _PLACES or several > 0)
