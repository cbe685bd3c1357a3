#!/usr/bin/env bash
# Check what takes too long for every change, and put the counts into scripts/RESULTS.md:
#
#     bash scripts/test_whole.sh                  # all of it, hours on two cores
#     bash scripts/test_whole.sh tests fuzz       # some of it
#
# processors: world, plans, builds, kills and resumes as on older processors, emulated; tests: those marked `whole` or
# `release`; examples: all properties with 1,000 examples each; large: the bundled large recipes with every shift and
# step, an hour; fuzz: 10,000 hostile cases; storm: publications under a hundred kills, and twenty of every command;
# lowest: the main path with the lowest versions of every dependency.
# Run it at the end of a change to what it covers. Stops at the first failure.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_counterfoil test
cd "$root"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
bin=$venv/bin

junit=$(mktemp)
trap 'rm -f "$junit"' EXIT

tests() {
  "$bin/python" -m pytest --numprocesses logical --dist loadfile --no-loadscope-reorder --junitxml "$junit" \
    -m "whole or release"
}

# Everything that must hold on another processor, on two that are emulated; what they are is in tests/support/processors.py.
processors() {
  local level
  for level in AVX2 SSE; do
    echo "as on a processor with $level"
    PYTHONPATH=tests "$bin/python" -m support.processors "$level" "$bin/python" -m pytest --numprocesses logical --dist loadfile \
      --junitxml "$junit" -m "not whole and not release" tests/lab tests/plan tests/recipe tests/generate tests/building \
      tests/models tests/dataset tests/test_stats.py tests/test_paired_stats.py tests/test_trajectory_stats.py
  done
}

examples() {
  COUNTERFOIL_EXAMPLES=1000 "$bin/python" -m pytest --numprocesses logical --dist loadfile --no-loadscope-reorder \
    --junitxml "$junit" -m hypothesis
}

large() {
  COUNTERFOIL_WHOLE=1 "$bin/python" -m pytest --junitxml "$junit" tests/building/test_building_large.py
}

fuzz() {
  "$bin/python" scripts/fuzz.py --cases 10000 --write
}

storm() {
  [[ -f .demo/wardrobe-mini/manifest.json ]] || bash scripts/demo.sh
  "$bin/python" scripts/storm_publish.py --kills 100 --write
  "$bin/python" scripts/storm.py --kills 20 --write
}

lowest() {
  bash scripts/test_lowest.sh
}

# One line into RESULTS.md: what a part was, how long it took, and the counts of its tests, where it has some.
tell() {
  "$bin/python" - "$@" <<'PY'
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

sys.path.insert(0, "scripts")
import results_page

part, seconds, junit = sys.argv[1:]
without_tests = {
    "fuzz": "10,000 cases (`fuzzing/RESULTS.md`)",
    "storm": "100 kills of publications, 20 of each command (above)",
    "lowest": "the main path, and the tests that `test_lowest.sh` names",
}
said = without_tests.get(part)
if said is None:
    suite = xml.parse(junit).getroot().find("testsuite").attrib
    count = {name: int(suite[name]) for name in ("tests", "skipped")}
    said = f"{count['tests'] - count['skipped']:,} tests passed, {count['skipped']:,} skipped"
line = f"- {part}: {said}, in {int(seconds):,} s."
order = ["processors", "tests", "examples", "large", "fuzz", "storm", "lowest"]
results_page.write(Path("scripts/RESULTS.md"), "test_whole.sh", "What takes long", [], {part: [line]}, order)
PY
}

parts=("$@")
((${#parts[@]})) || parts=(processors tests examples large fuzz storm lowest)
for part in "${parts[@]}"; do
  case $part in
    processors | tests | examples | large | fuzz | storm | lowest) ;;
    *)
      echo "error: unknown part '$part'; expected processors, tests, examples, large, fuzz, storm or lowest" >&2
      exit 2
      ;;
  esac
done
for part in "${parts[@]}"; do
  started=$SECONDS
  echo "== $part"
  "$part"
  tell "$part" $((SECONDS - started)) "$junit"
  echo "== $part: passed in $((SECONDS - started)) s"
done
