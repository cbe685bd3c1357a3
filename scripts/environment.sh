# The virtual environment of this checkout, made once: sourced by demo.sh and test.sh, and by test_lowest.sh, which
# sets `venv` to another folder.
#
#     install_counterfoil         what the commands need
#     install_counterfoil test    and what the tests need
#
# A stamp in it tells what was installed; nothing is installed again until pyproject.toml, the Python
# or the checkout's folder changes. PYTHON names another interpreter for a new environment.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv

find_python() {
  local name
  for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  echo "error: no Python 3.11 or newer was found; install one, or name one: PYTHON=/path/to/python3" >&2
  return 1
}

# What an installation depends on, as one line.
fingerprint() {
  "$venv/bin/python" - "$root" "$1" <<'PY'
import hashlib, pathlib, sys

root, extra = sys.argv[1:]
parts = (root, extra, sys.version, pathlib.Path(root, "pyproject.toml").read_text())
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PY
}

# Whether an extra (or none, "") is installed as pyproject.toml asks now.
is_installed() {
  [[ -f $venv/installed-${1:-base} && $(cat "$venv/installed-${1:-base}") == "$(fingerprint "$1")" ]]
}

install_counterfoil() {
  local extra=${1:-} python
  if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    echo "Making ${venv##*/} with $python"
    if ! "$python" -m venv --clear "$venv"; then
      echo "error: ${venv##*/} could not be made; on Debian and Ubuntu, install python3-venv" >&2
      return 1
    fi
  fi
  # The tests' installation holds all that the commands need.
  if is_installed "$extra" || is_installed test; then
    return
  fi
  echo "Installing Counterfoil in ${venv##*/} (once; PyTorch is large)"
  (cd "$root" && "$venv/bin/python" -m pip install --disable-pip-version-check --no-compile --editable ".${extra:+[$extra]}")
  fingerprint "$extra" >"$venv/installed-${extra:-base}"
}
