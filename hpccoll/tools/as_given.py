# SPDX-License-Identifier: Apache-2.0
"""How commands write what the locale cannot encode: bytes of names as they are, characters by number."""

import codecs

__all__ = ["AS_GIVEN"]

AS_GIVEN = "hpccoll-as-given"
"""The error handler, for `encode` and `reconfigure`."""


def _write(error: UnicodeError) -> tuple[bytes | str, int]:
    """Encode one character: Python keeps a byte of a name that is no text in U+DC80 to U+DCFF."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = ord(error.object[error.start])
    if 0xDC80 <= character <= 0xDCFF:
        return bytes([character - 0xDC00]), error.start + 1
    return error.object[error.start].encode("ascii", "backslashreplace"), error.start + 1


codecs.register_error(AS_GIVEN, _write)
