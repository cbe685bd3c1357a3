#!/usr/bin/env bash
# The whole way in a few minutes: install, build wardrobe-mini, score its eight classifiers, say where to look.
# Run again to resume; what is done is not done again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_counterfoil
cd "$root"

dataset=.demo/wardrobe-mini
report=$dataset-evaluation
"$venv/bin/counterfoil" build wardrobe-mini --out "$dataset"
"$venv/bin/counterfoil" evaluate "$dataset" --out "$report" --into-card

cat <<END

Look at
  the dataset's card     $root/$dataset/README.md
  the contact sheets     $root/$dataset/figures/
  the report             $root/$report/report.html
  every failure          $root/$report/failures.html
and load it with
  $venv/bin/python -c 'from datasets import load_dataset; print(load_dataset("$root/$dataset"))'
and begin with your own images (a folder of class folders) by
  source $venv/bin/activate && counterfoil init PHOTOS --out photos.yaml
END
