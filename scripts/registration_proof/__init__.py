"""Results of the proof of registration."""
