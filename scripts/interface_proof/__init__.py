"""The parts of `scripts/prove_interface.py`: what is true, what each way of building finds, and the
comparison."""
