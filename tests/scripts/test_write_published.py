"""The published table is joined by model and image size; what one table lacks is empty there."""

from __future__ import annotations

import subprocess
from pathlib import Path

from write_published import TABLES, joined

HEADER = "model,img_size,top1,top1_err,top5,top5_err,param_count,crop_pct,interpolation"


def test_rows_are_joined_by_model_and_size_as_the_last_commit_has_them(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for index, name in enumerate(TABLES.values()):
        lines = [
            HEADER,
            f'b,224,{50 + index}.125,1,2,3,"1,013.01",1.000,bicubic',
            f"b,288,{60 + index},1,2,3,4,1,bicubic",
        ]
        lines += [] if name == "imagenet-a" else ["a,224,90,1,2,3,4,1,bicubic"]
        (tmp_path / "results" / f"results-{name}.csv").write_text("\n".join(lines) + "\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "results")):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    (tmp_path / "results" / "results-imagenet.csv").unlink()  # the working tree is not read
    rows = joined(tmp_path).to_pylist()
    assert [(row["model"], row["img_size"], row["imagenet"]) for row in rows] == [
        ("a", 224, 90.0), ("b", 288, 60.0), ("b", 224, 50.125)
    ]  # fmt: skip
    assert [row["a"] for row in rows] == [None, 65.0, 55.125]
