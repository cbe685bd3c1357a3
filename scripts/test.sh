#!/usr/bin/env bash
# Check everything that a change can break: ruff, pyrefly, pytest. Arguments go to pytest:
#
#     bash scripts/test.sh tests/recipe -x
#     PYTHON=python3.13 bash scripts/test.sh     # with another Python, in an environment of its own
#
# Tests marked `release` run where what they cover changed since the last green run (scripts/release_tests.py), where tests are
# named, and all of them where CI=true. What takes longer is scripts/test_whole.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_counterfoil test
cd "$root"

# One thread a process: the tests start worker processes of their own, and the same thread count everywhere
# means the same bytes everywhere.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# What tests write lies in memory where there is room: every build flushes its files, which takes a disk as long again.
if [[ -w /dev/shm && -z ${TMPDIR:-} ]] && (($(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1) >= 8)); then
  TMPDIR=$(mktemp -d /dev/shm/counterfoil-XXXXXX)
  export TMPDIR
  trap 'rm -rf "$TMPDIR"' EXIT
fi

bin=$venv/bin
"$bin/ruff" check .
"$bin/ruff" format --check .
# Beside the tests, which begin on one core; what it says stands before theirs.
"$bin/pyrefly" check --python-interpreter-path "$bin/python" &
types=$!

marks="not whole"
if [[ ${CI:-} != true && " $*" != *" tests"* ]]; then
  marks=$("$bin/python" scripts/release_tests.py "$venv/release-tests-passed")
fi

# Whole files at a time, so that what a file's tests share is made once; a process more than cores, as many tests wait.
processes=$(($("$bin/python" -c "import os; print(os.cpu_count())") + 1))
"$bin/python" -m pytest --tx "$processes*popen//python='$bin/python' tests/warm/pytest_worker.py" --dist loadfile \
  --no-loadscope-reorder -m "$marks" "$@" || failed=$?
wait $types
if [[ -z ${failed:-} && $# == 0 && ${CI:-} != true ]]; then
  mv "$venv/release-tests-passed.now" "$venv/release-tests-passed"
fi
exit "${failed:-0}"
