"""Which of timm's two readers of Hugging Face datasets work with the `datasets` that is
installed."""

from importlib import metadata

from packaging.version import Version

# The streaming reader of timm before 1.0.31 passes `datasets` an option that it has no more. Cards
# show `hfds` only.
HF_READERS = (
    ("hfds", "hfids") if Version(metadata.version("timm")) >= Version("1.0.31") else ("hfds",)
)
