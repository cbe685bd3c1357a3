"""The command line. One file a command; it parses, prints and exits, and holds no logic."""
