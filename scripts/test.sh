#!/usr/bin/env bash
# Check everything: ruff, pyright, pytest. Stops at the first failure. Arguments go to pytest:
#
#     bash scripts/test.sh tests/recipe -x
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_counterfoil test
cd "$root"

# One thread a process: the tests start worker processes of their own, and the same thread count everywhere
# means the same bytes everywhere.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# Otherwise pyright asks the network for a newer version of itself.
export PYRIGHT_PYTHON_IGNORE_WARNINGS=1

bin=$venv/bin
"$bin/ruff" check .
"$bin/ruff" format --check .
"$bin/pyright"
# A process a core, whole files at a time, so that what a file's tests share is made once; in the order of the folders,
# since builds come first there and the quickest files last.
"$bin/python" -m pytest --numprocesses logical --dist loadfile --no-loadscope-reorder "$@"
