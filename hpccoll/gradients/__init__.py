# SPDX-License-Identifier: Apache-2.0
"""What every framework's gradients need, once: their requests, their reduction, and what of them is in flight.

A framework brings arrays over its gradients' memory and says when one has been computed; it never counts, names or
groups anything itself.

    plan.py       which requests there are: one a gradient or one a group, and their names
    recipe.py     how values are combined: operation, factors, what they travel as
    reducer.py    which gradients are computed, in flight, reduced; backward passes are counted here
    sparse.py     gradients that are rows and their indices
"""

from hpccoll.gradients.plan import Item, check_names, in_groups, in_parts, one_each
from hpccoll.gradients.recipe import Piece, Recipe
from hpccoll.gradients.reducer import Finish, Flight, Reducer, check_passes
from hpccoll.gradients.sparse import SparseLayout

__all__ = [
    "Finish", "Flight", "Item", "Piece", "Recipe", "Reducer", "SparseLayout", "check_names", "check_passes",
    "in_groups", "in_parts", "one_each",
]  # fmt: skip
