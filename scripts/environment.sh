# The virtual environment of this checkout, made once: sourced by demo.sh and test.sh, and by test_lowest.sh, which
# sets `venv` to another folder.
#
#     install_counterfoil         what the commands need
#     install_counterfoil test    and what the tests need
#
# A stamp in it tells what was installed; nothing is installed again until pyproject.toml, the Python
# or the checkout's folder changes. PYTHON names another interpreter, by a name or a path: where .venv is of another
# version, that one's environment is .venv-3.13 beside it.

# Some images set this; then every process would compile all that it imports, for seconds.
unset PYTHONDONTWRITEBYTECODE

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
version() { "$1" -c 'import sys; assert sys.version_info >= (3, 11); print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

if [[ -n ${PYTHON:-} ]]; then
  if ! asked=$(version "$PYTHON"); then
    echo "error: PYTHON=$PYTHON is no Python 3.11 or newer" >&2
    exit 1
  fi
  if [[ -x $venv/bin/python && $(version "$venv/bin/python") != "$asked" ]]; then venv=$root/.venv-$asked; fi
fi

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

# Run a command whose output goes to a file, with one line that tells how long it has been; its output where it fails.
quietly() {
  local log=$1 started=$SECONDS process told
  shift
  "$@" >"$log" 2>&1 &
  process=$!
  trap 'kill "$process" 2>/dev/null || true; trap - INT; kill -INT $$' INT
  while kill -0 "$process" 2>/dev/null; do
    told="  $((SECONDS - started)) s, $(du -sh "$venv" 2>/dev/null | cut -f1) so far; what pip says is in ${log#"$root"/}"
    if [[ -t 1 ]]; then
      printf '\r\033[K%s' "$told"
      sleep 1
    else
      ((SECONDS - started)) && echo "$told"
      for _ in {1..30}; do kill -0 "$process" 2>/dev/null && sleep 1; done
    fi
  done
  trap - INT
  if [[ -t 1 ]]; then printf '\r\033[K'; fi
  if ! wait "$process"; then
    tail -n 40 "$log" >&2
    echo "error: the installation failed; all of it is in $log" >&2
    return 1
  fi
  echo "  done in $((SECONDS - started)) s"
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
  quietly "$venv/install.log" "$venv/bin/python" -m pip install --disable-pip-version-check --no-compile \
    --progress-bar off --editable "$root${extra:+[$extra]}"
  fingerprint "$extra" >"$venv/installed-${extra:-base}"
}
