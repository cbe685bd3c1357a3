"""Publish a dataset directory or a model's folder to the Hub: contents first, one commit, then
compare and load."""
