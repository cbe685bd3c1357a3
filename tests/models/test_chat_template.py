"""Templates of strangers: rendered as transformers renders them, in bounded memory, time and length."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from counterfoil.errors import RunFailure
from counterfoil.models import chat_template
from counterfoil.models.chat_template import rendered

TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "Answer in JSON."},
    {"role": "user", "content": [{"type": "image", "image": object()}, {"type": "text", "text": "What < is “this”?"}]},
    {"role": "assistant", "content": "A bag."},
    {"role": "user", "content": "And now?"},
]
# What published templates do, each in a few lines of our own.
TEMPLATES = {
    "blocks": """{{ bos_token }}
    {%- for message in messages %}
        {%- if loop.first and message.role == 'system' %}{% continue %}{% endif %}
        {{- '<|' + message['role'] + '|>' }}
        {%- if message.content is string %}{{ message.content | trim }}
        {%- else %}
            {%- for part in message.content %}{{ '<image>' if 'image' in part else part.text }}{% endfor %}
        {%- endif %}
    {%- endfor %}
    {%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}""",
    "namespace": """{%- set ns = namespace(found=false, last=dict(a=1)) -%}
    {%- for message in messages[::-1] %}{% if message.role == 'user' and not ns.found %}{% set ns.found = true %}
    {{ message | tojson }}{{ loop.index0 }}{% endif %}{% endfor %}{{ ns.last.a }}{{ enable_thinking is defined }}""",
    "macro": """{% macro said(turn) %}[{{ turn.role }}]{% endmacro %}{% for m in messages %}{{ said(m) }}
    {% generation %}{{ m.content | string | length }}{% endgeneration %}{% break %}{% endfor %}{{ tools is none }}""",
    "json": "{{ {'b': [1, 2.5, none, true], 'a': 'ü'} | tojson(indent=2, sort_keys=true) }}{{ strftime_now('%Y') }}",
}


def holder(template: Any) -> Any:
    return SimpleNamespace(chat_template=template, special_tokens_map={"bos_token": "<s>", "eos_token": "</s>"})


@pytest.mark.parametrize("asked", [{}, {"add_generation_prompt": True, "enable_thinking": False}])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_says_what_transformers_lets_it_say(name: str, asked: dict[str, bool]) -> None:
    own = holder(TEMPLATES[name])
    variables: dict[str, Any] = {"add_generation_prompt": False} | own.special_tokens_map | asked
    (expected,), _ = render_jinja_template(conversations=[TURNS], chat_template=own.chat_template, **variables)
    assert rendered("m", own, TURNS, **asked) == expected
    assert rendered("m", holder({"default": own.chat_template, "tool_use": "no"}), TURNS, **asked) == expected


@pytest.mark.parametrize(("template", "words"), [
    ("{{ 'a' * 6000000000 }}", "more than 1,024 MB of memory"),
    ("{% set n = namespace(t='a' * 1000) %}{% for i in range(40) %}{% set n.t = n.t + n.t %}{% endfor %}", "memory"),
    ("{{ 'a' * 1000001 }}", "more than 1,000,000 letters"),
    ("{{ raise_exception('only a user may begin') }}", "only a user may begin"),
    ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ("{{ messages.append(1) }}", "Error"),
    ("{{ namespace(_a=1) }}", "a namespace has no '_a'"),
    ("{% for", "TemplateSyntaxError"),
    ("{% macro a(n) %}{{ a(n) }}{% endmacro %}{{ a(1) }}", "cannot be rendered"),
])  # fmt: skip
def test_a_template_that_takes_too_much_or_fails_is_told(template: str, words: str) -> None:
    with pytest.raises(RunFailure, match="its chat template cannot be rendered") as told:
        rendered("m", holder(template), TURNS)
    assert words in str(told.value)


def test_a_template_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "_MOST_SECONDS", 1)
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(RunFailure, match="takes more than 1 seconds"):
        rendered("m", holder(loops), TURNS)


def test_templates_without_a_default_are_none() -> None:
    with pytest.raises(RunFailure, match="no chat template of the name default"):
        rendered("m", holder({"tool_use": "x"}), TURNS)


def test_keys_do_not_reach_the_process_that_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    real = chat_template.subprocess.run
    monkeypatch.setattr(chat_template.subprocess, "run", lambda *a, **k: (given.update(k), real(*a, **k))[1])
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert rendered("m", holder("{{ messages | length }} {{ add_generation_prompt }}"), TURNS[:2]) == "2 False"
    assert "secret" not in str(given["env"]) and given["env"]["PATH"] == os.environ["PATH"]
