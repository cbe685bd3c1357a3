"""The proof of graded shifts: what is drawn by degrees against the same scenes rendered by
degrees."""
