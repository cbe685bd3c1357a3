"""The tasks: what each reads from a dataset, how its models answer, and what it measures."""
