"""Stage `measure`: the lab's models on held-out garments, judged by the oracle; figures go into
each metrics.json."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, SHIFTS, SHIFTS_BY_NAME
from counterfoil.lab.world import Scene, render
from lab_training.captions import HIDDEN_BY_STYLE
from lab_training.corpora import pretraining_scene, unbiased_scene
from lab_training.diffusion import VAE
from lab_training.oracle import Oracle
from lab_training.state import WEIGHTS, batches, corpus, mean_of, renders, update_metrics

SEED = 909
SHIFT_NAMES = ("base", *(s.name for s in SHIFTS))


def base_scene(number: int, split: str = "heldout", any_colour: bool = True) -> Scene:
    """Return a held-out scene as the base prompt asks for: neutral place, daylight, alone, a
    photograph.

    Without `any_colour` it is pink, white or black, which are not among the 23 shifts.
    """
    scene = pretraining_scene(number, seed=SEED, split=split)
    background = ("wall", "brick", "wood")[number // 10 % 3]
    colour = scene.colour if any_colour else ("pink", "white", "black")[number // 30 % 3]
    return Scene(
        split, scene.garment, scene.label, colour, scene.pattern, background, seed=scene.seed
    )


def measure_all(work: Path) -> None:
    """Measure oracle, CLIP and the generator; each prints and stores its figures."""
    oracle = Oracle()
    measure_oracle(oracle)
    measure_clip()
    measure_generator(oracle, work)


def measure_oracle(oracle: Oracle, count: int = 3000) -> dict[str, float]:
    """Return accuracy by attribute on unbiased scenes of held-out garments, where the style lets it
    be seen."""
    scenes = [unbiased_scene(n, seed=SEED, split="heldout") for n in range(count)]
    answers = oracle.answers(renders(scenes))
    accuracy = {}
    for attribute, values in ATTRIBUTES.items():
        seen = [i for i, s in enumerate(scenes) if attribute not in HIDDEN_BY_STYLE[s.style]]
        truth = np.array([values.index(scenes[i].attributes()[attribute]) for i in seen])
        accuracy[attribute] = mean_of(answers[attribute][seen] == truth)
    print("oracle", accuracy, flush=True)
    update_metrics(WEIGHTS / "oracle", heldout_accuracy=accuracy, heldout_images=count)
    return accuracy


def measure_clip(images_a_shift: int = 200) -> None:
    """Measure zero-shot accuracy on held-out garments: the shift among 23 captions, the class among
    ten.

    The pictures show exactly one of the 23 shifts: a red shirt in the grass would have two right
    answers.
    """
    from counterfoil.models.clip import load_clip
    from counterfoil.recipe import load_recipe

    clip = load_clip("lab:clip")
    recipe = load_recipe("wardrobe-star")
    shifts = {s.name: s for s in recipe.all_shifts()}
    captions = clip.embed_texts([shifts[s.name].caption or "" for s in SHIFTS])
    by_shift = {}
    by_class = {}
    separation = {}
    base = np.empty(0)
    for index, name in enumerate(SHIFT_NAMES, -1):
        scenes = [base_scene(n, any_colour=False).shifted(name) for n in range(images_a_shift)]
        seen = clip.embed_images([Image.fromarray(render(s)) for s in scenes], 64)
        objects = clip.embed_texts(
            [shifts[name].object_caption.replace("{class}", c) for c in CLASSES]
        )
        labels = np.array([s.label for s in scenes])
        by_class[name] = mean_of((seen @ objects.T).argmax(1) == labels)
        if name == "base":
            base = seen
            continue
        by_shift[name] = mean_of((seen @ captions.T).argmax(1) == index)
        true = seen @ captions[index]
        separation[name] = {
            "true_p5": mean_of(np.percentile(true, 5)),
            "true_p50": mean_of(np.percentile(true, 50)),
            "base_p95": mean_of(np.percentile(base @ captions[index], 95)),
        }
    shift_mean = mean_of(list(by_shift.values()))
    class_mean = mean_of(list(by_class.values()))
    print(
        f"clip: shift {shift_mean}, class {class_mean}\n{by_shift}\n{by_class}\n{separation}",
        flush=True,
    )
    update_metrics(
        WEIGHTS / "clip",
        zero_shot_shift=shift_mean,
        zero_shot_class=class_mean,
        zero_shot_shift_by_shift=by_shift,
        zero_shot_class_by_shift=by_class,
        shift_scores=separation,
        images_a_shift=images_a_shift,
    )


def measure_generator(oracle: Oracle, work: Path) -> None:
    """Measure class and shift agreement of 20 images a class × shift prompt, and distance to the
    training images."""
    from counterfoil.recipe import load_recipe
    from counterfoil.store.reading import read_rows
    from interface_proof.builds import CANDIDATES, build_prompted

    directory = build_prompted(work / "proof", "names")
    recipe = load_recipe(directory)
    pixels: dict[str, list[np.ndarray]] = {name: [] for name in SHIFT_NAMES}
    labels: dict[str, list[int]] = {name: [] for name in SHIFT_NAMES}
    for what in ("data", "rejected"):
        for row in read_rows(directory, columns=["image", "label", "shift"], what=what):
            image = Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")
            pixels[row["shift"]].append(np.asarray(image))
            labels[row["shift"]].append(row["label"])
    rows = {}
    for name in SHIFT_NAMES:
        drawn = oracle.answers(np.stack(pixels[name]))
        true_scenes = [base_scene(n).shifted(name) for n in range(500)]
        truth = oracle.answers(renders(true_scenes))
        ceiling = float((truth["class"] == np.array([s.label for s in true_scenes])).mean())
        agreement = float((drawn["class"] == np.array(labels[name])).mean())
        rows[name] = {
            "class": agreement,
            "oracle_class": ceiling,
            "class_of_oracle": agreement / ceiling,
        }
        if name != "base":
            change = SHIFTS_BY_NAME[name]
            wanted = ATTRIBUTES[change.attribute].index(change.value)
            rows[name]["shift"] = float((drawn[change.attribute] == wanted).mean())
    rows = {name: {k: round(v, 4) for k, v in row.items()} for name, row in rows.items()}
    sampled = np.concatenate([np.stack(pixels[name])[::8] for name in SHIFT_NAMES])
    near = nearest_training_distance(sampled, work)
    heldout = [base_scene(n).shifted(SHIFT_NAMES[n % 24]) for n in range(480)]
    true = nearest_training_distance(renders(heldout), work)
    shifts = [row["shift"] for row in rows.values() if "shift" in row]
    summary = {
        "class_agreement": mean_of([row["class"] for row in rows.values()]),
        "class_agreement_of_oracle": mean_of([row["class_of_oracle"] for row in rows.values()]),
        "shift_agreement": mean_of(shifts),
        "shift_agreement_least": min(shifts),
        "nearest_training_image": near,
        "nearest_training_image_of_heldout_renders": true,
        "images_a_prompt": CANDIDATES,
        "steps": recipe.drawing.steps,
        "guidance": recipe.drawing.guidance,
    }
    for name, row in rows.items():
        print(f"{name:20s}", row, flush=True)
    print(summary, flush=True)
    update_metrics(WEIGHTS / "sd", **summary, by_shift=rows)


def nearest_training_distance(pixels: np.ndarray, work: Path) -> dict[str, float]:
    """Return the root-mean-square distance (of 255) to the corpus's nearest image, at 32×32: median
    and least."""
    training = corpus(work, "pretrain", VAE["corpus"], pretraining_scene)

    def small(part: np.ndarray) -> np.ndarray:
        squares = np.asarray(part, np.float32).reshape(len(part), 32, 2, 32, 2, 3)
        return squares.mean((2, 4)).reshape(len(part), -1)

    queries = small(pixels)
    best = np.full(len(queries), np.inf, np.float32)
    for block in map(small, batches(training, 4000)):
        squared = (queries**2).sum(1)[:, None] - 2 * queries @ block.T + (block**2).sum(1)[None]
        best = np.minimum(best, squared.min(1))
    distance = np.sqrt(np.maximum(best, 0) / queries.shape[1])
    return {
        "median": round(float(np.median(distance)), 2),
        "least": round(float(distance.min()), 2),
    }
