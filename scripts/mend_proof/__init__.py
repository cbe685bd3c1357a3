"""What `scripts/prove_mend.py` measures: which contexts are chosen, and what heads gain by what is
drawn of them."""
