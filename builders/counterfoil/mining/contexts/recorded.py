"""Every question to a chat model and its answer, kept in a file and replayed: a run repeats without the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from counterfoil.errors import UserError
from counterfoil.mining.word_files import with_tuples
from counterfoil.recipe.names import ELSEWHERE
from counterfoil.recipe.schema_mine import ChatSettings
from counterfoil.regular_files import named_path, read_regular
from counterfoil.section import Section
from counterfoil.store.atomic import write_atomically

ANSWERS = "answers.json"
FORMAT = 1
# Of an answer. What is longer is cut before it is looked at, so that what was taken is what is kept.
LONGEST_ANSWER = 100_000
_MOST_BYTES = 1 << 28


class Turn(Section):
    """One turn of a talk."""

    role: Literal["user", "assistant"]
    content: str = Field(max_length=LONGEST_ANSWER + 10_000)


class Answered(Section):
    """A question, with all that decides its answer, and the answer; `taken` says whether it could be used.

    `model` is the model's name, of a folder its last part. Nothing of a key, an address or a time is kept.
    """

    model: str
    messages: tuple[Turn, ...]
    answer_schema: dict[str, Any]
    seed: int
    temperature: float
    most_tokens: int
    text: str = Field(max_length=LONGEST_ANSWER)
    taken: bool

    @property
    def sha256(self) -> str:
        """The hash of the question: what was asked of whom, and how."""
        asked = self.model_dump(mode="json", exclude={"text", "taken"})
        asked["temperature"] = float(self.temperature)
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


class _Document(Section):
    format: Literal[1]
    answers: tuple[Answered, ...]


@dataclass
class Record:
    """The answers of a folder (`path`), and those of an earlier run that are replayed, by the hash of the question."""

    path: Path
    model: str
    own: dict[str, Answered]
    earlier: Mapping[str, Answered] = field(default_factory=dict)
    _unsaved: bool = False

    @classmethod
    def open(cls, folder: Path, settings: ChatSettings, model: str | None) -> Record:
        """What `folder` and `settings.answers` hold. UserError for files that are no recorded answers.

        `model` is the name that questions are kept under; without one it is that of the recorded answers, and
        UserError where they are not of one model.
        """
        path = folder / ANSWERS
        own = _read(path) if path.exists() else {}
        earlier = {} if settings.answers is None else _read(_named(settings.answers))
        models = sorted({one.model for one in (earlier or own).values()})
        if model is None and len(models) != 1:
            of = f"{len(models)} models ({', '.join(models[:3])})" if models else "no model"
            raise UserError(
                f"mine.settings.chat: the recorded answers are of {of}, and no model is named",
                "Say whose are replayed: --set mine.settings.chat.model=NAME",
            )
        return cls(path, model if model is not None else models[0], own, earlier)

    def find(self, question: Answered) -> Answered | None:
        """What was answered to a question, of this folder first; what an earlier run brings is kept here too."""
        key = question.sha256
        if key not in self.own and key in self.earlier:
            self.own[key] = self.earlier[key]
            self._unsaved = True
        return self.own.get(key)

    def forget(self, answers: Sequence[Answered]) -> None:
        """Take answers for not given: their questions are asked anew."""
        for one in answers:
            self._unsaved |= self.own.pop(one.sha256, None) is not None

    def keep(self, answered: Answered) -> None:
        """Keep an answer: it is on the disk when this returns."""
        self.own[answered.sha256] = answered
        self._unsaved = True
        self.save()

    def save(self) -> None:
        """Write what is not written yet, whole or not at all."""
        if self._unsaved:
            document = {"format": FORMAT, "answers": [one.model_dump(mode="json") for one in self.own.values()]}
            text = json.dumps(document, indent=1, ensure_ascii=False)
            # Halves of letters, which a server may send, are no UTF-8.
            write_atomically(self.path, f"{text}\n".encode("utf-8", "backslashreplace"))
            self._unsaved = False


def _named(answers: str) -> Path:
    if answers.startswith(ELSEWHERE):
        raise UserError(
            f"mine.settings.chat.answers: {answers.removeprefix(ELSEWHERE)} is a file of another machine",
            "Say where it lies: --set mine.settings.chat.answers=PATH",
        )
    return named_path(answers)


def _read(path: Path) -> dict[str, Answered]:
    expected = f"expected the {ANSWERS} of an earlier run"
    try:
        raw = json.loads(read_regular(path, _MOST_BYTES))
        document = _Document.model_validate(with_tuples(raw), strict=True)
    except OSError as error:
        raise UserError(f"recorded answers: {path}: {error.strerror or error}; {expected}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise UserError(f"recorded answers: {path}: {place}: {first['msg']}; {expected}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"recorded answers: {path} is no readable JSON; {expected}") from error
    return {one.sha256: one for one in document.answers}
