"""The pages of a directory, served on this machine alone (`counterfoil open`), where two of them can save."""
