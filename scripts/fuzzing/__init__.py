"""The parts of `scripts/fuzz.py`, in the order in which a case meets them.

`plan` deals cases; `watch`, `limits` and `inside` are the process of one case, `judging` the
process around it; `recipes`, `documents`, `tables`, `archives`, `places`, `models` and `released`
make what each kind of case is about, from `values`, `trees`, `extremes`, `pictures` and the
datasets of `templates`, for `commands` to run on; `report` tells what came of all of them.
"""
