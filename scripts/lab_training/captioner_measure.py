"""What `lab:captioner` says of renders of held-out garments and of what `lab:sd` draws, against what is there.

What is there is known of a render and prompted of a drawn picture; of the latter the oracle is asked too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from counterfoil.lab.scenes import caption_of, pretraining_scene, tellable, unbiased_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, MARKS
from counterfoil.lab.world import Oracle, Scene, render
from lab_training.caption_claims import UNTOLD, claims_of
from lab_training.corpus import to_tensor
from lab_training.decoder import draw
from lab_training.state import WEIGHTS, update_metrics

MEASURED = {"seed": 909, "scenes": 2000, "drawn": 400, "steps": 12, "guidance": 3.0}


@dataclass(frozen=True, slots=True)
class Captioner:
    """`lab:captioner` opened as anybody opens it: greedy captions, and the log-likelihood of given ones."""

    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, folder: Any = WEIGHTS / "captioner") -> Captioner:
        from transformers import AutoModelForImageTextToText, AutoTokenizer

        model = AutoModelForImageTextToText.from_pretrained(folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        return cls(model.eval().requires_grad_(False), tokenizer)

    def write(self, pixels: np.ndarray, prefixes: Sequence[str] | None = None, batch: int = 100) -> list[str]:
        """Greedy captions of pictures uint8 [n, 64, 64, 3], each begun by its prefix where there are any."""
        begun = prefixes or [""] * len(pixels)
        captions = [""] * len(pixels)
        ids = [self._ids(prefix) for prefix in begun]
        for length in sorted({len(each) for each in ids}):  # no padding within a batch
            rows = [row for row, each in enumerate(ids) if len(each) == length]
            for start in range(0, len(rows), batch):
                part = rows[start : start + batch]
                with torch.inference_mode():
                    out = self.model.generate(
                        pixel_values=to_tensor(pixels[part]),
                        decoder_input_ids=torch.tensor([ids[row] for row in part]),
                        do_sample=False,
                    )
                for row, words in zip(part, self.tokenizer.batch_decode(out, skip_special_tokens=True), strict=True):
                    captions[row] = words
        return captions

    def likelihoods(self, pixels: np.ndarray, captions: Sequence[str], batch: int = 200) -> np.ndarray:
        """Sums of log-likelihoods [n] of a caption and its end, given its picture."""
        sums = []
        for start in range(0, len(captions), batch):
            ids = [[*self._ids(c), self.tokenizer.eos_token_id] for c in captions[start : start + batch]]
            longest = max(map(len, ids))
            table = torch.tensor([each + [-100] * (longest - len(each)) for each in ids])
            inputs, labels = table[:, :-1].clamp(min=0), table[:, 1:]
            with torch.inference_mode():
                logits = self.model(
                    pixel_values=to_tensor(pixels[start : start + batch]), decoder_input_ids=inputs
                ).logits
            chosen = logits.float().log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
            sums.append((chosen * (labels >= 0)).sum(1).numpy())
        return np.concatenate(sums)

    def _ids(self, text: str) -> list[int]:
        words = self.tokenizer(text, add_special_tokens=False).input_ids if text else []
        return [self.tokenizer.bos_token_id, *words]


def measure_captioner() -> None:
    """Words, likelihoods, completions and drawn pictures; into metrics.json."""
    captioner = Captioner.load()
    count = MEASURED["scenes"] // 2
    metrics: dict[str, Any] = {"measured": MEASURED}
    for name, scene_of in (("as_the_generator_learned", pretraining_scene), ("every_value_common", unbiased_scene)):
        scenes = [scene_of(number, seed=MEASURED["seed"], split="heldout") for number in range(count)]
        pixels = np.stack([render(scene) for scene in scenes])
        metrics[name] = of_renders(captioner, scenes, pixels)
        for what, row in metrics[name].items():
            print(f"{name} {what:24s}", row, flush=True)
    metrics["drawn_by_lab_sd"] = of_drawn(captioner)
    for what, row in metrics["drawn_by_lab_sd"].items():
        print(f"drawn {what:24s}", row, flush=True)
    update_metrics(WEIGHTS / "captioner", **metrics)


def of_renders(captioner: Captioner, scenes: Sequence[Scene], pixels: np.ndarray) -> dict[str, Any]:
    """Every figure of true renders, each by attribute."""
    attributes = [scene.attributes() for scene in scenes]
    captions = captioner.write(pixels)
    prefixes = [f"a photo of a {each['class']}" for each in attributes]
    completed = captioner.write(pixels, prefixes)
    photographs = [row for row, each in enumerate(attributes) if each["style"] == "photo"]
    behind = {"background", "weather", "light"}
    forced = words_right([attributes[row] for row in photographs], [completed[row] for row in photographs])
    marked = [row for row, each in enumerate(attributes) if MARKS.get(each["class"]) == each["pattern"]]
    patterned = sum(claims_of(captions[row]).get("pattern") == attributes[row]["pattern"] for row in marked)
    return words_right(attributes, captions) | {
        "completed_right": {a: rate for a, rate in forced["told_right"].items() if a in behind},
        "true_above_changed": likelihood_order(captioner, attributes, pixels),
        "true_above_changed_alone": likelihood_order(captioner, attributes, pixels, alone=True),
        "marks_told": {
            "captions": sum(map(marks_told, captions)),
            # A striped shirt that is taken for a pullover is called a striped pullover.
            "pattern_told_under_another_class": int(patterned),
            "marked_pictures": len(marked),
        },
    }


def marks_told(caption: str) -> bool:
    """Whether a caption tells the mark of the class that it names."""
    claims = claims_of(caption)
    return "pattern" in claims and MARKS.get(claims.get("class", "")) == claims["pattern"]


def words_right(attributes: Sequence[Mapping[str, str]], captions: Sequence[str]) -> dict[str, dict[str, float]]:
    """By attribute: right words where there are some to tell; false words in all, and where there are none to tell."""
    told = [claims_of(caption) for caption in captions]
    right: dict[str, float] = {}
    false: dict[str, float] = {}
    absent: dict[str, float] = {}
    for attribute in ATTRIBUTES:
        true = [tellable(each).get(attribute) for each in attributes]
        said = [claims.get(attribute) for claims in told]
        there = [s == t for s, t in zip(said, true, strict=True) if t is not None]
        nothing = [s is not None for s, t in zip(said, true, strict=True) if t is None]
        if there:
            right[attribute] = round(float(np.mean(there)), 4)
        false[attribute] = round(float(np.mean([s is not None and s != t for s, t in zip(said, true, strict=True)])), 4)
        if nothing:
            absent[attribute] = round(float(np.mean(nothing)), 4)
    return {"told_right": right, "told_false": false, "told_where_nothing_is": absent}


def likelihood_order(
    captioner: Captioner, attributes: Sequence[Mapping[str, str]], pixels: np.ndarray, alone: bool = False
) -> dict[str, float]:
    """By attribute, how often the true caption is likelier than the same with that attribute's value changed at random.

    The true caption is the whole one, or tells style, class and that attribute alone. Sums of words and end, no length
    normalisation. No changed caption tells a mark: it would be refused for that.
    """
    order = {}
    for place, attribute in enumerate(ATTRIBUTES):
        rng = np.random.default_rng([MEASURED["seed"], place])
        rows, true, false = [], [], []
        for row, each in enumerate(attributes):
            told = tellable(each)
            claims = {a: v for a, v in told.items() if not alone or a in ("style", "class", attribute)}
            changed = changed_claims(claims, attribute, rng)
            if changed is not None:
                rows.append(row)
                true.append(caption_of(claims))
                false.append(caption_of(changed))
        above = captioner.likelihoods(pixels[rows], true) > captioner.likelihoods(pixels[rows], false)
        order[attribute] = round(float(above.mean()), 4)
    return order


def changed_claims(claims: Mapping[str, str], attribute: str, rng: np.random.Generator) -> dict[str, str] | None:
    """The claims with another value of `attribute`; None where it is not claimed or every other value tells a mark."""
    if attribute not in claims:
        return None
    others = [v for v in ATTRIBUTES[attribute] if v != claims[attribute] and v not in UNTOLD]
    candidates = [{**claims, attribute: value} for value in others]
    candidates = [c for c in candidates if "pattern" not in c or MARKS.get(c["class"]) != c["pattern"]]
    return candidates[int(rng.integers(len(candidates)))] if candidates else None


def of_drawn(captioner: Captioner) -> dict[str, Any]:
    """Captions of pictures that `lab:sd` drew of held-out scenes' captions: right by the prompt and by the oracle."""
    scenes = [pretraining_scene(n, seed=MEASURED["seed"], split="heldout") for n in range(MEASURED["drawn"])]
    prompts = [caption_of(tellable(scene.attributes())) for scene in scenes]
    pixels = draw(prompts, None)
    captions = captioner.write(pixels)
    told = [claims_of(caption) for caption in captions]
    prompted = [tellable(scene.attributes()) for scene in scenes]
    answers = Oracle().judge(pixels)
    seen = [{a: values[answers[a][row]] for a, values in ATTRIBUTES.items()} for row in range(len(scenes))]
    by_prompt, oracle_by_prompt, by_oracle, of_both = {}, {}, {}, {}
    for attribute in ATTRIBUTES:
        rows = [r for r, claims in enumerate(prompted) if attribute in claims]
        want = [prompted[r][attribute] for r in rows]
        by_prompt[attribute] = _share([told[r].get(attribute) == w for r, w in zip(rows, want, strict=True)])
        oracle_by_prompt[attribute] = _share([seen[r][attribute] == w for r, w in zip(rows, want, strict=True)])
        agreed = [r for r, w in zip(rows, want, strict=True) if seen[r][attribute] == w]
        of_both[attribute] = _share([told[r].get(attribute) == seen[r][attribute] for r in agreed])
        shown = [r for r in range(len(scenes)) if attribute in tellable(seen[r])]
        by_oracle[attribute] = _share([told[r].get(attribute) == seen[r][attribute] for r in shown])
    false = words_right(seen, captions)["told_false"]
    return {
        "told_as_prompted": by_prompt,
        "told_as_the_oracle_reads": by_oracle,
        "told_where_prompt_and_oracle_agree": of_both,
        "told_false_by_the_oracle": false,
        "oracle_as_prompted": oracle_by_prompt,
    }


def _share(hits: Sequence[bool]) -> float | None:
    return round(float(np.mean(hits)), 4) if hits else None
