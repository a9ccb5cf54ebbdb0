/* SPDX-License-Identifier: Apache-2.0
 *
 * crc32c.h - the checksum of the files of checkpoints: CRC-32C (Castagnoli), as in RFC 3720, for which x86 has an
 * instruction.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The checksum of bytes that follow those with the checksum `before`; 0: these are the first. */
uint32_t hc_crc32c(uint32_t before, const void *data, size_t bytes);
/* The same without the instruction, for processors that lack it. */
uint32_t hc_crc32c_portable(uint32_t before, const void *data, size_t bytes);
