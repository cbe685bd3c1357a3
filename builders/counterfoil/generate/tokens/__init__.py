"""Class tokens: learn and import them, and read their files."""
