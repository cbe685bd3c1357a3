"""Class tokens: learned, imported, and read from their files."""
