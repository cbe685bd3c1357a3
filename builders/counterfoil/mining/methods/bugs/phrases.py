"""Clean a captioner's text, and cut it into words before a noun, phrases after the noun, and whole
sentences. The cuts follow fixed lists of articles, prepositions and participles.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise


def word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


ARTICLES = word_set("a an the")
DETERMINERS = ARTICLES | word_set(
    "another some several many this that these those its his her their my your one two three four"
    " five"
)
JOINING = word_set("and or")
# These prepositions can end a phrase: "a sandal outside".
_WHERE = word_set("inside outside around above below behind underneath nearby")
_PREPOSITIONS = _WHERE | word_set(
    "in on at by with without against near under beneath over beside besides into onto through"
    " across along among amid amidst between during from for within upon towards toward like"
)
# A noun follows these even without an article: "a person wearing sandals".
_TRANSITIVE = word_set("wearing holding carrying riding eating using touching")
_PARTICIPLES = _TRANSITIVE | word_set(
    "sitting standing lying laying hanging resting leaning floating flying walking running jumping"
    " swimming sleeping posing looking facing playing"
)
# These words open a phrase only together with the word after them: "next to", "surrounded by".
_WITH_TO = word_set("next close adjacent")
_WITH_PREPOSITION = word_set(
    "surrounded covered filled made decorated attached followed lit placed parked"
)
_BEHIND = word_set("by with in of to from on at")
# Words that alone describe nothing, and words that cannot end a phrase.
EMPTY = (
    (_PREPOSITIONS - _WHERE) | ARTICLES | JOINING | word_set("of to that which is are was it its")
)
_DANGLING = (_PREPOSITIONS - _WHERE) | ARTICLES | JOINING | {"of"}
# A captioner that does not stop writes longer captions and words than these.
LONGEST_CAPTION = 4000
LONGEST_WORD = 40
MOST_WORDS = 24
# Words with these characters are refused. Prompt templates and the special tokens of tokenizers use
# them.
REFUSED = frozenset("{}[]<>|\\^`")
_STOP = re.compile(r"[.!?]+(?=\s|$)")
_BREAK = re.compile(r"[,;:]+")
_AS_PLAIN = str.maketrans("‘’´", "'''", '“”„«»"') | str.maketrans(
    {
        "–": ", ",
        "—": ", ",
        "，": ", ",
        "、": ", ",
        "…": ". ",
        "。": ". ",
        "！": "! ",
        "？": "? ",
    }
)
_Words = Sequence[str | None]


def tidy_text(text: str) -> str:
    """Return a text in lower case on one line, with plain quotes and single spaces, cut at
    `LONGEST_CAPTION`."""
    text = text[: 2 * LONGEST_CAPTION].translate(_AS_PLAIN)
    text = "".join(map(_printed, text))
    text = unicodedata.normalize("NFC", text).lower()
    text = unicodedata.normalize("NFC", text)
    text = " ".join(text.split())
    if len(text) <= LONGEST_CAPTION:
        return text
    whole_words, _, _ = text[:LONGEST_CAPTION].rpartition(" ")
    return whole_words


def first_sentence(text: str) -> tuple[str, str]:
    """Return a text up to its first full stop, and what comes after it."""
    stop = _STOP.search(text)
    if stop is None:
        return text, ""
    return text[: stop.start()], text[stop.end() :]


def before_noun(text: str) -> list[str]:
    """Return the words before a noun, without its article: "person and a", "black and white",
    "red"."""
    words = words_of_text(_BREAK.sub(" ", text))
    if words and words[0] in ARTICLES:
        words = words[1:]
    opening: list[str | None] = []
    for at, word in enumerate(words):
        if word is not None and opens_noun(word):
            opening = words[: at + 1]
    groups = grouped_words(words[len(opening) :])
    if opening and opening[-1] == "an":
        opening[-1] = "a"
    phrases = [group for group in groups if group[-1] not in JOINING]
    if any(word not in EMPTY for word in opening):
        phrases.insert(0, opening)
    return _each_once(map(_joined, phrases))


def opens_noun(word: str) -> bool:
    """Check whether a noun phrase begins after this word."""
    return word in ARTICLES or word in _PREPOSITIONS or word in _TRANSITIVE


def grouped_words(words: _Words) -> list[list[str | None]]:
    """Return each word as a group of its own, except that "black and white" and "pair of" are one
    group each. An "and" at the end is in the group of the word before it.
    """
    groups: list[list[str | None]] = []
    at = 0
    while at < len(words):
        group = [words[at]]
        at += 1
        if group[0] in JOINING or group[0] == "of":
            continue
        while at < len(words) and words[at] in JOINING:
            group += words[at : at + 2]
            at += 2
        if at < len(words) and words[at] == "of" and group[-1] not in JOINING:
            group.append("of")
            at += 1
        groups.append(group)
    return groups


def phrases_of(text: str) -> list[str]:
    """Return the phrases after a noun: "in the snow", "at night". `text` is the rest of the noun's
    sentence. It is cut at commas and where a phrase opens.
    """
    phrases: list[str | None] = []
    for part in _BREAK.split(text):
        words = words_of_text(part)
        # Words before the first opening belong to its phrase: "that is sitting on a floor".
        openings = phrase_openings(words)
        cuts = [0, *openings[1:], len(words)]
        for low, high in pairwise(cuts):
            phrase = words[low:high]
            while phrase and phrase[-1] in _DANGLING:
                phrase = phrase[:-1]
            if any(word not in EMPTY for word in phrase):
                phrases.append(_joined(phrase))
    return _each_once(phrases)


def phrase_openings(words: _Words) -> list[int]:
    """Return the indices of the words that open a phrase. If several words in a row could open one
    ("sitting on"), only the first of them does.
    """
    starts: list[int] = []
    before = None
    opened = False
    between = False
    for at, word in enumerate(words):
        after = words[at + 1] if at + 1 < len(words) else None
        joins = word == "and" and (after in DETERMINERS or at == 0)
        if joins and between:
            # "between a wall and a fence"
            joins = between = False
        opens = before not in DETERMINERS and (joins or _opens(word, after))
        if opens and not opened:
            starts.append(at)
            between = False
        between = between or word == "between"
        before = word
        opened = opens
    return starts


def sentences_of(text: str) -> list[str]:
    """Return whole sentences, each with its full stop: "it is on a yellow flower."."""
    return _each_once(_sentence(part) for part in _STOP.split(text))


def words_of_text(text: str) -> list[str | None]:
    """Return words without the punctuation around them; None for a refused word."""
    return [word for word in map(_word, text.split()) if word != ""]


def _opens(word: str | None, after: str | None) -> bool:
    if word in _WITH_TO:
        return after == "to"
    if word in _WITH_PREPOSITION:
        return after in _BEHIND
    return word in _PREPOSITIONS or word in _PARTICIPLES


def _printed(letter: str) -> str:
    kind = unicodedata.category(letter)
    # Invisible characters (a zero-width space) vanish; line breaks and halves of surrogate pairs
    # become spaces.
    if kind == "Cf":
        return ""
    return " " if kind[0] in "CZ" else letter


def _word(token: str) -> str | None:
    if not REFUSED.isdisjoint(token):
        return None
    low = 0
    high = len(token)
    # Combining marks belong to their letters, so "की" keeps its last sign.
    while low < high and unicodedata.category(token[low])[0] in "PSM":
        low += 1
    while high > low and unicodedata.category(token[high - 1])[0] in "PS":
        high -= 1
    return token[low:high] if high - low <= LONGEST_WORD else None


def _sentence(text: str) -> str | None:
    words: list[str | None] = []
    for token in text.split():
        word = _word(token)
        if word and token.endswith(","):
            word = f"{word},"
        if word != "":
            words.append(word)
    if words and words[-1] is not None:
        words[-1] = words[-1].rstrip(",")
    joined = _joined(words)
    if joined is None or all(word in EMPTY for word in words):
        return None
    return f"{joined}."


def _joined(words: _Words) -> str | None:
    """Join the words without repetitions. Return None if a word was refused, if no word has a
    letter, or if the text is too long.
    """
    distinct: list[str] = []
    for word in words:
        if word is None:
            return None
        if not distinct or word != distinct[-1]:
            distinct.append(word)
    if not 0 < len(distinct) <= MOST_WORDS:
        return None
    text = " ".join(distinct)
    if not any(letter.isalpha() for letter in text):
        return None
    return text


def _each_once(texts: Iterable[str | None]) -> list[str]:
    distinct = dict.fromkeys(texts)
    return [text for text in distinct if text is not None]
