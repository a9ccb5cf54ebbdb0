# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of ranks that share a key-value store, such as torchrun gives them: a World without MPI.

Any process that reaches a store can write to it. So records are JSON, which executes no code, and are authenticated if
the ranks share a secret.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from hpccoll import _core, config, errors, inherited
from hpccoll.compared import Compared, from_list
from hpccoll.rendezvous import codec, generation
from hpccoll.rendezvous.generation import GRACE, Reports, UnmetError, tell
from hpccoll.rendezvous.patience import REPORT_EVERY, NoThreadError, PatientStore, Store
from hpccoll.rendezvous.protocol import ByAllgather
from hpccoll.rendezvous.seal import Seal
from hpccoll.text import some_ranks

__all__ = ["Store", "StoreRendezvous"]

T = TypeVar("T")


class StoreRendezvous(ByAllgather):
    """See Rendezvous: the ranks share a store."""

    one_process = False

    def __init__(
        self,
        rank: int,
        size: int,
        store: Store,
        *,
        prefix: str = "hpccoll",
        host: str | None = None,
        timeout: float | None = None,
        secret: str | None = None,
    ) -> None:
        """Find the other ranks.

        Records of earlier processes under this prefix do no harm: ranks that were started again find each other.

        :param rank: the number of this process, from 0
        :param size: the number of all processes
        :param store: has the methods `set`, `get`, `wait` and `check` of `torch.distributed.Store`
        :param prefix: the beginning of all keys; two rendezvous at a time need different ones
        :param host: equal on ranks that can share memory; default: the names of the host, of its boot and of its
            /dev/shm, of which containers on one host may have several
        :param timeout: seconds for each exchange of the rendezvous; default: HPCCOLL_START_TIMEOUT
        :param secret: equal on all ranks and known to nobody else: what the store holds is authenticated by it;
            default: HPCCOLL_SECRET, which `hpccoll run` gives to its ranks; "": it is not authenticated
        :raises StartError: ranks are missing, or the store failed; on all ranks that are there
        """
        if not 0 <= rank < size:
            raise errors.InvalidArgumentError(f"rank {rank} of {size} ranks: ranks count from 0")
        self.rank, self.size = rank, size
        self.store = store
        self.timeout = config.read().start_timeout if timeout is None else timeout
        self.host = host or _core.machine_name()
        secret = inherited.secret() if secret is None else secret
        self.authenticated = bool(secret)
        self.unread: float | None = None
        """When rank 0 wrote a record that a rank had not read in time: then the others have waited since, and this
        exchange has begun."""
        with self._patiently() as patient:
            members = generation.find(patient, Seal(secret), prefix, rank, size)
        self.seal = Seal(secret, members.generation, *members.numbers)
        self.unread = members.unread
        self.prefix = f"{prefix}/{members.generation}"
        self.exchanges = 0

    def allgather(self, value: T) -> list[T]:
        """See Rendezvous."""
        return list(self.compare(value))

    def compare(self, value: T) -> Compared[T]:
        """See Rendezvous. Rank 0 reads what each rank wrote, and writes each different value once for all to read.

        Rank 0 returns when all ranks have read them: it may end next, and the store with it.
        """
        at, self.exchanges = f"{self.prefix}/{self.exchanges}", self.exchanges + 1
        with self._patiently() as store:
            mine = f"{at}/{self.rank}"
            store.set(mine, self.seal.close(mine, value))
            said: Compared[T] = self._collect(store, at) if self.rank == 0 else self._read(store, at)
            for i, other in enumerate(said.values):
                if type(other) is not type(value):
                    raise UnmetError(f"rank {said.first(i)} sent a {type(other).__name__} for a {type(value).__name__}")
        return said

    def _collect(self, store: PatientStore, at: str) -> Compared[Any]:
        """On rank 0: read the value of each rank."""
        said, verdict, keys = Compared[Any]([], 0), "", [f"{at}/{rank}" for rank in range(self.size)]
        reports = Reports()
        while not (complete := store.wait(keys, REPORT_EVERY)) and store.left > 0:
            reports.say(self._missing(store, keys))
        missing = set() if complete else self._missing(store, keys)
        if missing:
            verdict = f"no word from {some_ranks(missing)} within {self.timeout:g} s (HPCCOLL_START_TIMEOUT)"
        else:
            try:
                said = from_list((self._open(store, key, rank) for rank, key in enumerate(keys)), codec.encode)
            except UnmetError as error:
                verdict = str(error)
        told = {"verdict": verdict, "values": said.values, "of": None if said.of is None else said.of.tolist()}
        marks = [f"{at}/{rank}/read" for rank in range(1, self.size) if rank not in missing]
        self.unread = tell(store, f"{at}/all", self.seal.close(f"{at}/all", told), marks, bool(verdict))
        if verdict:
            raise UnmetError(verdict)
        return said

    def _read(self, store: PatientStore, at: str) -> Compared[Any]:
        """On the other ranks: the same."""
        store.limit += GRACE
        reports = Reports()
        while not store.wait([f"{at}/all"], REPORT_EVERY):
            if store.left <= 0:
                raise UnmetError(f"no word from rank 0 within {self.timeout + GRACE:g} s (HPCCOLL_START_TIMEOUT)")
            if self.rank == 1 and not store.there(f"{at}/0"):
                reports.say([0])
        outcome = self._open(store, f"{at}/all", 0)
        store.set(f"{at}/{self.rank}/read", b"")
        if not isinstance(outcome, dict) or not isinstance(outcome.get("values"), list):
            raise UnmetError("the record of rank 0 in the store is none of hpccoll")
        if outcome.get("verdict"):
            raise UnmetError(str(outcome["verdict"]))
        return self._told(outcome["values"], outcome.get("of"))

    def _told(self, values: list[Any], of: Any) -> Compared[Any]:
        """Check and decode the record of rank 0, which another process may have changed."""
        if of is None and len(values) == 1:
            return Compared(values, self.size)
        right = isinstance(of, list) and all(type(i) is int and 0 <= i < len(values) for i in of)
        if not right or set(of) != set(range(len(values))):
            raise UnmetError("the record of rank 0 in the store is none of hpccoll")
        if len(of) != self.size:
            raise UnmetError(f"the record of rank 0 in the store is for {len(of)} ranks")
        return Compared(values, self.size, np.array(of))

    def _open(self, store: PatientStore, key: str, rank: int) -> Any:
        try:
            return self.seal.open(key, store.get(key))
        except ValueError as error:
            raise UnmetError(f"the record of rank {rank} in the store is refused: {error}") from None

    def _missing(self, store: PatientStore, keys: list[str]) -> set[int]:
        return {rank for rank, key in enumerate(keys) if not store.there(key)}

    @contextlib.contextmanager
    def _patiently(self) -> Iterator[PatientStore]:
        """Yield the store for one exchange; turn its errors into StartError."""
        try:
            with PatientStore(self.store, self.timeout, self.unread) as patient:
                yield patient
        except UnmetError as error:
            raise errors.StartError(f"the World was not made: {error}") from None
        except NoThreadError as error:
            raise errors.StartError(f"the World was not made: rank {self.rank}: {error}") from None
        except Exception as error:
            raise errors.StartError(
                f"the World was not made: the store failed: {type(error).__name__}: {error}"
            ) from error

    def machine(self) -> str:
        """See Rendezvous."""
        return self.host

    def describe(self) -> str:
        """See Rendezvous: says whether the records are authenticated."""
        if self.authenticated:
            return "the ranks met through a store, authenticated by HPCCOLL_SECRET"
        return "the ranks met through a store without a secret (HPCCOLL_SECRET): its records are not authenticated"
