"""The form of `mine.settings` for the method `contexts`: who proposes contexts, which are chosen, how much is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from counterfoil.recipe.names import ELSEWHERE
from counterfoil.recipe.templates import template_problem
from counterfoil.section import Section, refuse

CONTEXT = "context"
_PLACES = ("{class}", f"{{{CONTEXT}}}")
# What is asked of each axis that is known. Chegini 2023, section 3.1, asks for uncommon backgrounds.
QUESTIONS = {
    "background": "What are uncommon backgrounds that a {class} can appear in?",
    "colour": "What are uncommon colours that a {class} can have?",
    "size": "What are uncommon sizes or distances at which a {class} can appear?",
    "light": "What are uncommon lights or weathers that a {class} can be photographed in?",
}
# Where a context of an axis stands in a sentence. Chegini 2023, Table 4, for the first and for all others.
_BEHIND = "a photo of a {class} {context}"
_PROMPTS = {"colour": "a photo of a {context} {class}"}


class ChatSettings(Section):
    """A chat model that is asked for contexts. No key is written here: it comes from the login or the environment."""

    model: str | None = Field(
        default=None,
        min_length=1,
        description="A chat model of the Hub's providers, or as `base_url` serves it; `transformers:NAME[@REVISION]`"
        " and `local-dir:PATH` answer in this process. null: the one whose recorded `answers` are replayed.",
    )
    base_url: str | None = Field(
        default=None,
        min_length=1,
        description="An address that speaks OpenAI's protocol, such as http://localhost:8000/v1 (vLLM, llama.cpp,"
        " Ollama, `transformers serve`). Its key, where it wants one, is OPENAI_API_KEY of the environment.",
    )
    most: int = Field(default=8, ge=1, le=100, description="Contexts that are asked for, a class.")
    tries: int = Field(
        default=3, ge=1, le=20, description="Questions a class, at most: an answer that cannot be used is asked again."
    )
    seed: int = Field(default=0, ge=0, lt=2**31, description="Seed of the answers, where the model takes one.")
    temperature: float = Field(default=0.0, ge=0, le=2, description="0: the likeliest answer; above, drawn ones.")
    most_tokens: int = Field(default=512, ge=16, le=32_768, description="Tokens of an answer, at most.")
    answers: str | None = Field(
        default=None,
        min_length=1,
        description="Path of recorded answers (`answers.json` of an earlier run), from the recipe's folder: what was"
        " asked before is replayed and the model not asked again.",
    )

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None:
            refuse(_address_problem(value))
        return value

    @model_validator(mode="after")
    def _somebody_answers(self) -> ChatSettings:
        if self.model is None and self.base_url is not None:
            raise ValueError("base_url needs model beside it: the name of a model that is served there")
        if self.model is None and self.answers is None:
            raise ValueError("nobody answers, expected model, or answers that were recorded")
        own = self.model is not None and self.model.startswith(("transformers:", "local-dir:", "/", "./", "../", "~"))
        if own and self.base_url is not None:
            raise ValueError(f"model '{self.model}' answers in this process, expected no base_url beside it")
        return self


class ContextsSettings(Section):
    """Settings of `contexts` (Chegini 2023): contexts of each class are proposed, and failures choose among them."""

    axis: str = Field(
        default="background",
        min_length=1,
        max_length=100,
        description="What contexts tell: background, colour, size or light; any other needs `question`.",
    )
    question: str | None = Field(
        default=None, max_length=1000, description="What a chat model is asked, with {class}; null: that of the axis."
    )
    contexts: str | None = Field(
        default=None,
        min_length=1,
        description="Contexts that people wrote: a bundled list (`wardrobe`, `wardrobe-colours`, `cifar10`, `cifar100`,"
        " `imagenet`), or a YAML file of your own.",
    )
    chat: ChatSettings | None = Field(
        default=None, description="A chat model that proposes contexts, beside those of a list or in place of them."
    )
    similarity: float = Field(
        default=0.97,
        gt=0,
        le=1,
        description="Two contexts of a class whose captions have a larger cosine by CLIP are one, and the first stays.",
    )
    k: int = Field(default=3, ge=1, le=100, description="Contexts a class that are carried to the test, at most.")
    rank: Literal["count", "lift"] = Field(
        default="count",
        description="What contexts of a class are ordered by: `count`, failures that CLIP finds there (Chegini 2023);"
        " `lift`, their share among failures over that among right answers.",
    )
    fewest_failures: int = Field(default=2, ge=1, le=1000, description="A context with fewer failures is not chosen.")
    pooled: tuple[str, ...] = Field(
        default=(),
        description="Classifiers whose failures choose contexts too, beside the target's: one set of images for all of"
        " them (Chegini 2023, section 5.3.2, type 1).",
    )
    prompt: str = Field(
        default=_BEHIND,
        min_length=1,
        max_length=1000,
        description="The caption and prompt of a class in a context, with {class} and {context} once each;"
        " unless it is told, of colours `a photo of a {context} {class}`.",
    )
    images: int = Field(default=5, ge=1, le=1000, description="Images that are drawn for each failure (Chegini 2023).")
    at_most_images: int = Field(default=100, ge=1, le=1_000_000, description="Images a context, at most.")
    controls: bool = Field(
        default=True, description="Also draw as many images of class names alone, and of random other contexts."
    )

    @model_validator(mode="before")
    @classmethod
    def _prompt_of_the_axis(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get("prompt") is not None or str(data.get("axis")) not in _PROMPTS:
            return data
        return {**data, "prompt": _PROMPTS[data["axis"]]}

    @field_validator("question")
    @classmethod
    def _asks_of_a_class(cls, value: str | None) -> str | None:
        refuse(None if value is None else template_problem(value, with_class=True))
        return value

    @field_validator("prompt")
    @classmethod
    def _says_both(cls, value: str) -> str:
        refuse(_prompt_problem(value))
        return value

    @model_validator(mode="after")
    def _can_propose(self) -> ContextsSettings:
        if self.contexts is None and self.chat is None:
            raise ValueError("nobody proposes contexts, expected `contexts` (a list), `chat` (a model), or both")
        if self.chat is not None and self.question is None and self.axis not in QUESTIONS:
            raise ValueError(
                f"axis is '{self.axis}', of which no question is known ({', '.join(QUESTIONS)} are);"
                " expected `question` beside it, with {class}"
            )
        return self

    def asked(self) -> str:
        """The question to a chat model, with {class}. Only where `chat` is set is there one for certain."""
        return self.question if self.question is not None else QUESTIONS[self.axis]

    def caption(self, class_name: str, context: str) -> str:
        """The prompt of a class in a context; what is filled in is never read as a template."""
        words = dict(zip(_PLACES, (class_name, context), strict=True))
        first, second = sorted(_PLACES, key=self.prompt.index)
        before, _, rest = self.prompt.partition(first)
        between, _, after = rest.partition(second)
        return f"{before}{words[first]}{between}{words[second]}{after}"


def _prompt_problem(prompt: str) -> str | None:
    bare = prompt
    for place in _PLACES:
        if prompt.count(place) != 1:
            return f"found '{prompt}', expected {place} once"
        bare = bare.replace(place, "")
    return f"found '{prompt}', expected no braces but {' and '.join(_PLACES)}" if {*"{}"} & {*bare} else None


def _address_problem(address: str) -> str | None:
    """What keeps an address from being one that may stand in a file, or None. What may be a key is not shown."""
    try:
        parts: Any = urlsplit(address.removeprefix(ELSEWHERE))
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return "found no address that can be read, expected one such as http://localhost:8000/v1"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return (
            "found an address with a name, a key or a question in it, expected the plain one;"
            " a key is set in the environment, as OPENAI_API_KEY"
        )
    if parts.scheme not in ("http", "https") or not host or not address.isprintable() or " " in address:
        return f"found '{address[:80]}', expected an address such as http://localhost:8000/v1"
    return None
