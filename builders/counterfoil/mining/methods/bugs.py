"""Method `bugs` (Wiles 2022): failures found in what a generator draws, described in words, tested in pairs."""

from counterfoil.mining.bugs.mine_bugs import mine_bugs
from counterfoil.mining.method import Method
from counterfoil.recipe.schema_mine import BugsSettings

BUGS = Method(BugsSettings, search=mine_bugs)
