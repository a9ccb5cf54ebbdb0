# SPDX-License-Identifier: Apache-2.0
"""Links with a rate and a delay (wire.c; needs root): nothing is faster than they allow, and nothing is changed."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

from namespaces import PROGRAMS, SCRIPT, cluster, hosts_turn, python

DELAY, RATE, BYTES = 0.003, 50e6, 1 << 20
DATA = f"__import__('random').Random(1).randbytes({BYTES})"
RECEIVE = f"""
import socket, time
with socket.create_server(("", 7777)) as listener:
    print("ready", flush=True)
    with listener.accept()[0] as peer:
        got = b"".join(iter(lambda: peer.recv(65536), b""))
    print(time.time(), got == {DATA})
"""
SEND = f"""
import socket, time
data, began = {DATA}, time.time()
with socket.create_connection(("h2", 7777), timeout=20) as peer:
    connected = time.time()
    peer.sendall(data)
print(began, connected)
"""


def test_nothing_is_faster_than_the_link(
    uncounted: Callable[[], AbstractContextManager[None]], needs: Callable[..., None]
) -> None:
    """A connection takes a round trip, and the data half of one and its time on the link. All hosts have one clock."""
    needs(*PROGRAMS, "gcc")
    with hosts_turn(uncounted):
        cluster("up", 2, f"{RATE / 1e6:.0f}mbit", f"{DELAY * 1e3:.0f}ms")
        try:
            command = [str(SCRIPT), "exec", "h2", sys.executable, "-c", RECEIVE]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
                assert receiver.stdout and receiver.stdout.readline() == "ready\n"
                began, connected = map(float, python("h1", "-c", SEND).stdout.split()[-2:])
                ended, equal = receiver.communicate(timeout=60)[0].split()
        finally:
            cluster("down")
    assert equal == "True"
    assert connected - began >= 2 * DELAY
    assert float(ended) - connected >= DELAY + 8 * BYTES / RATE
