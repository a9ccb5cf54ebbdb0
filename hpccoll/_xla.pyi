# SPDX-License-Identifier: Apache-2.0
handler: object
SEND: int
RECEIVE: int
SENDRECV: int
nothing: object
CALL: str
NOTHING: str
MANY_STEPS: int
LARGE_BYTES: int

def register(library: str, table: str) -> str: ...
