#!/usr/bin/env bash
# From a checkout to a report in a few minutes: install, then `counterfoil demo`. Run again to resume.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_counterfoil
cd "$root"

"$venv/bin/counterfoil" demo --out .demo

cat <<END

Begin with your own images (a folder of class folders) by
  source $venv/bin/activate && counterfoil init PHOTOS --out photos.yaml
END
