# SPDX-License-Identifier: Apache-2.0
"""The reports that the ranks exchange before the World is made.

Most values are the same on all ranks (settings) or on all ranks of a machine (its name), and each different value is
sent once. Values that only rank 0 knows, or decides, are sent once, too.
"""

import dataclasses
import os
import platform
import re
import secrets
from typing import Any

import numpy as np

from hpccoll import config, errors, inherited, node_order
from hpccoll.checks import gpus, proofs
from hpccoll.compared import Compared
from hpccoll.rendezvous import Machine, Rendezvous

__all__ = ["Ranks", "exchange", "read_leads", "read_settings"]

NONCE = re.compile(r"[0-9a-f]{16}")
Proofs = tuple[list[proofs.Proof], str]


@dataclasses.dataclass(frozen=True)
class Ranks:
    """The reports of all ranks."""

    settings: Compared[config.Config]
    uses_gpu: Compared[bool]
    machines: Compared[Machine]
    hosts: Compared[str]
    addresses: Compared[node_order.Address]
    """Where the node of each rank stands in the network."""
    pids: np.ndarray
    """The pid of each rank, int32."""
    nonce: str
    """A random word, unique to this World, for names of shared memory; from rank 0."""
    proofs: Proofs
    """The proofs that MPI accepts GPU memory, from rank 0's files."""


def exchange(rendezvous: Rendezvous, settings: config.Config) -> Ranks:
    """Tell the other ranks about this one; all ranks call this together.

    :raises StartError: a rank sent something that cannot be read
    """
    told = rendezvous.compare({"settings": dataclasses.asdict(settings), "uses_gpu": gpus.wanted(settings)})
    leads = {"nonce": secrets.token_hex(8), "proofs": _proofs(settings)} if rendezvous.rank == 0 else {}
    place: dict[str, Any] = {"machine": rendezvous.machine(), "host": platform.node(), "leads": leads}
    address = node_order.address_here(settings, inherited.environment())
    if address[0] != node_order.HOST:
        place["address"] = list(address)
    places = rendezvous.compare(place)
    pids = rendezvous.numbers([os.getpid()])[:, 0]
    if not ((pids > 0) & (pids < 1 << 31)).all():
        rank = int(np.argmin((pids > 0) & (pids < 1 << 31)))
        raise _unreadable(rank, ValueError(f"pid is {int(pids[rank])!r}"))
    settings_of_all, uses_gpu = read_settings(told)
    machines, hosts, nonce, found = read_leads(places)
    addresses = read_addresses(places)
    return Ranks(settings_of_all, uses_gpu, machines, hosts, addresses, pids.astype(np.int32), nonce, found)


def read_settings(told: Compared[dict[str, Any]]) -> tuple[Compared[config.Config], Compared[bool]]:
    """Read the settings of all ranks, and which of them use a GPU.

    :raises StartError: a rank sent values of other types
    """
    known: dict[int, tuple[config.Config, bool]] = {}
    for i, sent in enumerate(told.values):
        try:
            known[id(sent)] = config.from_values(sent["settings"]), _is_a(bool, sent, "uses_gpu")
        except (errors.InvalidArgumentError, KeyError, TypeError, ValueError) as error:
            raise _unreadable(told.first(i), error) from None
    return told.map(lambda sent: known[id(sent)][0]), told.map(lambda sent: known[id(sent)][1])


def read_leads(places: Compared[dict[str, Any]]) -> tuple[Compared[Machine], Compared[str], str, Proofs]:
    """Read the places of the ranks, and the values from rank 0.

    :returns: machines, hosts, nonce and proofs, as in Ranks
    :raises StartError: a rank sent values of other types
    """
    _check_types(places, "machine", {int, str})
    _check_types(places, "host", {str})
    try:
        nonce, found = _read_leads(places[0]["leads"])
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(0, error) from None
    machines, hosts = places.map(lambda sent: sent["machine"]), places.map(lambda sent: sent["host"])
    return machines, hosts, nonce, found


def read_addresses(places: Compared[dict[str, Any]]) -> Compared[node_order.Address]:
    """Read where the nodes of the ranks stand in the network; a rank that only knows its host does not say so.

    :raises StartError: a rank sent something else
    """
    found = dict[int, node_order.Address]()
    for i, sent in enumerate(places.values):
        try:
            found[id(sent)] = node_order.read(sent.get("address", (node_order.HOST, sent["host"])))
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(places.first(i), error) from None
    return places.map(lambda sent: found[id(sent)])


def _check_types(places: Compared[dict[str, Any]], name: str, kinds: set[type]) -> None:
    """Check all values at once: there is one per node, and thousands of calls would dominate the time of the start."""
    try:
        if {type(sent[name]) for sent in places.values} <= kinds:
            return
    except (KeyError, TypeError):
        pass
    for i, sent in enumerate(places.values):
        try:
            if type(sent[name]) not in kinds:
                raise TypeError(f"{name} is {sent[name]!r}")
        except (KeyError, TypeError) as error:
            raise _unreadable(places.first(i), error) from None


def _read_leads(sent: dict[str, Any]) -> tuple[str, Proofs]:
    found, wrong = sent["proofs"]
    if not NONCE.fullmatch(sent["nonce"]):
        raise ValueError(f"nonce is {sent['nonce']!r}")
    return sent["nonce"], ([proofs.from_values(proof) for proof in found], wrong)


def _is_a(kind: Any, sent: dict[str, Any], name: str) -> Any:
    if not isinstance(sent[name], kind):
        raise TypeError(f"{name} is {sent[name]!r}")
    return sent[name]


def _unreadable(rank: int, error: Exception) -> errors.StartError:
    return errors.StartError(
        f"the World was not made: the report of rank {rank} cannot be read: {type(error).__name__}: {error}"
    )


def _proofs(settings: config.Config) -> list[Any]:
    """The proofs for MPI and GPU memory that this rank can read, as JSON values."""
    if settings.gpu_aware_mpi != "auto" or settings.device == "none":
        return [[], ""]
    found, wrong = proofs.read(proofs.files(settings.gpu_aware_record, inherited.environment()))
    return [[dataclasses.asdict(proof) for proof in found], wrong]
