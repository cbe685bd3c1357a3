#!/usr/bin/env bash
# The outputs of every command that tells results, in one folder, for `compare_outputs.py`: about twenty minutes.
#   scripts/record_outputs.sh OUT
set -u
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
counterfoil=$venv/bin/counterfoil
export OMP_NUM_THREADS=1 COLUMNS=120 NO_COLOR=1
mkdir -p "$1" && cd "$1" || exit 1
run() { name=$1; shift; echo "== $name"; ( time "$counterfoil" "$@" ) > $name.out 2> $name.err; echo "rc $?" >> $name.err; tail -4 $name.err | head -1; }
run build build wardrobe-mini --out mini
run evaluate evaluate mini --out evaluation --distances clip --distances lab:resnet10t --compare lab:resnet14t lab:resnet10t --into-card
run evaluate_json evaluate mini --out evaluation-json --json
run labelled evaluate lab:wardrobe:validation --recipe wardrobe-mini --models lab:resnet10t lab:resnet14t --out labelled
run labelled_json evaluate lab:wardrobe:validation --recipe wardrobe-mini --models lab:resnet10t lab:resnet14t --out labelled-json --json
run calibrate calibrate mini --json
run review review mini --json
run mine mine wardrobe-star --target lab:resnet10t --on audit --out mined
run contexts mine wardrobe-contexts --target lab:resnet10t --out contexts
run bugs mine wardrobe-bugs --target lab:resnet10t --out bugs --set mine.settings.classes='["08","05"]' --set mine.settings.baseline=32 --set mine.settings.clusters=2 --set mine.settings.pairs=32 --set mine.settings.captions=2
run bugs_set build bugs/adversarial.yaml --out bugs-set
run bugs_evaluate evaluate bugs-set --out bugs-evaluation --into-card
run mined_built build mined/recipe.yaml --out mined-built --set samples.candidates=8
run mined_evaluate evaluate mined-built --out mined-evaluation --into-card
run contexts_built build contexts/recipe.yaml --out contexts/built
run mend mend --model lab:resnet10t --on wardrobe-contexts --with contexts/built --save best --out mended
run mend_json mend --model lab:resnet10t --on wardrobe-contexts --with contexts/built --save best --out mended-json --json
run boxes build wardrobe-boxes --out boxes --set samples.candidates=40
run boxes_evaluate evaluate boxes --out boxes-evaluation --repo someone/boxes --into-card
run masks build wardrobe-masks --out masks --set samples.candidates=40
run masks_evaluate evaluate masks --out masks-evaluation --repo someone/masks --into-card
# Photographs with several labels, three of each patient, and scores drawn for them.
"$venv/bin/python" - <<'END'
import csv
import pathlib

import numpy as np
from PIL import Image

rng, folder = np.random.default_rng(0), pathlib.Path("scans")
folder.mkdir(exist_ok=True)
with (folder / "metadata.csv").open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["file_name", "patient", "edema", "nodule", "effusion"])
    for number in range(60):
        Image.fromarray(rng.integers(60, 120, (32, 32, 3)).astype(np.uint8)).save(folder / f"{number:02d}.png")
        rows.writerow([f"{number:02d}.png", f"P{number % 20}", *(rng.random(3) < (0.5, 0.4, 0.3)).astype(int)])
pathlib.Path("labels.yaml").write_text("""
recipe: 1
name: labels
source:
  dataset: ./scans
  train_split: train
  validation_split: train
  unit_column: patient
  conditions: {columns: [edema, nodule, effusion]}
generator: {kind: corrupt, split: train}
prompts: {shifts: {fog: {corruption: fog}, snow: {corruption: snow}}}
samples: {candidates: 60}
""")
END
run labels build labels.yaml --out labels
run labels_keys evaluate labels --write-keys label-keys.csv
"$venv/bin/python" - <<'END'
import csv

import numpy as np
import pyarrow.parquet as pq

rng = np.random.default_rng(1)
table = pq.ParquetDataset("labels/data").read(columns=["key", "shift", "conditions"]).sort_by("key").to_pylist()
with open("answers.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["key", "edema", "nodule", "effusion"])
    for row in table:
        skill = 2.0 if row["shift"] == "base" else 1.0
        rows.writerow([row["key"], *(skill * np.isin(range(3), row["conditions"]) + rng.normal(size=3)).round(6)])
END
run labels_evaluate evaluate labels --models predictions:answers.csv --out labels-evaluation --repo someone/labels --into-card
