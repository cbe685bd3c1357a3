#!/usr/bin/env bash
# The outputs of every command that tells results, in one folder, for `compare_outputs.py`: about fifteen minutes.
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
