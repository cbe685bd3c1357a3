"""Parts of `prove_detection.py`: sets of boxes with a known truth, and pycocotools beside."""
