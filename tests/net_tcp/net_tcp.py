# SPDX-License-Identifier: Apache-2.0
"""A net that another package brings: TCP between the processes of one machine.

The package has this module, the library of net_tcp.c, and an entry point of the group `hpccoll.nets`. hpccoll knows
nothing of it.
"""

import contextlib
import ctypes
import os
import secrets
import socket
import struct

from hpccoll.net import Drivers
from hpccoll.rendezvous import Rendezvous, agreed

LIBRARY = os.environ.get("NET_TCP_LIBRARY", "")
"""The file that net_tcp.c was compiled to."""
LOOPBACK = "127.0.0.1"
SECONDS = 30.0
"""Seconds that a rank waits for the connection of another one."""
HELLO = struct.Struct("16si")
"""The first bytes of a connection: the secret of this net, and the rank that connects."""


class TcpNet:
    """See hpccoll.net.NetProvider."""

    name = "tcp"
    moves_device_memory = False

    def lacks(self, rendezvous: Rendezvous | None) -> str:
        if not LIBRARY:
            return "it has no library (set NET_TCP_LIBRARY to its file)"
        if rendezvous is not None and rendezvous.one_process:
            return "the ranks are threads of one process (HPCCOLL_NET=threads connects those)"
        return ""

    def drivers(self) -> Drivers:
        return Drivers.ANY

    def describe(self) -> str:
        return "TCP over the loopback device"

    def library(self) -> str:
        return ""

    def make(self, rendezvous: Rendezvous, *, one_machine: bool) -> object:
        if not one_machine:
            raise RuntimeError("the ranks are on several machines, and this net has the loopback device only")
        lib = ctypes.CDLL(LIBRARY)
        with contextlib.ExitStack() as sockets:
            peers = connect(rendezvous, sockets)
            fds = [peers[rank].fileno() if rank in peers else -1 for rank in range(rendezvous.size)]
            lib.net_tcp_new.restype = ctypes.c_void_p
            box = lib.net_tcp_new(rendezvous.rank, rendezvous.size, (ctypes.c_int * len(fds))(*fds))
            if not box:
                raise MemoryError
            for peer in peers.values():
                peer.detach()
        return capsule(lib, box)


def connect(rendezvous: Rendezvous, sockets: contextlib.ExitStack) -> dict[int, socket.socket]:
    """Connect with each other rank: open connections to lower ranks, and accept those of higher ones.

    :returns: by rank; `sockets` closes them
    """
    listener = sockets.enter_context(
        agreed(rendezvous.compare, lambda: socket.create_server((LOOPBACK, 0), backlog=rendezvous.size))
    )
    addresses = rendezvous.allgather([listener.getsockname()[1], secrets.token_hex(16)])
    secret, peers = bytes.fromhex(addresses[0][1]), {}
    for rank in range(rendezvous.rank):
        peers[rank] = sockets.enter_context(socket.create_connection((LOOPBACK, addresses[rank][0]), SECONDS))
        peers[rank].sendall(HELLO.pack(secret, rendezvous.rank))
    listener.settimeout(SECONDS)
    while len(peers) < rendezvous.size - 1:
        peer, _ = listener.accept()
        peer.settimeout(SECONDS)
        token, rank = HELLO.unpack(peer.recv(HELLO.size, socket.MSG_WAITALL).ljust(HELLO.size, b"\0"))
        if token == secret:
            peers[rank] = sockets.enter_context(peer)
        else:
            peer.close()  # it is no rank of this World
    for peer in peers.values():
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peers


def capsule(lib: ctypes.CDLL, box: int) -> object:
    """Put a `struct hc_net_box` into a capsule "hpccoll.net", which frees it."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    name = ctypes.addressof(ctypes.c_char.in_dll(lib, "net_tcp_capsule_name"))
    return new(box, name, ctypes.cast(lib.net_tcp_capsule_free, ctypes.c_void_p))
