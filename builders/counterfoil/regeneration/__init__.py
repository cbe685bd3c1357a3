"""Making a dataset again from what it tells of itself, and repairing it."""
