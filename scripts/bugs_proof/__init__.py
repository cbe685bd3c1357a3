"""The proof of discovered bugs: a part a file."""
