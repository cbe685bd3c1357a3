"""Results of the proof of copies."""
