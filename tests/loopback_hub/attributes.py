"""Which files go to large file storage: `.gitattributes` as the Hub starts a dataset with, size,
and text or not."""

from __future__ import annotations

import codecs
from fnmatch import fnmatch

# The Hub's own list for datasets is longer; these are the kinds that a dataset directory can hold.
PATTERNS = (
    *(
        "*.7z",
        "*.arrow",
        "*.bin",
        "*.bz2",
        "*.gz",
        "*.npy",
        "*.npz",
        "*.onnx",
        "*.parquet",
        "*.pt",
        "*.pth",
    ),
    *("*.safetensors", "*.tar", "*.tar.*", "*.tgz", "*.zip", "*.zst", "*tfevents*"),
    *(
        "*.wav",
        "*.mp3",
        "*.mp4",
        "*.webm",
        "*.bmp",
        "*.gif",
        "*.png",
        "*.tiff",
        "*.jpg",
        "*.jpeg",
        "*.webp",
    ),
)
INITIAL = "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in PATTERNS)
LARGEST_REGULAR = 10 * 1024 * 1024


def lfs_patterns(attributes: str) -> tuple[str, ...]:
    lines = (
        line.split()
        for line in attributes.splitlines()
        if line.strip() and not line.startswith("#")
    )
    return tuple(words[0] for words in lines if "filter=lfs" in words[1:])


def is_text(sample: bytes) -> bool:
    """Check that the start of a file is UTF-8 text; the sample's end may cut a character."""
    if b"\0" in sample:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True


def upload_mode(path: str, size: int, sample: bytes, patterns: tuple[str, ...]) -> str:
    """Return `lfs` or `regular`; an empty file is never LFS."""
    if size == 0:
        return "regular"
    name = path.rpartition("/")[2]
    named = any(fnmatch(path if "/" in pattern else name, pattern) for pattern in patterns)
    return "lfs" if named or size > LARGEST_REGULAR or not is_text(sample) else "regular"
