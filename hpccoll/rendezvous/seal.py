# SPDX-License-Identifier: Apache-2.0
"""Records in a key-value store that other users may be able to write: values, authenticated by a secret of the job.

The code (HMAC-SHA256) also covers the record's key, which names the rendezvous, the exchange and the rank. So a record
that was changed, moved to another key, or replayed from another rendezvous is refused.
"""

import hashlib
import hmac
import re
from typing import Any

from hpccoll.rendezvous import codec

__all__ = ["BrokenSealError", "Seal"]

PURPOSE = b"hpccoll rendezvous 1"
CODE = re.compile(rb"[0-9a-f]{64}")
OPEN = b"-"
"""Takes the place of the code if there is no secret."""


class BrokenSealError(ValueError):
    """A record was not written by a rank that has the secret, or not for this key."""


class Seal:
    """Writes and reads records."""

    def __init__(self, secret: str, *more: str) -> None:
        """Derive the key.

        :param secret: equal on all ranks, and known only to them; "": records are not authenticated
        :param more: other texts from which the key is derived
        """
        self.key = _code(secret.encode(), *(word.encode() for word in more)) if secret else b""

    def close(self, key: str, value: Any) -> bytes:
        """Write the record of a key."""
        payload = codec.encode(value)
        return self._seal(key, payload) + b" " + payload

    def open(self, key: str, record: bytes) -> Any:
        """Read the record of a key.

        :raises BrokenSealError: its code is wrong or missing, or it has a code although there is no secret
        :raises ValueError: it holds no value
        """
        seal, space, payload = record.partition(b" ")
        if not space:
            raise BrokenSealError("it is not a record of hpccoll")
        if not hmac.compare_digest(seal, self._seal(key, payload)):
            raise BrokenSealError(self._why(seal))
        return codec.decode(payload)

    def _seal(self, key: str, payload: bytes) -> bytes:
        return _code(self.key, key.encode(), payload).hex().encode() if self.key else OPEN

    def _why(self, seal: bytes) -> str:
        if seal != OPEN and not CODE.fullmatch(seal):
            return "it is not a record of hpccoll"
        if not self.key:
            return "it is authenticated, and this rank has no secret to check it by (HPCCOLL_SECRET)"
        if seal == OPEN:
            return "it is not authenticated: its writer has no secret (HPCCOLL_SECRET)"
        return "its code is wrong: its writer has another secret (HPCCOLL_SECRET), or it was changed"


def _code(key: bytes, *parts: bytes) -> bytes:
    """The HMAC of several parts, each behind its length."""
    made = hmac.new(key, PURPOSE, hashlib.sha256)
    for part in parts:
        made.update(len(part).to_bytes(8, "little") + part)
    return made.digest()
