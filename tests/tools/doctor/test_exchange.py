# SPDX-License-Identifier: Apache-2.0
"""Ranks exchange values in a folder, also if some never come; pairs measure each other."""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from reports import interface, report

from hpccoll.checks.survey import Survey
from hpccoll.tools.doctor import exchange, links, measure, reach


def together(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(timeout=50) for future in [pool.submit(call) for call in calls]]


def test_a_folder_hands_values_around_and_goes_away(tmp_path: Path) -> None:
    def rank(number: int) -> list[Any]:
        ranks = exchange.FolderExchange(tmp_path / "m", number, 3, 20)
        result = [ranks.allgather(number * 10), ranks.allgather(None), ranks.allgather({"a": [number]})]
        ranks.close()
        return result

    expected = [[0, 10, 20], [None] * 3, [{"a": [0]}, {"a": [1]}, {"a": [2]}]]
    assert together(*(lambda r=r: rank(r) for r in range(3))) == [expected] * 3
    assert not (tmp_path / "m").exists()


def test_a_rank_that_does_not_come_is_none_from_then_on(tmp_path: Path) -> None:
    """Rank 0 comes when rank 2 is there, waits a little for rank 1, and after that for rank 2 alone."""

    def rank(number: int) -> list[Any]:
        ranks = exchange.FolderExchange(tmp_path, number, 3, 20)
        if number == 0:
            ranks._wait((tmp_path / "1-2").exists, 20)
            ranks.patience = 0.1
        first = ranks.allgather(number)
        ranks.patience = 20
        return [first, ranks.allgather(number + 1)]

    assert together(lambda: rank(0), lambda: rank(2)) == [[[0, None, 2], [1, None, 3]]] * 2


def test_rank_0_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange.FolderExchange, "_wait", lambda self, done, seconds: done())
    ranks = exchange.FolderExchange(tmp_path / "m", 1, 2, 1)
    with pytest.raises(exchange.ExchangeError, match="no word from rank 0"):
        ranks.allgather(0)
    ranks.leave()
    assert not (tmp_path / "m").exists()


def test_a_folder_into_which_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in ("open", "link"):
        with pytest.raises(exchange.ExchangeError, match="is another user's, or others may write into it"):
            exchange.FolderExchange(tmp_path / folder, 0, 2, 1)
    exchange.FolderExchange(tmp_path / "made", 0, 2, 1)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


def test_the_ends_of_a_connection_measure_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LONG_ENOUGH", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    first, _ = together(
        lambda: measure.pair(links.TcpLink(one, 20), True),
        lambda: measure.pair(links.TcpLink(other, 20), False),
    )
    one.close()
    other.close()
    assert 0 < first["latency"] < 5
    assert abs(first["skew"]) < 5
    assert len(first["bandwidth"]) == 2
    assert min(first["bandwidth"]) > 0
    assert first["sent"] >= 4 * measure.BLOCK


class Two:
    """Two threads that exchange values."""

    def __init__(self) -> None:
        self.values: list[Any] = [None, None]
        self.barrier = threading.Barrier(2, timeout=20)

    def rank(self, number: int) -> Any:
        class ThreadExchange:
            rank, size = number, 2

            def allgather(_, value: Any) -> list[Any]:
                self.barrier.wait()
                self.values[number] = value
                self.barrier.wait()
                return list(self.values)

        return ThreadExchange()


def test_addresses_are_tried_and_the_own_are_not() -> None:
    """Two "hosts" of this machine, at 127.0.0.2 and .3, each with the decoy 127.9.9.9; loopback counts as usable."""
    decoy = interface("docker0", "127.9.9.9", 16)
    reports = [report(r, r, addresses={"interfaces": [interface("eth0", f"127.0.0.{r + 2}"), decoy]}) for r in range(2)]
    survey, two = Survey(reports, 2), Two()

    def rank(number: int) -> list[dict[str, Any]]:
        listening = reach.listen(survey, number)
        assert listening
        with listening as listener:
            tried, _ = reach.probe(two.rank(number), survey, listener)
            return tried

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reach.addresses, "usable", lambda c: c.facts["addresses"]["interfaces"])
        tried, same = together(lambda: rank(0), lambda: rank(1))
    assert tried == same
    assert {(t["from"], t["address"]): t["outcome"] for t in tried} == {
        ("h1", "127.0.0.3"): "ok", ("h1", "127.9.9.9"): "own", ("h2", "127.0.0.2"): "ok", ("h2", "127.9.9.9"): "own",
    }  # fmt: skip
