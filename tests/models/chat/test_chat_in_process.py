"""Chat models in this process, and their templates: programs of strangers, rendered within
bounds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.utils.chat_template_utils import render_jinja_template

from counterfoil.errors import RunFailure, UserError
from counterfoil.models import text_models
from counterfoil.models.chat import ChatModel, load_chat
from counterfoil.models.text_models import render_chat
from tiny_captioners import llava
from tiny_chats import TEMPLATE, llama

ASKED = [{"role": "user", "content": "describe a sandal in the snow"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("chat") / "tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> ChatModel:
    return load_chat(f"local-dir:{folder}")


def answer(model: ChatModel, **changed: Any) -> str:
    given: dict[str, Any] = {"seed": 0, "most_tokens": 24, "temperature": 0.0}
    return model.answer(ASKED, schema={}, **(given | changed))


def changed_config(folder: Path, name: str = "config.json", **values: Any) -> None:
    document = json.loads((folder / name).read_text())
    document |= values
    (folder / name).write_text(
        json.dumps({key: value for key, value in document.items() if value is not None})
    )


def test_the_greedy_answer_is_that_of_the_model_itself(folder: Path, model: ChatModel) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    plain = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer(f"user : {ASKED[0]['content']}\nassistant :", return_tensors="pt")["input_ids"]
    for _ in range(24):
        best = plain(input_ids=ids).logits[0, -1].argmax()
        if int(best) == 1:
            break
        ids = torch.cat([ids, best.view(1, 1)], dim=1)
    begun = tokenizer(f"user : {ASKED[0]['content']}\nassistant :")["input_ids"]
    expected = tokenizer.decode(ids[0, len(begun) :].tolist(), skip_special_tokens=True).strip()
    assert answer(model) == expected != ""


def test_a_seed_gives_its_answer_again_and_nobody_elses_chance_is_moved(model: ChatModel) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    drawn = [answer(model, temperature=1.0, seed=seed) for seed in range(4)]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert [answer(model, temperature=1.0, seed=seed) for seed in range(4)] == drawn
    assert len({*drawn}) > 1 and answer(model, seed=1) == answer(model, seed=2)


def test_a_name_of_either_form_and_a_path_are_one_model(folder: Path, model: ChatModel) -> None:
    for name in (str(folder), f"transformers:{folder}", f"transformers:local-dir:{folder}"):
        assert answer(load_chat(name)) == answer(model)


def test_an_answer_ends_where_the_model_can_read_no_further(tmp_path: Path) -> None:
    short = load_chat(str(llama(tmp_path / "short", positions=40)))
    words = answer(short, most_tokens=10_000).split()
    assert 0 < len(words) <= 40
    with pytest.raises(
        RunFailure, match="leaves no room for an answer, because it reads at most 40"
    ):
        short.answer(
            [{"role": "user", "content": "a " * 60}],
            schema={},
            seed=0,
            most_tokens=20,
            temperature=0,
        )


def test_settings_of_generation_that_a_folder_brings_are_not_followed(
    tmp_path: Path, model: ChatModel
) -> None:
    folder = llama(tmp_path / "tiny")
    changed_config(
        folder,
        "generation_config.json",
        do_sample=True,
        temperature=9.0,
        max_new_tokens=1,
        min_length=50,
    )
    assert answer(load_chat(str(folder))) == answer(model)


def test_what_is_no_chat_model_is_refused_by_its_files(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="it has no chat template, so it cannot be used as a chat model"
    ):
        load_chat(str(llama(tmp_path / "mute", template=None)))
    with pytest.raises(UserError, match="transformers has no text model of that kind"):
        load_chat(str(llava(tmp_path / "seeing")))
    with pytest.raises(UserError, match=r"has no config\.json"):
        (tmp_path / "empty").mkdir()
        load_chat(str(tmp_path / "empty"))


@pytest.mark.parametrize("hostile", [
    {"auto_map": {"AutoModelForCausalLM": "evil.Model"}},
    {"vocab_size": 10**12},
    {"hidden_size": 999_984},
    {"architectures": ["GPT2LMHeadModel"]},
    {"num_hidden_layers": 1},
])  # fmt: skip
def test_a_configuration_that_asks_for_more_than_the_weights_are_is_not_loaded(
    tmp_path: Path, hostile: dict
) -> None:
    folder = llama(tmp_path / "tiny")
    changed_config(folder, **hostile)
    with pytest.raises(UserError):
        load_chat(str(folder))


def test_a_template_that_fails_is_reported(tmp_path: Path) -> None:
    folder = llama(tmp_path / "tiny", template=TEMPLATE + "{{ raise_exception('never') }}")
    with pytest.raises(RunFailure, match=r"its chat template cannot be rendered: .*never"):
        answer(load_chat(str(folder)))


def test_a_tokenizer_of_another_model_is_reported(tmp_path: Path) -> None:
    folder = llama(tmp_path / "tiny")
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["vocab"]["snow"] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(RunFailure, match="its tokenizer gives the id 5000"):
        answer(load_chat(str(folder)))


TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "Answer in JSON."},
    {
        "role": "user",
        "content": [
            {"type": "image", "image": object()},
            {"type": "text", "text": "What < is “this”?"},
        ],
    },
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
    "json": "{{ {'b': [1, 2.5, none, true], 'a': 'ü'} | tojson(indent=2, sort_keys=true) }}{{"
    " strftime_now('%Y') }}",
}


SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def holder(template: Any) -> Any:
    return SimpleNamespace(chat_template=template, special_tokens_map=SPECIAL)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_says_what_transformers_lets_it_say(name: str) -> None:
    template = TEMPLATES[name]
    for options in ({}, {"add_generation_prompt": True, "enable_thinking": False}):
        variables: dict[str, Any] = {"add_generation_prompt": False, **SPECIAL, **options}
        (expected,), _ = render_jinja_template(
            conversations=[TURNS], chat_template=template, **variables
        )
        tokenizer = holder({"default": template, "tool_use": "no"} if options else template)
        assert render_chat("m", tokenizer, TURNS, **options) == expected


@pytest.mark.parametrize(("template", "words"), [
    ("{{ 'a' * 6000000000 }}", "more than 1,024 MB of memory"),

    ("{{ 'a' * 1000001 }}", "more than 1,000,000 letters"),
    ("{{ raise_exception('only a user may begin') }}", "only a user may begin"),
    ({"tool_use": "x"}, "no chat template of the name default"),
    ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ("{{ messages.append(1) }}", "Error"),
    ("{{ namespace(_a=1) }}", "a namespace has no '_a'"),
    ("{% for", "TemplateSyntaxError"),
    ("{% macro a(n) %}{{ a(n) }}{% endmacro %}{{ a(1) }}", "cannot be rendered"),
])  # fmt: skip
def test_a_template_that_takes_too_much_or_fails_is_reported(template: Any, words: str) -> None:
    with pytest.raises(RunFailure) as caught:
        render_chat("m", holder(template), TURNS)
    assert words in str(caught.value)


def test_a_template_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_models, "_MOST_SECONDS", 1)
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(RunFailure, match="takes more than 1 seconds"):
        render_chat("m", holder(loops), TURNS)


def test_keys_do_not_reach_the_process_that_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    real = text_models.subprocess.run
    monkeypatch.setattr(
        text_models.subprocess, "run", lambda *a, **k: (given.update(k), real(*a, **k))[1]
    )
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert (
        render_chat("m", holder("{{ messages | length }} {{ add_generation_prompt }}"), TURNS[:2])
        == "2 False"
    )
    assert "secret" not in str(given["env"]) and given["env"]["PATH"] == os.environ["PATH"]
