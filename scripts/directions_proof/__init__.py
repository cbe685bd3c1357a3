"""The proof of failure directions in planted worlds: a part a file."""
