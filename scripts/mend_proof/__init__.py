"""What `scripts/prove_mend.py` measures: contexts that are chosen, and heads that are mended with what is drawn of them."""
