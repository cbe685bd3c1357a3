"""Method `bugs` (Wiles 2022): failures found in what a generator draws, described in words, tested in pairs."""

from counterfoil.mining.bugs.mine_bugs import mine_bugs_steps
from counterfoil.mining.bugs.settings import BugsSettings
from counterfoil.mining.method import Method

BUGS = Method(BugsSettings, search=mine_bugs_steps)
