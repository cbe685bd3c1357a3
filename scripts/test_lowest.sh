#!/usr/bin/env bash
# Test the lowest versions that pyproject.toml allows, of every dependency and of Python: install exactly these in an
# environment of their own, .venv-lowest, then go the main path with them and run the tests named below. Stops at the
# first failure. Arguments go to pytest:
#
#     bash scripts/test_lowest.sh --numprocesses 1
#
# The environment takes 8 GB and is used again until pyproject.toml changes. PYTHON names another interpreter.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
venv=$root/.venv-lowest
export PYTHON=${PYTHON:-python3.11}
cd "$root"

constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
"$(find_python)" scripts/lowest_versions.py >"$constraints"
# In the environment of pip, so that they hold for what it installs to build the package, too. Eager, so that what is
# not named here is the newest that fits, however old the environment is.
(
  export PIP_CONSTRAINT=$constraints PIP_BUILD_CONSTRAINT=$constraints PIP_UPGRADE=1 PIP_UPGRADE_STRATEGY=eager
  install_counterfoil test
)
"$venv/bin/python" -m pip --disable-pip-version-check check
"$venv/bin/python" scripts/lowest_versions.py --installed

# One thread a process, as in test.sh.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
bin=$venv/bin
"$bin/ruff" check .
"$bin/ruff" format --check .
"$bin/pyrefly" check --python-interpreter-path "$bin/python" builders
"$bin/pre-commit" validate-config .pre-commit-config.yaml
"$bin/python" scripts/main_path.py
# Hostile weights, the Hub's client, published datasets read back in every way by the libraries that cards name, and the
# wheel, built and installed.
tests=("$bin/python" -m pytest --numprocesses logical --dist loadfile "$@")
"${tests[@]}" tests/models tests/data/test_hub.py tests/downstream tests/test_wheel.py
"${tests[@]}" tests/dataset/card/test_croissant.py  # alone, since the tests of cards keep the Hub's client offline
