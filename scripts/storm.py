"""Kill every command at random moments, run it to its end, and compare what is left with an
undisturbed run.

    python scripts/storm.py [--kills 20] [--seed 7] [--only build mine] [--write]

Each command starts in a fresh copy of its inputs, is ended one to four times somewhere in the time
that it takes, by SIGKILL, SIGTERM or SIGINT (the last to its whole session, as a terminal sends
it), and is then run to its end. Every file of the folder, of the caches and of the inputs must be
as the undisturbed run left it, no process may be left, and no output may hold a traceback. One kill
of five is of a process that first has to import; the others are forked from a warm one. What a
publication leaves is compared on a loopback Hub. Prints a table; exits 1 where anything differs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [
    str(ROOT / "builders"),
    *(str(ROOT / "tests" / name) for name in ("", "publishing", "mending")),
]

import psutil  # noqa: E402
import yaml  # noqa: E402
from publishing_cases import with_package  # noqa: E402

import results_page  # noqa: E402
import warm  # noqa: E402
from loopback_hub import LoopbackHub, client_environment  # noqa: E402
from program import new_parser  # noqa: E402

RESULTS = ROOT / "scripts" / "RESULTS.md"
REPO = "someone/storm"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
# By the command, or by the signal itself while Python ends.
ENDS = {signal.SIGKILL: {-9}, signal.SIGTERM: {143, -15}, signal.SIGINT: {130, -2}}
MOST_KILLS_A_ROUND = 4
ONE_COLD_OF = 5
# Before that a process that was forked is not yet the command, or Python has not begun to run the
# command's code.
BEGUN = {True: 0.6, False: 0.2}
IMPORTS = 3.0
PATIENCE = 300.0
HOME = "home"


@dataclass(frozen=True)
class Command:
    """needs: names of the stock that its folder holds. refuses: what may refuse a second run that
    finds the first's files."""

    words: str
    needs: str = ""
    ends: frozenset[int] = frozenset({0})
    refuses: bool = False


CPU = "--device cpu"
ONE = f"{CPU} --workers 1"
COMMANDS = (
    Command("demo --quick --out demo"),
    Command(f"init ./photos --out photos.yaml {CPU}", "photos", refuses=True),
    Command(f"init ./streets --out streets.yaml {CPU}", "streets", refuses=True),
    Command("init --detector detector/model.onnx", "detector", refuses=True),
    Command("recipes"),
    Command("compare new.csv old.csv", "new.csv old.csv"),
    Command("show mini.yaml", "mini.yaml"),
    Command("check mini.yaml", "mini.yaml"),
    Command(f"tokens learn.yaml --out learned {ONE}", "learn.yaml"),
    Command(f"build mini.yaml --out built {ONE}", "mini.yaml"),
    Command(f"build mini.yaml --out built {CPU} --workers 2", "mini.yaml"),
    Command(f"build fog.yaml --out built {ONE}", "fog.yaml photos"),
    Command(f"build --from mini --out again {ONE}", "mini"),
    Command(f"build --from damaged --out damaged {ONE}", "damaged"),
    Command("calibrate mini", "mini"),
    Command(f"calibrate mini --apply cut.yaml --out cut {CPU}", "mini cut.yaml"),
    Command(f"calibrate mini --apply cut.yaml --in-place --yes {CPU}", "mini cut.yaml"),
    Command("review mini", "mini"),
    Command("review mini --answers anna.json ben.json", "mini anna.json ben.json"),
    Command("verify mini", "mini"),
    Command(f"verify mini --rerender 3 {CPU}", "mini"),
    Command(f"evaluate mini --models lab:resnet10t lab:lcnet_035 --out report {CPU}", "mini"),
    Command(f"evaluate mini --models lab:resnet10t lab:lcnet_035 --into-card {CPU}", "mini"),
    Command(
        "evaluate boxes --models predictions:boxes.parquet --into-card --gate gate.yaml",
        "boxes boxes.parquet gate.yaml",
        frozenset({0, 3, 4}),
    ),
    Command("evaluate labels --models predictions:labels.csv --into-card", "labels labels.csv"),
    Command(
        "mine star.yaml --method slices --limit 120 --out mined --device cpu --workers 1",
        "star.yaml",
    ),
    Command(
        "mine star.yaml --method directions --limit 200 --out mined --device cpu --workers 1",
        "star.yaml",
    ),
    Command(f"mine contexts.yaml --limit 90 --out mined {ONE}", "contexts.yaml"),
    Command(f"mine bugs.yaml --out mined {ONE}", "bugs.yaml"),
    # What was tried is not tried again: a kill after the last file leaves nothing to do, and the
    # same line is refused.
    Command(
        f"mine mined --try 'a sandal at night' --class sandal {ONE}",
        "mined bugs.yaml",
        refuses=True,
    ),
    Command(f"mine mined --again bugs.yaml {ONE}", "mined bugs.yaml"),
    Command(
        "mend --model lab:resnet10t --on scenes.yaml --with scenes-mined --lambda 0,1 --per-class"
        " 20 --out mended"
        f" {CPU}",
        "scenes.yaml source scenes-mined",
    ),
    Command("open report --no-browser", "report"),
    Command(f"publish mini {REPO} --yes", "mini"),
    Command(f"publish --model model {REPO} --license mit --yes", "model"),
)


# --- the inputs


RECIPES = """
mini: &mini
  extends: wardrobe-mini
  name: mini
  source: &three
    classes:
    - {id: "00", name: t-shirt, source_label: 0}
    - {id: "05", name: sandal, source_label: 5}
    - {id: "08", name: bag, source_label: 8}
  tokens: null
  prompts: {shifts: {in_the_grass: null, at_night: null}}
  generator: {steps: 1, guidance: 1.0, size: 32, batch_size: 4}
  screen: {object_threshold: -1, shift_threshold: -1, store_embeddings: true, judge: null}
  samples: {candidates: 2}
  output: {rows_per_shard: 4}
  evaluate: {min_images_per_class: 1}
learn:
  <<: *mini
  tokens:
    path: null
    learn: {steps: 3, batch_size: 1, learning_rate: 0.01, classes_in_flight: 2}
fog:
  recipe: 1
  name: fog
  source: {dataset: ./photos}
  generator: {kind: corrupt, split: validation}
  prompts: {shifts: {fog: {corruption: fog, severity: 3}}}
  samples: {candidates: 4}
  output: {rows_per_shard: 4}
star:
  extends: wardrobe-star
  source:
    dataset: lab:planted/correlation-0
    classes:
    - {id: "05", name: sandal, source_label: 5}
    - {id: "07", name: sneaker, source_label: 7}
  tokens: null
  generator: {adapter: "lab:decoder"}
  mine: {target: lab:planted/correlation-0, "on": [validation], train_rows: 100}
contexts:
  extends: wardrobe-contexts
  source: *three
  samples: {candidates: 2}
  mine: {target: "lab:resnet10t", settings: {at_most_images: 4}}
bugs:
  extends: wardrobe-bugs
  generator: {steps: 3, batch_size: 8}
  screen: {object_threshold: 0.2}
  samples: {seed: 0}
  mine:
    target: lab:resnet10t
    fdr: 0.9
    margin: 0
    settings:
      classes: ["00", "05"]
      baseline: 12
      fewest_failures: 1
      clusters: 1
      captions: 2
      described: 2
      batch: 4
      pairs: 8
      estimate_pairs: 8
      adversarial: 4
"""


def stocked(stock: Path) -> None:
    """Fill a folder with what the commands take, by name."""
    import numpy as np
    from datasets import Dataset
    from scenes_to_mend import build_scenes, mined_layer, save_source, write_recipe

    from colour_world import save_colour_model
    from counterfoil import build, evaluate, review
    from counterfoil.evaluation.dataset import open_dataset
    from counterfoil.lab.scenes import wardrobe_scene
    from counterfoil.lab.world import render
    from counterfoil.mining.mine_recipe import mine
    from counterfoil.store.decoding import rgb_image
    from support.boxes import coco_folder
    from support.fixed_graph import save_fixed_graph
    from support.images import encoded
    from support.labelled_patches import LABELS, colour_classifier, patches_folder, patches_recipe

    for name, recipe in yaml.safe_load(RECIPES).items():
        (stock / f"{name}.yaml").write_text(json.dumps(recipe))
    for name, wrong in (("new", 3), ("old", 5)):
        answers = [f"{number},{int(number % wrong > 0)}" for number in range(40)]
        (stock / f"{name}.csv").write_text("\n".join(["key,correct", *answers]) + "\n")
    for split in ("train", "validation"):
        for number in range(16):
            name, label = (("sandal", 5), ("sneaker", 7))[number % 2]
            path = stock / "photos" / split / name / f"{number:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(render(wardrobe_scene(split, 10 * number + label))))
    build(stock / "mini.yaml", stock / "mini", device="cpu", workers=1)
    shutil.copytree(stock / "mini", stock / "damaged")
    shard = sorted((stock / "damaged" / "data").rglob("*.parquet"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    (stock / "cut.yaml").write_text("screen: {shift_threshold: 0.2}\n")
    evaluate(stock / "mini", ["lab:lcnet_035"], out=stock / "report", device="cpu")
    page = review(stock / "mini", stock / "review.html").page.read_text()
    data = json.loads(
        page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    )
    answers = {name: data[name] for name in ("form", "version", "content", "sheet")}
    answers["grids"] = []
    for grid in data["grids"]:
        shown = {name: grid[name] for name in ("task", "label", "shown")}
        answers["grids"].append(shown | {"selected": grid["shown"]})
    for number, name in enumerate(("anna", "ben")):
        (stock / f"{name}.json").write_text(
            json.dumps(answers | {"token": f"{number:016x}", "rater": name})
        )

    coco_folder(stock / "streets")
    boxes = [
        "samples.candidates=12",
        *(f"prompts.shifts.{name}=null" for name in ("motion_blur", "defocus_blur")),
    ]
    build("wardrobe-boxes", stock / "boxes", overrides=boxes, device="cpu", workers=1)
    answers = [
        {"key": key, "name": "bag", "confidence": 0.5, "x1": 4.0, "y1": 4.0, "x2": 60.0, "y2": 60.0}
        for key, _ in open_dataset(stock / "boxes").images()
    ]
    Dataset.from_list(answers).to_parquet(str(stock / "boxes.parquet"))
    (stock / "gate.yaml").write_text("- drop(fog) <= 10\n")
    rows = np.random.default_rng(0).uniform(10, 54, (1, 7, 84)).astype(np.float32)
    rows[:, 4:] /= 64  # scores of three labels
    save_fixed_graph(stock / "detector", {"rows": rows}, dict(enumerate(("cat", "dog", "bus"))))

    patches_folder(stock / "patches")
    build(
        patches_recipe(stock / "labels.yaml", stock / "patches"),
        stock / "labels",
        device="cpu",
        workers=1,
    )
    lines = [f"key,{','.join(LABELS)}"]
    for key, content in open_dataset(stock / "labels").images():
        pixels = np.asarray(rgb_image(content or b""), np.float32).transpose(2, 0, 1) / 255
        lines.append(
            f"{key},{','.join(map(str, 1 / (1 + np.exp(-colour_classifier(pixels[None])[0]))))}"
        )
    (stock / "labels.csv").write_text("\n".join(lines) + "\n")

    mine(stock / "bugs.yaml", stock / "mined", device="cpu", workers=1)
    save_source(stock / "source")
    scenes = write_recipe(stock / "scenes.yaml")
    build_scenes(stock / "scenes-mined", scenes, mined_layer())
    save_colour_model(stock / "model", labels=True)


# --- a storm over one command


@dataclass
class Storm:
    """Runs one command in `work`/here, which is filled anew from `stock` for each round."""

    command: Command
    stock: Path
    work: Path
    chance: random.Random
    hub: LoopbackHub | None = None

    def __post_init__(self) -> None:
        self.folder, self.home = self.work / "here", self.work / "here" / HOME
        self.met: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.left: set[str] = set()
        self.seconds = self.duration = 0.0
        self.rounds = 0

    def fresh(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.home / "tmp").mkdir(parents=True)
        for name in self.command.needs.split():
            source = self.stock / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, self.folder / name)

    def environment(self) -> dict[str, str]:
        variables = dict(os.environ)
        if self.hub is not None:
            variables = client_environment(self.hub, self.home / "hf", sleep_scale=0.01)
        folders = {"HOME": "", "XDG_CACHE_HOME": "cache", "TMPDIR": "tmp"}
        cache = {variable: str(self.home / name) for variable, name in folders.items()}
        return with_package(variables | cache)

    def run(
        self, after: float | None = None, number: signal.Signals | None = None, cold: bool = False
    ) -> int:
        """Run the command, to its end or to a signal after so many seconds; return how it ended."""
        line = [sys.executable, "-m", "counterfoil.cli.entry", *shlex.split(self.command.words)]
        with (self.work / "output").open("w+") as output:
            options: dict[str, Any] = {"cwd": self.folder, "start_new_session": True}
            if cold:
                options |= {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL}
                process: Any = subprocess.Popen(line, env=self.environment(), **options)
            else:
                process = warm.start(line, self.environment(), **options)
            began = time.monotonic()
            if number is None and self.command.words.startswith("open "):
                after = 2.0
                number = signal.SIGINT
            try:
                code = process.wait(after if number is not None else PATIENCE)
            except subprocess.TimeoutExpired:
                if number is None:
                    number = signal.SIGKILL
                    self.say(f"did not end within {PATIENCE:.0f} s")
                if number == signal.SIGINT:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
                else:
                    process.send_signal(number)
                try:
                    code = process.wait(60)
                except subprocess.TimeoutExpired:
                    self.say(f"lived for 60 s after {number.name}")
                    os.killpg(process.pid, signal.SIGKILL)
                    code = process.wait()
            self.seconds = time.monotonic() - began
            if cold:
                output.seek(0)
                self.printed = output.read()
            else:
                self.printed = "".join(process.communicate())
        if "Traceback" in self.printed or "internal error" in self.printed:
            self.say(f"printed a traceback (exit {code}): {self.printed[-1500:]}")
        waited = time.monotonic()
        while left := _of_session(process.pid):
            if time.monotonic() - waited > 60:
                self.say(f"left a process: {left}")
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.05)
        return code

    def say(self, text: str) -> None:
        self.wrong.append(f"{self.command.words}: round {self.rounds}: {text}")
        print(f"WRONG {self.wrong[-1]}", flush=True)

    def check(self, code: int, when: str) -> None:
        """Say if a run that was not ended by a signal ended otherwise than it may."""
        if code not in self.command.ends and not (self.command.refuses and code == 2):
            self.say(f"ended with {code} {when}: {self.printed[-1500:]}")

    def files(self) -> dict[str, bytes]:
        """Return a hash of every file, and what is published, by name; keep the names of temporary
        files elsewhere."""
        hashes = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if name.startswith(f"{HOME}/tmp/"):
                self.left.add(re.sub(r"[a-z0-9_]{8}$|[0-9]+", "*", name.split("/")[2]))
            elif not name.startswith(f"{HOME}/") or "/counterfoil/" in name:
                # A cache of folders is by when their files changed, and the copies are as old as
                # their round. `datasets` takes its cache's place as it is imported, so only cold
                # runs have one here.
                cached = "/counterfoil/folders/" in name or "/huggingface/datasets/" in name
                if cached and not name.endswith(".cf.tmp"):
                    continue
                if path.is_symlink() or path.is_file():
                    content = bytes(path.readlink()) if path.is_symlink() else path.read_bytes()
                    hashes[name] = hashlib.sha256(content).digest()
        return hashes

    def on_hub(self) -> tuple[Any, int]:
        if self.hub is None:
            return None, 0
        kind = "model" if "--model" in self.command.words else "dataset"
        return self.hub.branch(REPO, kind=kind), len(self.hub.commits(REPO, kind=kind))

    @contextlib.contextmanager
    def round(self) -> Iterator[None]:
        self.fresh()
        if "publish" not in self.command.words:
            yield
            return
        with LoopbackHub(self.work / f"hub-{self.rounds}") as self.hub:
            yield
        self.hub = None

    def go(self, kills: int) -> None:
        with self.round():
            code = self.run()
            if code not in self.command.ends:
                self.say(f"the undisturbed run ended with {code}: {self.printed[-2000:]}")
                return
            whole = self.files()
            whole_hub = self.on_hub()
        duration = self.duration = self.seconds
        done = 0
        while done < kills and len(self.wrong) < 5:
            self.rounds += 1
            with self.round():
                of_round = []
                for _ in range(self.chance.randint(1, min(MOST_KILLS_A_ROUND, kills - done))):
                    number = SIGNALS[done % len(SIGNALS)]
                    cold = done % ONE_COLD_OF == 1
                    begun = BEGUN[cold]
                    most = max(begun + 0.1, duration + IMPORTS * cold)
                    after = self.chance.uniform(begun, most)
                    code = self.run(after, number, cold)
                    if code in ENDS[number]:
                        self.met[number.name] += 1
                        of_round.append(
                            f"{number.name} after {after:.2f} s{' cold' if cold else ''}"
                        )
                        done += 1
                        continue
                    self.met["ended before"] += 1
                    if self.met["ended before"] > 5 * kills:
                        done += 1
                    self.check(code, f"where {number.name} came after {after:.2f} s")
                    break
                self.check(self.run(), f"after {of_round}")
                files = self.files()
                hub = self.on_hub()
                if files != whole:
                    changes = []
                    for name in sorted({*files, *whole}):
                        if name not in files:
                            changes.append(f"lacks {name}")
                        elif name not in whole:
                            changes.append(f"also {name}")
                        elif files[name] != whole[name]:
                            changes.append(f"differs: {name}")
                    self.say(f"{of_round}: {changes[:8]}")
                    shutil.copytree(
                        self.folder, self.work / f"wrong-{len(self.wrong)}", symlinks=True
                    )
                if hub != whole_hub:
                    self.say(
                        f"{of_round}: the branch has {hub[1]} commits, expected {whole_hub[1]}, or"
                        " other files"
                    )


def _of_session(number: int) -> list[str]:
    """Return the processes of a session that still run."""
    lines = []
    for process in psutil.process_iter(["pid", "status", "cmdline"]):
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            if os.getsid(process.pid) == number and process.info["status"] != psutil.STATUS_ZOMBIE:
                lines.append(" ".join(process.info["cmdline"] or ())[:200])
    return lines


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each command")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=2, help="commands at a time")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORDS", help="commands that hold these words"
    )
    parser.add_argument(
        "--work",
        type=Path,
        help="a folder for the inputs and for what differed (default: temporary)",
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into scripts/RESULTS.md"
    )
    arguments = parser.parse_args()
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "*",
    }
    # In the background a shell makes its children ignore Ctrl-C, and so would the commands.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    names = [number.name for number in SIGNALS]
    only = arguments.only or [""]
    commands = [command for command in COMMANDS if any(words in command.words for words in only)]
    with contextlib.ExitStack() as stack:
        work = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(exist_ok=True)
        if not (work / "stocked").exists():
            (work / "stock").mkdir()
            with contextlib.chdir(work / "stock"):
                stocked(work / "stock")
            (work / "stocked").touch()

        def storm_of(number: int, command: Command) -> Storm:
            folder = work / f"storm-{number}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            chance = random.Random(f"{arguments.seed}/{command.words}")
            storm = Storm(command, work / "stock", folder, chance)
            storm.go(arguments.kills)
            kills = sum(storm.met[name] for name in names)
            print(f"{kills} kills of {command.words}; {sorted(storm.left)}", flush=True)
            return storm

        with ThreadPoolExecutor(arguments.jobs) as pool:
            storms = list(pool.map(storm_of, count(), commands))
    rows = []
    for storm in storms:
        met = [storm.met[name] for name in (*names, "ended before")]
        first = (f"`{storm.command.words}`", f"{storm.duration:.1f}")
        rows.append([*first, *met, storm.rounds, len(storm.wrong)])
    titles = ("command", "seconds", *names, "ended before", "runs compared", "faults")
    table = results_page.table(titles, rows)
    print("\n".join(table))
    if arguments.write:
        opening = [
            "Each command in a fresh copy of its inputs, ended at random moments and then run to"
            " its end, where every"
            f" file is that of an undisturbed run; seed {arguments.seed}. *Ended before*: the"
            " signal came late."
        ]
        results_page.write(
            RESULTS, "storm", "Kills of every command", opening, {"storm": table}, ["storm"]
        )
    return int(any(storm.wrong for storm in storms))


if __name__ == "__main__":
    sys.exit(main())
