# SPDX-License-Identifier: Apache-2.0
"""Horovod's exceptions.

A ValueError reports what one rank can see by itself, a RuntimeError what happens between ranks: see hpccoll.errors.
"""

from hpccoll.elastic import HostsUpdatedInterrupt
from hpccoll.errors import RecoverableError

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]

HorovodInternalError = RecoverableError
"""A rank or the transport failed while this process is sound. An elastic job recovers from this error only."""
