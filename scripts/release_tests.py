"""Which release tests are due: those that cover a file which changed since they last passed in this
checkout.

`test.sh` asks, and gets an expression for pytest's `-m`. What passed is kept in a file as the
content of what each group covers. Before the first green run, a group is due where its files differ
from the branch that this one follows.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class ReleaseGroup:
    """Files and folders that its tests cover, and how its tests are known: by a file, a folder, a
    fixture or a mark."""

    covers: tuple[str, ...]
    tests: tuple[str, ...] = ()
    fixture: str | None = None


GROUPS = {
    "site": ReleaseGroup(
        covers=(
            "docs",
            "zensical.toml",
            "scripts/docs_reference.py",
            "builders/counterfoil/__init__.py",
            "builders/counterfoil/recipe",
            "builders/counterfoil/cli",
            "tests/test_docs.py",
        ),
        fixture="site",
    ),
    "wheel": ReleaseGroup(
        covers=(
            "pyproject.toml",
            "recipes",
            "cards",
            "builders/counterfoil/lab",
            "LICENSE",
            "tests/test_wheel.py",
        ),
        tests=("tests/test_wheel.py",),
    ),
    "plugins": ReleaseGroup(
        covers=(
            "builders/counterfoil/corrupting",
            "builders/counterfoil/registry.py",
            "builders/counterfoil/plugins.py",
            "builders/counterfoil/testing.py",
            "builders/counterfoil/evaluation/tasks/classes/measures",
            "builders/counterfoil/models/classifiers",
            "examples",
            "tests/test_testing.py",
            "tests/test_example_plugin.py",
        ),
        tests=("tests/test_example_plugin.py",),
    ),
    "browser": ReleaseGroup(
        covers=(
            "cards",
            "builders/counterfoil/report",
            "builders/counterfoil/reviewing",
            "tests/reviewing",
            "builders/counterfoil/evaluation/tasks/classes/report.py",
            "builders/counterfoil/evaluation/failures.py",
            "builders/counterfoil/evaluation/figures.py",
            "builders/counterfoil/evaluation/tasks/classes/measures/severity.py",
            "builders/counterfoil/dataset/card/index_page.py",
            "tests/dataset/card/test_index_page.py",
            "tests/evaluation/test_report_in_browser.py",
            "tests/evaluation/test_evaluate_failures.py",
            "tests/browser.py",
        ),
        fixture="chromium",
    ),
    "ray": ReleaseGroup(
        covers=(
            "builders/counterfoil/engines",
            "builders/counterfoil/building/workers.py",
            "tests/engines",
            "tests/building/test_building_ray.py",
            "tests/ray_clusters.py",
        ),
        tests=("tests/building/test_building_ray.py", "tests/engines/test_ray_engine.py"),
    ),
    "hub": ReleaseGroup(
        covers=(
            "builders/counterfoil/cli/publish.py",
            "builders/counterfoil/data/hub.py",
            "builders/counterfoil/models/classifiers",
            "builders/counterfoil/models/mended.py",
            "builders/counterfoil/models/names.py",
            "builders/counterfoil/publishing",
            "builders/counterfoil/store",
            "tests/models/classifiers",
            "tests/publishing",
            "tests/loopback_hub",
        ),
        tests=("tests/publishing/test_publish_dataset.py",),
    ),
    # Whole builds of what most datasets do not have; plain builds, and their kills and resumes, run
    # for every commit.
    "builds": ReleaseGroup(
        covers=(
            "builders/counterfoil/building",
            "builders/counterfoil/data",
            "builders/counterfoil/dataset",
            "builders/counterfoil/engines",
            "builders/counterfoil/generate",
            "builders/counterfoil/models",
            "builders/counterfoil/plan",
            "builders/counterfoil/prediction",
            "builders/counterfoil/recipe",
            "builders/counterfoil/reviewing",
            "builders/counterfoil/store",
            "tests/building",
            "tests/tiny_builds.py",
        ),
        tests=(
            "tests/building/test_building_asked.py",
            "tests/building/test_building_drawn_elsewhere.py",
            "tests/building/test_building_edited.py",
            "tests/building/test_building_embeddings.py",
            "tests/building/test_building_keep.py",
            "tests/building/test_building_levels.py",
            "tests/building/test_building_loras.py",
            "tests/building/test_building_objects.py",
            "tests/building/test_building_pairs.py",
            "tests/building/test_building_parts.py",
            "tests/building/test_building_rows.py",
            "tests/building/test_building_second_judge.py",
        ),
    ),
    "mining": ReleaseGroup(
        covers=(
            "builders/counterfoil/data",
            "builders/counterfoil/mending",
            "builders/counterfoil/mining",
            "builders/counterfoil/models",
            "builders/counterfoil/prediction",
            "builders/counterfoil/recipe",
            "builders/counterfoil/stats.py",
            "builders/counterfoil/paired_stats.py",
            "tests/mending",
            "tests/mining",
        ),
        tests=(
            "tests/mending/test_mend_models.py",
            "tests/mending/test_mend_refused.py",
            "tests/mining/test_audited.py",
            "tests/mining/test_label_check.py",
            "tests/mining/test_mine_preview.py",
            "tests/mining/test_mine_recipe.py",
            "tests/mining/test_rendered.py",
        ),
    ),
    "downstream": ReleaseGroup(
        covers=(
            "builders/counterfoil/dataset",
            "builders/counterfoil/publishing",
            "builders/counterfoil/store",
            "cards",
            "tests/downstream",
            "tests/loopback_hub",
        ),
        tests=("tests/downstream",),
    ),
    "store": ReleaseGroup(covers=("builders/counterfoil/store", "tests/store")),
    "recipes": ReleaseGroup(
        covers=(
            "recipes",
            "builders/counterfoil/lab/scenes.py",
            "builders/counterfoil/lab/vocabulary.py",
            "builders/counterfoil/plan",
            "builders/counterfoil/recipe",
            "tests/mining/methods/test_context_proposals.py",
            "tests/recipe",
        ),
        tests=("tests/recipe/test_bundled.py", "tests/recipe/test_pinned_hashes.py"),
    ),
    "families": ReleaseGroup(
        covers=(
            "builders/counterfoil/generate",
            "builders/counterfoil/models",
            "builders/counterfoil/plan",
            "tests/generate",
            "tests/models/captioners",
            "tests/models/test_pipeline_settings.py",
            "tests/miniature_pipelines.py",
            "tests/modern_pipelines.py",
            "tests/small_pipeline.py",
            "tests/tiny_captioners.py",
            "tests/support/loras.py",
        ),
        tests=(
            "tests/generate/test_edited_rows.py",
            "tests/generate/test_generate_families.py",
            "tests/generate/test_steps.py",
            "tests/generate/tokens/test_inversion.py",
            "tests/models/captioners/test_captioners.py",
        ),
    ),
    "searches": ReleaseGroup(
        covers=(
            "builders/counterfoil/mining",
            "builders/counterfoil/models/captioners",
            "builders/counterfoil/models/chat",
            "tests/mining",
        ),
        tests=(
            "tests/mining/methods/bugs/test_mine_bugs.py",
            "tests/mining/methods/bugs/test_trying.py",
        ),
    ),
    "lab": ReleaseGroup(
        covers=(
            "builders/counterfoil/lab",
            "builders/counterfoil/models/clip.py",
            "builders/counterfoil/models/diffusion.py",
            "builders/counterfoil/models/captioners",
            "tests/lab",
        ),
        tests=("tests/lab",),
    ),
    "printed": ReleaseGroup(
        covers=(
            "README.md",
            "docs",
            "recipes",
            "builders/counterfoil/cli",
            "tests/cli/test_printed_commands.py",
            "tests/report/test_notebook.py",
        ),
        fixture="stock",
    ),
    "loopback_hub": ReleaseGroup(covers=("tests/loopback_hub",), tests=("tests/loopback_hub",)),
    "tables": ReleaseGroup(
        covers=(
            "README.md",
            "docs",
            "scripts/write_tables.py",
            "scripts/RESULTS.md",
            "scripts/photographs_proof/RESULTS.md",
            "builders/counterfoil/lab",
            "builders/counterfoil/mining",
            "builders/counterfoil/evaluation",
            "builders/counterfoil/cli/mine.py",
            "tests/scripts/test_write_tables.py",
        ),
        tests=("tests/scripts/test_write_tables.py",),
    ),
    "scripts": ReleaseGroup(covers=("scripts", "tests/scripts"), tests=("tests/scripts",)),
    "statistics": ReleaseGroup(
        covers=(
            "builders/counterfoil/stats.py",
            "builders/counterfoil/paired_stats.py",
            "builders/counterfoil/trajectory_stats.py",
            "builders/counterfoil/accuracy_stats.py",
            "builders/counterfoil/mining/methods",
            "tests/mining/methods",
            "tests/test_stats.py",
            "tests/test_paired_stats.py",
            "tests/test_trajectory_stats.py",
            "tests/evaluation/test_evaluate_statistics.py",
        ),
    ),
}


def group_of(test_file: Path, fixtures: Collection[str]) -> str | None:
    """Return the group of a test, unless a mark of its own says it."""
    return _group_of_file(test_file) or next(
        (name for name, group in GROUPS.items() if group.fixture in fixtures), None
    )


@cache
def _group_of_file(test_file: Path) -> str | None:
    groups = GROUPS.items()
    return next(
        (
            name
            for name, group in groups
            if any(test_file.is_relative_to(ROOT / path) for path in group.tests)
        ),
        None,
    )


def contents(root: Path, covers: Collection[str]) -> str:
    """Return one hash of the names and bytes of these files, and of those in these folders."""
    seen = hashlib.sha256()
    for path in sorted(
        {file for name in covers for file in [root / name, *(root / name).rglob("*")]}
    ):
        if path.is_file() and "__pycache__" not in path.parts:
            seen.update(
                f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
            )
    return seen.hexdigest()


def differs_from_upstream(root: Path, covers: Collection[str]) -> bool:
    """Return whether one of these files differs from the branch that this one follows, or from the
    last commit."""

    def git(*words: str) -> str | None:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    before = git("merge-base", "HEAD", "@{upstream}") or "HEAD"
    changed = [
        git("diff", "--name-only", before, "--", *covers),
        git("ls-files", "--others", "--exclude-standard", "--", *covers),
    ]
    return changed != ["", ""]


def due_groups(root: Path, passed: Path, groups: dict[str, ReleaseGroup]) -> list[str]:
    """Return the names of the groups that are due; what they cover now goes into `PASSED.now` for a
    green run."""
    now = {name: contents(root, group.covers) for name, group in groups.items()}
    passed.with_name(f"{passed.name}.now").write_text(json.dumps(now), encoding="utf-8")
    before = json.loads(passed.read_text(encoding="utf-8")) if passed.is_file() else {}
    return [
        name
        for name, group in groups.items()
        if (
            before[name] != now[name]
            if name in before
            else differs_from_upstream(root, group.covers)
        )
    ]


if __name__ == "__main__":
    due = due_groups(ROOT, Path(sys.argv[1]), GROUPS)
    print(f"Release tests whose files changed: {', '.join(due) or 'none'}", file=sys.stderr)
    print(
        "not whole and ("
        + " or ".join(["not release", *(f"release(of='{name}')" for name in due)])
        + ")"
    )
