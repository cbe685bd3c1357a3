"""The parts of `scripts/bench_scale.py`: a large plan, workers that are simulated, what the driver asks of the disk."""
