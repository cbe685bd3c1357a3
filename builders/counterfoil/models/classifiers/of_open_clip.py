"""Load zero-shot classifiers of open_clip: `open_clip:ARCH/TAG`, `open_clip:lab:clip`,
`:local-dir:FOLDER`, `:hf-hub:`.

The outputs are the dataset's own classes. A class's direction is the normalised mean of the unit
embeddings of its name in OpenAI's 80 templates (Radford et al. 2021, section 3.1.4), or in one
plain template for the lab's model. The class's score is the cosine of this direction with the
image, times the model's scale.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from counterfoil.errors import some_of
from counterfoil.models.classifiers.classifier import (
    Classifier,
    ClassifierFacts,
    module_fields,
    unique_output_names,
)
from counterfoil.models.clip import load_clip, pin_clip, refuse_odd_clip, refuse_unknown_weights
from counterfoil.models.config_files import refuse_unlike_sides
from counterfoil.models.loading_errors import while_loading
from counterfoil.models.messages import refusal
from counterfoil.models.names import HUB, LAB, Pin, local_folder
from counterfoil.models.weights_files import refuse_infinite
from counterfoil.recipe.names import OPEN_CLIP, is_local
from counterfoil.report.words import format_count

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe.prompts import RecipeClass

LAB_TEMPLATES = ("a photo of a {}",)
# The name of a folder that is an id of WordNet or a number; a digit may be what an image shows.
_WORDLESS = re.compile(r"n\d{8}|\d{2,}")
_MOST_NAMED = 3
# Maps open_clip's ways to fit an image's sides to timm's crop modes.
_MODES = {"shortest": "center", "longest": "border", "squash": "squash"}


@dataclass(frozen=True, kw_only=True)
class ZeroShotClassifier(Classifier):
    """A CLIP model and the unit directions of the classes, float32 (d, num_classes)."""

    preprocess: Any
    resize_mode: str
    directions: torch.Tensor
    scale: float

    def transform(self) -> Callable[[Any], Any]:
        assert self.input_size is not None
        sides = self.input_size[1:]
        mode = _MODES.get(self.resize_mode, "center")

        def transformed(image: Any) -> Any:
            refuse_unlike_sides(self.name, image.size, sides, mode)
            return self.preprocess(image)

        return transformed

    def stages(self) -> Any:
        return self.preprocess

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        return self.scale * self.features(batch, device) @ self.directions

    def features(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            vectors = self.module.encode_image(batch.to(device), normalize=True)
            return vectors.float().cpu()


def describe(name: str, classes: Sequence[RecipeClass]) -> ClassifierFacts:
    model, weights = _named(name)
    if not classes:
        where = f"model {name!r}"
        raise refusal("unmatched-classes.none", where)
    architecture = model
    if weights is None:
        architecture = "open_clip"
        folder = local_folder(model)
        if folder is not None:
            refuse_odd_clip(name, folder)
    outputs = unique_output_names(classes)
    return ClassifierFacts(
        name,
        f"{model}/{weights or ''}",
        architecture,
        len(outputs),
        outputs,
    )


def load(name: str, device: str, classes: Sequence[RecipeClass]) -> ZeroShotClassifier:
    """Load the model on `device`, and embed the classes' names."""
    import torch

    facts = describe(name, classes)
    model, weights = _named(name)
    templates = default_templates(model)
    revision = None
    if weights is not None:
        revision = pin_zero_shot(name).revision
    clip = load_clip(model, weights, device, revision=revision)
    refuse_infinite(name, clip.module)
    prepared = dict(clip.module.visual.preprocess_cfg)
    size = prepared["size"]
    height, width = (size, size) if isinstance(size, int) else size
    # Folders have `_` in place of spaces, which CLIP would read as a character.
    names = [" ".join(label.name.replace("_", " ").split()) for label in classes]
    directions = []
    digest = hashlib.sha256()
    for class_name in names:
        captions = [template.replace("{}", class_name) for template in templates]
        tokens = clip.tokenizer(captions)
        digest.update(tokens.numpy().tobytes())
        tokens = tokens.to(clip.device)
        with torch.inference_mode():
            vectors = clip.module.encode_text(tokens, normalize=True)
            mean = vectors.float().mean(dim=0)
            direction = torch.nn.functional.normalize(mean, dim=0)
            directions.append(direction.cpu())
    content = json.dumps([facts.architecture, names, templates])
    # Weights show neither the activation of their towers nor how captions become tokens.
    decides = [prepared, clip.config, digest.hexdigest()]
    preparation = json.dumps(decides, sort_keys=True, default=str)
    return ZeroShotClassifier(
        **module_fields(facts, clip.module, content, device),
        input_key=f"open_clip {version('open_clip_torch')} {preparation}",
        input_size=(3, int(height), int(width)),
        crop_pct=1.0,
        interpolation=str(prepared["interpolation"]),
        preprocess=clip.preprocess,
        resize_mode=str(prepared["resize_mode"]),
        directions=torch.stack(directions, dim=1),
        scale=float(clip.module.logit_scale.exp()),
        read=_wordless_note(names),
    )


def _wordless_note(names: Sequence[str]) -> str:
    """Say which names mean nothing to CLIP: ids of WordNet, and numbers."""
    wordless = [name for name in names if _WORDLESS.fullmatch(name)]
    if not wordless:
        return ""
    count = format_count(len(names), "class", "classes")
    return (
        f"{len(wordless):,} of {count} have a number or an id as a name, which CLIP does not know"
        f" ({some_of(wordless, _MOST_NAMED)}): its answers are worth little unless classes are named"
        " in words"
    )


def pin_zero_shot(name: str) -> Pin:
    model, weights = _named(name)
    return while_loading(name, lambda: pin_clip(model, weights))


def default_templates(model: str) -> tuple[str, ...]:
    """Return the captions of a class. `{}` stands for its name."""
    if model.startswith(LAB):
        return LAB_TEMPLATES
    from open_clip import OPENAI_IMAGENET_TEMPLATES

    return tuple(template("{}") for template in OPENAI_IMAGENET_TEMPLATES)


def _named(name: str) -> tuple[str, str | None]:
    """Return open_clip's name of the model, and the tag of its weights. A folder or repository has
    no tag."""
    rest = name.removeprefix(OPEN_CLIP)
    if rest.startswith((LAB, HUB)) or is_local(rest):
        return rest, None
    architecture, _, tag = rest.partition("/")
    who = f"model {name!r}"
    hint = "Write open_clip:ARCH/TAG, such as open_clip:ViT-B-32/laion2b_s34b_b79k."
    refuse_unknown_weights(
        architecture,
        tag,
        who,
        who,
        hint,
    )
    return architecture, tag
