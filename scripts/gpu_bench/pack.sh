#!/usr/bin/env bash
# Pack what Counterfoil needs and a machine with PyTorch lacks into one archive, for machines without a network:
#
#     bash scripts/gpu_bench/pack.sh                       # writes .gpu/site.tar.xz and .gpu/run.sh
#     bash .gpu/run.sh python3 scripts/bench_gpu.py        # there, in a copy of the checkout with .gpu in it
#
# Needs the checkout's environment (scripts/demo.sh makes it), whose versions are packed, and PyPI. The wheels are for
# Linux on x86-64 and for Python 3.12, unless TARGET names another. HAS names what the machine brings, if that is not
# `torch torchvision numpy scipy scikit-learn pandas`.
set -euo pipefail
has=${HAS:-torch torchvision numpy scipy scikit-learn pandas}
target=${TARGET:-3.12}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-.venv/bin/python}
rm -rf .gpu
mkdir -p .gpu/site

# All that Counterfoil asks for, directly or through others, less what is there. What comes with what is there is there
# too, but may be old: where Counterfoil itself sets a lower bound, it is packed.
pins=$("$python" - $has <<'PY'
import re, sys
from importlib.metadata import distribution, requires

from packaging.requirements import Requirement


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(names):
    found, waiting = {}, [plain(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = distribution(name).version
            asked = map(Requirement, distribution(name).requires or ())
            waiting += [plain(one.name) for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


there = {plain(name) for name in sys.argv[1:]} | {"hf-xet"}  # it fetches from the Hub, which is not reached there
brought = needed(there).keys()
bounded = {plain(Requirement(line).name) for line in requires("counterfoil")}
for name, version in sorted(needed(["counterfoil"]).items()):
    if name != "counterfoil" and name not in there and (name in bounded or name not in brought):
        print(f"{name}=={version}")
PY
)
platforms=(--platform manylinux2014_x86_64)
for minor in {17..28}; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
# shellcheck disable=SC2086
"$python" -m pip install --disable-pip-version-check --quiet --no-deps --no-compile --only-binary=:all: \
  --python-version "$target" --implementation cp "${platforms[@]}" --target .gpu/site $pins
# Commands, tests, sources, and parts of Arrow that nothing here loads.
rm -rf .gpu/site/bin .gpu/site/pyarrow/{include,src,includes} .gpu/site/pyarrow/*.{pxd,pxi,pyx} \
  .gpu/site/pyarrow/*{flight,gandiva}*
find .gpu/site -type d -name tests -prune -exec rm -rf {} +
find .gpu/site -name '*.pyi' -delete
tar -C .gpu -cf - site | xz -T0 -9 >.gpu/site.tar.xz
rm -rf .gpu/site

cat >.gpu/run.sh <<'RUN'
#!/usr/bin/env bash
# Run a command with the packed libraries, unpacked once a machine, and with the package of this checkout.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
site=${TMPDIR:-/tmp}/counterfoil-$(sha256sum "$root/.gpu/site.tar.xz" | cut -c1-16)
if [[ ! -d $site ]]; then
  unpacked=$(mktemp -d "$site.XXXXXX")
  tar -C "$unpacked" -xJf "$root/.gpu/site.tar.xz"
  mv -T "$unpacked" "$site" 2>/dev/null || rm -rf "$unpacked" # another process was first
fi
export PYTHONPATH=$site/site:$root/builders${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1
exec "$@"
RUN
du -h .gpu/site.tar.xz
