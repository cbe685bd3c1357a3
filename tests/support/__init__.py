"""Helpers of all tests: small images, files, tables, recipes and refusals."""
