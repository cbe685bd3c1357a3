#!/usr/bin/env bash
# Check everything that a change can break: ruff, pyright, pytest. Arguments go to pytest:
#
#     bash scripts/test.sh tests/recipe -x
#
# What takes longer is scripts/test_whole.sh.
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

# Beside the tests, since alone it keeps one core busy and the other idle; with memory, since collecting garbage takes it
# a third of its time else.
types=$(mktemp)
NODE_OPTIONS="--max-semi-space-size=256 --max-old-space-size=8192" "$bin/pyright" >"$types" 2>&1 &
pyright=$!
trap 'kill "$pyright" 2>/dev/null || true; rm -f "$types"' EXIT

# A process a core, whole files at a time, so that what a file's tests share is made once.
"$bin/python" -m pytest --numprocesses logical --dist loadfile --no-loadscope-reorder -m "not whole" "$@"

if ! wait "$pyright"; then
  cat "$types"
  exit 1
fi
tail -n 1 "$types"
