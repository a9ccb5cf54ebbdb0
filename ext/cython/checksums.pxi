# SPDX-License-Identifier: Apache-2.0
# checksums.pxi - the checksum of files, of any memory.

cdef extern from "transport/kernels/crc32c.h" nogil:
    uint32_t hc_crc32c(uint32_t before, const void *data, size_t bytes)
    uint32_t hc_crc32c_portable(uint32_t before, const void *data, size_t bytes)


def crc32c(const unsigned char[::1] data, uint32_t before=0, bint portable=False):
    """Compute the CRC-32C of bytes.

    :param before: the checksum of the bytes before these
    :param portable: without the processor's instruction, for tests
    """
    cdef size_t n = data.shape[0]
    cdef const void *at = &data[0] if n else NULL
    with nogil:
        before = hc_crc32c_portable(before, at, n) if portable else hc_crc32c(before, at, n)
    return before
