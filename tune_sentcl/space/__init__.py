"""A space file says which trials a paper's table needs, and which ranges lie beyond it.

A space is a union of grids (`[[block]]`, each a product of lists over fixed values) and, in
`[search]`, ranges in which a sampler goes on. A knob of a method or an optimizer, in `[fixed]`, in
a range or in `--set`, applies to the trials whose method or optimizer has it; that is all the
conditions there are.
"""

from tune_sentcl.space.grids import Range
from tune_sentcl.space.space import Space, load_space, space_names, spaces_of

__all__ = ["Range", "Space", "load_space", "space_names", "spaces_of"]
