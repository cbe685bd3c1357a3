"""The parts of `scripts/prove_bugs.py` and `scripts/bench_bugs.py`: what is true, and what each arm finds."""
