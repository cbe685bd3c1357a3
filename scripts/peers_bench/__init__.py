"""What `scripts/bench.py peers` measures: a file for each thing that Counterfoil and others do.

A file has `pairs`, which prepares one input and yields a `Pair` for each way of a peer to the same
result.
"""
