"""Train, export and measure the lab's models in resumable, seeded stages.

    python scripts/train_lab.py STAGE [STAGE …] [--work .train] [--threads N]

Stages, in the order they build on each other: vae, latents, sd, export-sd, clip, oracle,
classifiers, tokens, decoder, captioner, detector, segmenter, measure.
Each can be killed and started again; checkpoints lie in the work folder, which git ignores.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from program import new_parser, training_arguments

STAGES = {
    "vae": "lab_training.diffusion:train_vae",
    "latents": "lab_training.diffusion:encode_latents",
    "sd": "lab_training.diffusion:train_diffusion",
    "export-sd": "lab_training.diffusion:export_pipeline",
    "clip": "lab_training.contrastive:train_clip",
    "oracle": "lab_training.classify:train_oracle",
    "classifiers": "lab_training.classify:train_classifiers",
    "tokens": "lab_training.class_tokens:make_tokens",
    "decoder": "lab_training.decoder:train_decoder",
    "captioner": "lab_training.captioner:train_captioner",
    "detector": "lab_training.detector:train_detector",
    "segmenter": "lab_training.segmenter:train_segmenter",
    "measure": "lab_training.measure:measure_all",
}


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("stages", nargs="+", choices=list(STAGES))
    parser.add_argument("--work", type=Path, default=Path(".train"))
    arguments = training_arguments(parser)
    for stage in arguments.stages:
        module, function = STAGES[stage].split(":")
        print(f"stage {stage}", flush=True)
        getattr(importlib.import_module(module), function)(arguments.work)


if __name__ == "__main__":
    main()
