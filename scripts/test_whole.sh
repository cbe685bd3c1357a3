#!/usr/bin/env bash
# Check what takes too long for every change, and put the counts into scripts/RESULTS.md:
#
#     bash scripts/test_whole.sh                  # all of it, hours on two cores
#     bash scripts/test_whole.sh tests fuzz       # some of it
#
# tests: those marked `whole`, and the bundled large recipes with every shift and step; fuzz: 10,000 hostile cases;
# storm: publishing under a hundred kills; lowest: the main path with the lowest versions of every dependency.
# Run it at the end of a change to what it covers. Stops at the first failure.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_counterfoil test
cd "$root"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
bin=$venv/bin

tests() {
  "$bin/python" -m pytest --numprocesses logical --dist loadfile --no-loadscope-reorder -m whole
}

fuzz() {
  "$bin/python" scripts/fuzz.py --cases 10000 --write
}

storm() {
  [[ -f .demo/wardrobe-mini/manifest.json ]] || bash scripts/demo.sh
  "$bin/python" scripts/storm_publish.py --kills 100 --write
}

lowest() {
  bash scripts/test_lowest.sh
}

parts=("$@")
((${#parts[@]})) || parts=(tests fuzz storm lowest)
for part in "${parts[@]}"; do
  case $part in
    tests | fuzz | storm | lowest) ;;
    *)
      echo "error: unknown part '$part'; expected tests, fuzz, storm or lowest" >&2
      exit 2
      ;;
  esac
done
for part in "${parts[@]}"; do
  started=$SECONDS
  echo "== $part"
  "$part"
  echo "== $part: passed in $((SECONDS - started)) s"
done
