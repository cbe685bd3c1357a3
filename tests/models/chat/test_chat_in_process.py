"""Chat models that answer in this process: a tiny random one, its chance, its bounds, and what is refused of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.chat import ChatModel, load_chat
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
    (folder / name).write_text(json.dumps({key: value for key, value in document.items() if value is not None}))


def test_the_greedy_answer_is_that_of_the_model_itself(folder: Path, model: ChatModel) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    own = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer(f"user : {ASKED[0]['content']}\nassistant :", return_tensors="pt")["input_ids"]
    for _ in range(24):
        best = own(input_ids=ids).logits[0, -1].argmax()
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
    with pytest.raises(RunFailure, match="leaves no room for an answer, for it reads 40 at most"):
        short.answer([{"role": "user", "content": "a " * 60}], schema={}, seed=0, most_tokens=20, temperature=0)


def test_settings_of_generation_that_a_folder_brings_are_not_followed(tmp_path: Path, model: ChatModel) -> None:
    folder = llama(tmp_path / "tiny")
    changed_config(folder, "generation_config.json", do_sample=True, temperature=9.0, max_new_tokens=1, min_length=50)
    assert answer(load_chat(str(folder))) == answer(model)


def test_what_is_no_chat_model_is_refused_by_its_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it has no chat template, so nobody can talk with it"):
        load_chat(str(llama(tmp_path / "mute", template=None)))
    with pytest.raises(UserError, match="transformers has no text model of that kind"):
        load_chat(str(llava(tmp_path / "seeing")))
    with pytest.raises(UserError, match=r"has no config\.json"):
        (tmp_path / "empty").mkdir()
        load_chat(str(tmp_path / "empty"))


@pytest.mark.parametrize("hostile", [
    {"auto_map": {"AutoModelForCausalLM": "evil.Model"}},
    {"quantization_config": {"quant_method": "gptq"}},
    {"vocab_size": 10**12},
    {"hidden_size": 999_984},
    {"num_hidden_layers": 100_000},
    {"architectures": ["GPT2LMHeadModel"]},
    {"num_hidden_layers": 1},
])  # fmt: skip
def test_a_configuration_that_asks_for_more_than_the_weights_are_is_not_loaded(tmp_path: Path, hostile: dict) -> None:
    folder = llama(tmp_path / "tiny")
    changed_config(folder, **hostile)
    with pytest.raises(UserError):
        load_chat(str(folder))


def test_pickled_and_missing_weights_are_not_read(tmp_path: Path) -> None:
    folder = llama(tmp_path / "tiny")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no model\.safetensors"):
        load_chat(str(folder))


def test_a_template_that_fails_is_told(tmp_path: Path) -> None:
    folder = llama(tmp_path / "tiny", template=TEMPLATE + "{{ raise_exception('never') }}")
    with pytest.raises(RunFailure, match=r"its chat template cannot be rendered: .*never"):
        answer(load_chat(str(folder)))


def test_a_tokenizer_of_another_model_is_told(tmp_path: Path) -> None:
    folder = llama(tmp_path / "tiny")
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["vocab"]["snow"] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(RunFailure, match="its tokenizer gives the id 5000"):
        answer(load_chat(str(folder)))
