# SPDX-License-Identifier: Apache-2.0
"""What ranks write into a store, and what somebody else may have written there."""

import dataclasses
import os
import pickle
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from stores import MemoryStore, exchange

from hpccoll import config, errors, start_report
from hpccoll.compared import Compared
from hpccoll.rendezvous import codec, patience
from hpccoll.rendezvous.seal import BrokenSealError, Seal


@pytest.fixture(autouse=True)
def _ranks_give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("generation", "store"):
        monkeypatch.setattr(f"hpccoll.rendezvous.{module}.GRACE", 0.2)


class Command:
    """Whoever unpickles it runs a command."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"id > {self.file}",)


def test_nothing_in_a_store_is_executed(tmp_path: Path) -> None:
    """As it was found: a stranger sets the keys of a TCPStore to a pickle that calls os.system()."""
    shown = tmp_path / "executed"
    command = pickle.dumps(Command(shown))
    pickle.loads(command)
    assert shown.read_text().startswith("uid="), "the pickle is a working one"
    shown.unlink()
    for part in ("hello", "answer", "come", "met", "/0/", "/0/1", "all"):
        store = MemoryStore(lambda key, value, part=part: command if part in key else value)  # type: ignore[misc]
        heard = exchange(store, ["a", "b"])
        assert any(isinstance(one, str) for one in heard), (part, heard)
        assert all(isinstance(one, list) or "the World was not made" in one for one in heard), (part, heard)
        assert not shown.exists(), part


@pytest.mark.parametrize("secrets", [["", ""], ["word", "word"]], ids=["no secret", "a secret"])
def test_values_arrive_as_they_were(secrets: list[str]) -> None:
    values = [{"text": "ä\ud800", "list": [1, -2.5, 1 << 200, None, True, float("inf")], "empty": {}}, {"other": []}]
    assert exchange(MemoryStore(), values, secrets, timeout=30) == [values, values]


@pytest.mark.parametrize(
    ("secrets", "why"),
    [
        (["one", "two"], "its code is wrong: its writer has another secret (HPCCOLL_SECRET), or it was changed"),
        (["one", ""], "it is not authenticated: its writer has no secret (HPCCOLL_SECRET)"),
        (["", "two"], "it is authenticated, and this rank has no secret to check it by (HPCCOLL_SECRET)"),
    ],
)
def test_another_secret_is_named(secrets: list[str], why: str) -> None:
    first, second = exchange(MemoryStore(), ["a", "b"], secrets)
    assert first == (
        "the World was not made: no word from rank 1 within 0.3 s (HPCCOLL_START_TIMEOUT); the record of rank 1 is "
        f"refused: {why}"
    )
    assert isinstance(second, str)
    assert "no word from rank 0" in second


def test_a_record_counts_for_its_key_only() -> None:
    """Moved to another rank, kept from another rendezvous, changed in a bit, signed by nobody: all refused."""
    seal = Seal("secret", "generation", "a", "b")
    record = seal.close("p/g/0/1", ["value", 1])
    assert seal.open("p/g/0/1", record) == ["value", 1]
    refused = [
        (seal, "p/g/0/2", record),
        (seal, "p/g/1/1", record),
        (Seal("secret", "another", "a", "b"), "p/g/0/1", record),
        (Seal("secret", "generationa", "", "b"), "p/g/0/1", record),
        (Seal("other", "generation", "a", "b"), "p/g/0/1", record),
        (seal, "p/g/0/1", Seal("").close("p/g/0/1", ["value", 1])),
        (seal, "p/g/0/1", record[:-1] + b"2"),
        (seal, "p/g/0/1", b""),
    ]
    refused += [(seal, "p/g/0/1", record[:i] + bytes([record[i] ^ 1]) + record[i + 1 :]) for i in range(len(record))]
    for reader, key, found in refused:
        with pytest.raises(BrokenSealError):
            reader.open(key, found)


def test_a_changed_record_ends_the_start_on_all_ranks() -> None:
    def change(key: str, value: bytes) -> bytes:
        return value.replace(b"mine", b"evil") if key.endswith("/0/2") else value

    for heard in exchange(MemoryStore(change), ["x", "y", "mine"], ["s"] * 3, timeout=30):
        assert heard == (
            "the World was not made: the record of rank 2 in the store is refused: its code is wrong: its writer has "
            "another secret (HPCCOLL_SECRET), or it was changed"
        )


def test_a_replayed_rendezvous_is_refused() -> None:
    """All records of an earlier rendezvous with the same secret, put back: neither rank takes them for today's."""
    before = MemoryStore()
    assert exchange(before, ["a", "b"], ["s", "s"], timeout=30) == [["a", "b"]] * 2
    old_hello = before.values["hpccoll/hello/1"]
    store = MemoryStore(lambda key, value: old_hello if key.endswith("/hello/1") else value)
    store.values.update(before.values)
    first, second = exchange(store, ["c", "d"], ["s", "s"])
    assert isinstance(first, str)
    assert isinstance(second, str)
    assert "no word from rank 1" in first


def test_values_of_python_alone_are_refused_before_they_travel() -> None:
    for value in ((1, 2), {1: 2}, b"bytes", {"a": {1}}, object()):
        with pytest.raises(TypeError, match="ranks exchange JSON"):
            codec.encode(value)
    for text in (b"[" * 100_000, b"\xff", b"", b"1" * 5000, b"{", b"nul"):
        with pytest.raises(ValueError):
            codec.decode(text)


def test_a_store_that_never_answers_is_a_start_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hpccoll.rendezvous.patience.MARGIN", 0.5)
    monkeypatch.setattr("hpccoll.rendezvous.patience.REPORT_EVERY", 0.2)

    class Silent(MemoryStore):
        def get(self, key: str) -> bytes:
            threading.Event().wait()
            raise AssertionError

    first, second = exchange(Silent(), ["a", "b"])
    assert "the store failed: SilentStoreError: the store has not answered for" in first
    assert "no word from rank 0" in second
    assert "hpccoll: start: the store has not answered for 0 s (get hpccoll/" in capsys.readouterr().err


def test_a_store_is_given_its_time_although_the_ranks_own_is_over() -> None:
    """A process that did not run until its time was over blames missing ranks, not a store that answers."""

    class Slow(MemoryStore):
        def check(self, keys: list[str]) -> bool:
            time.sleep(0.3)
            return super().check(keys)

    store = Slow()
    store.set("here", b"")
    with patience.PatientStore(store, -1000.0) as patient:
        assert patient.there("here")
        assert not patient.there("missing")


# ---- fuzz ------------------------------------------------------------------------------------------------

PIECES = [b"[]", b"{}", b"null", b"-1", b"1e999", b'"x"', b"[[[[", b" ", b"\x80", b"NaN", b"99999999999999999999", b"-"]


def mangled(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, left out, repeated, or replaced by what JSON may hold elsewhere."""
    for _ in range(rng.randint(1, 4)):
        at, some = rng.randrange(len(data) + 1), rng.randint(0, 12)
        piece = rng.choice([*PIECES, data[at : at + some], bytes([rng.randrange(256)])])
        data = data[:at] + piece + data[at + rng.choice([0, len(piece), some]) :]
    return data


def reports() -> list[dict[str, Any]]:
    settings = {"settings": dataclasses.asdict(config.read()), "uses_gpu": False}
    leads = {"nonce": "0123456789abcdef", "proofs": [[], ""]}
    return [settings, {"machine": "machine", "host": "host", "address": [2, "s1/host"], "leads": leads}]


def read(sent: list[dict[str, Any]]) -> config.Config:
    settings, _ = start_report.read_settings(Compared([sent[0]], 2))
    start_report.read_leads(Compared([sent[1]], 2))
    start_report.read_addresses(Compared([sent[1]], 2))
    return settings[1]


def fuzz_reports(count: int, seed: int) -> int:
    rng, real, refused = random.Random(seed), codec.encode(reports()), 0
    assert read(codec.decode(real)) == config.read()
    for _ in range(count):
        try:
            sent = codec.decode(mangled(rng, real))
            if isinstance(sent, list) and len(sent) == 2 and all(isinstance(one, dict) for one in sent):
                read(sent)
        except (ValueError, errors.StartError):
            refused += 1
    return refused


def fuzz_exchanges(count: int, seed: int) -> int:
    """Exchanges in which every record is mangled with one chance in five; the number that ended with an error."""
    failed, rng = 0, random.Random(seed)
    for _ in range(count):

        def change(_key: str, value: bytes) -> bytes:
            return mangled(rng, value) if rng.random() < 0.2 else value

        values = ["zero", "one", "two"]
        heard = exchange(MemoryStore(change), values, timeout=0.05)
        failed += any(isinstance(one, str) for one in heard)
        assert all(isinstance(one, list) or one.startswith("the World was not made: ") for one in heard), heard
    return failed


def test_mangled_reports_are_start_errors() -> None:
    assert fuzz_reports(3000, 1) > 1000


@pytest.mark.slow
def test_many_mangled_reports_are_start_errors() -> None:
    assert fuzz_reports(100_000, 2) > 30_000


def test_mangled_records_are_start_errors() -> None:
    assert fuzz_exchanges(15, 1) > 5


@pytest.mark.slow
def test_many_mangled_records_are_start_errors() -> None:
    assert fuzz_exchanges(150, 2) > 50
