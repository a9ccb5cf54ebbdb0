# SPDX-License-Identifier: Apache-2.0
"""The net providers that there are, by name, and which of them a World uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from hpccoll import config, errors
from hpccoll.compared import Compared
from hpccoll.net.mpi import MpiNet
from hpccoll.net.net_provider import Choice, NetProvider
from hpccoll.net.threads import ThreadNet
from hpccoll.net.ucx import UcxNet
from hpccoll.rendezvous import Rendezvous

if TYPE_CHECKING:
    from importlib import metadata

__all__ = ["AUTO", "GROUP", "check_name", "choose", "names", "provider"]

AUTO = "auto"
GROUP = "hpccoll.nets"
"""The group of entry points; each loads a callable without arguments that gives a NetProvider."""
BUILT_IN: dict[str, Callable[[config.Config], NetProvider]] = {
    "mpi": lambda _: MpiNet(),
    "threads": lambda _: ThreadNet(),
    "ucx": UcxNet,
}


def names() -> list[str]:
    """List the names of all net providers, in the order in which `auto` tries them."""
    return [*BUILT_IN, *_installed()]


def check_name(name: str) -> None:
    """Check a value of the knob `net`.

    :raises InvalidArgumentError: it is neither "auto" nor the name of a provider
    """
    if name != AUTO and name not in BUILT_IN and name not in _installed():
        raise errors.InvalidArgumentError(f"HPCCOLL_NET={name} is no net: there are {', '.join([AUTO, *names()])}")


def provider(name: str, settings: config.Config | None = None) -> NetProvider:
    """Return the provider of a name.

    :param settings: the knobs of the World; None: those of the environment
    :raises InvalidArgumentError: there is none of this name
    :raises StartError: the package of the provider cannot be loaded
    """
    check_name(name)
    if name in BUILT_IN:
        return BUILT_IN[name](settings or config.read())
    installed = _installed()
    try:
        made: NetProvider = installed[name].load()()
    except Exception as error:
        raise errors.StartError(
            f"the net {name} of {installed[name].value} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return made


def choose(name: str, rendezvous: Rendezvous, settings: config.Config | None = None) -> Choice:
    """Choose the net of a World; all ranks of the rendezvous call this together, with one `name`.

    :param name: of a provider, or "auto": the first one that connects all ranks, the built-in ones before others
    :param settings: the knobs of the World; None: those of the environment
    :raises StartError: it does not connect all ranks, or none does; the same text on all ranks
    """
    rejected: list[str] = []
    for candidates in _in_turn() if name == AUTO else ([name],):
        for candidate, found, lack in _survey(candidates, rendezvous, settings):
            if found is not None and not lack:
                if name != AUTO:
                    return Choice(found, f"HPCCOLL_NET={name}")
                return Choice(found, "; ".join(["chosen by HPCCOLL_NET=auto", *rejected]))
            rejected.append(f"not {candidate}: {lack}")
    raise errors.StartError("; ".join(rejected))


def _in_turn() -> Iterator[Iterable[str]]:
    """List what `auto` tries together: one built-in net after the other, so that a job over MPI does not load UCX."""
    yield from ([name] for name in BUILT_IN)
    yield _installed()


def _survey(
    candidates: Iterable[str], rendezvous: Rendezvous, settings: config.Config | None
) -> list[tuple[str, NetProvider | None, str]]:
    """List each candidate of rank 0, its provider here, and the reason of the first rank that cannot use it, or ""."""
    found: dict[str, NetProvider] = {}
    lacks: dict[str, str] = {}
    for candidate in candidates:
        try:
            found[candidate] = provider(candidate, settings)
            lacks[candidate] = found[candidate].lacks(rendezvous)
        except errors.HpccollError as error:
            lacks[candidate] = str(error)
    seen = rendezvous.compare(lacks)
    return [(candidate, found.get(candidate), _first_lack(candidate, seen)) for candidate in seen[0]]


def _first_lack(candidate: str, seen: Compared[dict[str, str]]) -> str:
    texts = seen.map(lambda lacks: lacks.get(candidate, "it is not installed there"))
    wrong = next((i for i, text in enumerate(texts.values) if text), None)
    if wrong is None:
        return ""
    return texts.values[wrong] if all(texts.values) else f"on rank {texts.first(wrong)} {texts.values[wrong]}"


def _installed() -> dict[str, metadata.EntryPoint]:
    """The providers of other packages."""
    from importlib import metadata  # here, because it takes a sixth of the time of `import hpccoll`

    return {point.name: point for point in sorted(metadata.entry_points(group=GROUP), key=lambda p: p.name)}
