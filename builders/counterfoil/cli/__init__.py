"""The command line: one file for each command, which parses, prints and exits, and has no logic."""
