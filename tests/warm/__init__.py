"""Python processes that start warm: the real commands in processes of their own, without seconds of
imports each."""

from warm.processes import Running, run, script_of, start

__all__ = ["Running", "run", "script_of", "start"]
