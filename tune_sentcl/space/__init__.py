"""Search spaces from TOML files: the trials of a paper's tables, and ranges for a sampler.

A search space is a union of grids, and ranges for a sampler. Each `[[block]]` is a grid: the
product of lists, over fixed values. `[search]` holds the ranges. A value in `[fixed]`, in a range
or in `--set` applies only to trials whose method or optimizer has the hyperparameter. There are no
other conditions.
"""

from tune_sentcl.space.grids import Range
from tune_sentcl.space.space import Params, Space, load_space, space_names, spaces_of

__all__ = ["Params", "Range", "Space", "load_space", "space_names", "spaces_of"]
