"""The parts of `scripts/prove_bugs.py` and `scripts/bench.py bugs`: what is true, and what each arm
finds."""
