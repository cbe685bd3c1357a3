"""Segmenters: the classes that they give pixels, what each shift costs them, and the files."""
