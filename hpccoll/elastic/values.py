# SPDX-License-Identifier: Apache-2.0
"""The values of a state: their names, and what is kept and sent of each."""

import copy
from collections.abc import Iterable
from typing import Any

from hpccoll import errors
from hpccoll.elastic.own_errors import own_error

__all__ = ["check_alike", "checked_names", "copied", "form", "has_form"]


def checked_names(state: type, sharded: Iterable[str], values: Iterable[str]) -> tuple[str, ...]:
    """Refuse a name that a state uses itself, and one of a sharded value that the state does not have.

    :param state: the class that all states have in common
    :raises InvalidArgumentError: with the names
    """
    names, known = tuple(sharded), list(values)
    if used := [name for name in known if name == "source" or hasattr(state, name)]:
        raise errors.InvalidArgumentError(f"a State has an attribute {used[0]!r} of its own: choose another name")
    if missing := [name for name in names if name not in known]:
        raise errors.InvalidArgumentError(f"sharded: the state has no {', '.join(missing)}, only {', '.join(known)}")
    return names


def check_alike(there: Iterable[str], here: Iterable[str]) -> None:
    """Refuse a commit in a file if its values have other names than those of the state: some would begin anew.

    :raises InvalidArgumentError: with the names
    """
    old, new = set(there), set(here)
    sides = ((old - new, "there"), (new - old, "here"))
    if said := [f"{', '.join(sorted(names))} only {where}" for names, where in sides if names]:
        raise errors.InvalidArgumentError(f"it has other values: {'; '.join(said)}")


def has_form(value: Any) -> bool:
    """Whether an object says itself what is kept of it, as the optimizers and modules of PyTorch do."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def form(value: Any) -> Any:
    """Return what is kept of a value."""
    return value.state_dict() if has_form(value) else value


def copied(name: str, value: Any) -> Any:
    """Copy what is kept of a value.

    :raises ObjectError: it cannot be copied: a lock, a generator or an open file, say
    :raises HpccollError: the compiled program that computes the value has failed with this error
    """
    try:
        return copy.deepcopy(form(value))
    except Exception as error:
        raise own_error(error) or errors.ObjectError(
            f"the state cannot keep {name!r}, a {type(value).__qualname__}: {error}. Leave it out, or give it "
            "state_dict() and load_state_dict()"
        ) from error
