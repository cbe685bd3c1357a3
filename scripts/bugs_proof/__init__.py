"""The parts of `scripts/prove_bugs.py` and `scripts/bench_bugs.py`: what is true of the lab, and what each way finds."""
