/* SPDX-License-Identifier: Apache-2.0
 *
 * crc32c.c - CRC-32C by the instruction of SSE 4.2, or by tables of eight bytes.
 *
 * The instruction gives its result after three cycles and begins each cycle, so three lanes of a stretch run at the
 * same time. A lane begins with 0, as if nothing stood before it: what stands there is moved over the lane, which is
 * linear, so that a table for each byte of the checksum gives it.
 */
#include "transport/kernels/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* its bits in the order of the instruction */
#define LANE ((size_t)4096)

static uint32_t of_byte[8][256];   /* of a byte, and of a byte with 1 to 7 zeros behind it */
static uint32_t over_lane[4][256]; /* each byte of a checksum, moved over a lane of zeros */

static uint32_t by_tables(uint32_t crc, const unsigned char *at, size_t bytes) {
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint32_t low = crc ^ (at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = of_byte[7][low & 255] ^ of_byte[6][low >> 8 & 255] ^ of_byte[5][low >> 16 & 255] ^ of_byte[4][low >> 24] ^
              of_byte[3][at[4]] ^ of_byte[2][at[5]] ^ of_byte[1][at[6]] ^ of_byte[0][at[7]];
    }
    for (; bytes > 0; at++, bytes--)
        crc = of_byte[0][(crc ^ *at) & 255] ^ crc >> 8;
    return crc;
}

static void make_tables(void) {
    static const unsigned char zeros[LANE];
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        of_byte[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t i = 0; i < 256; i++)
            of_byte[k][i] = of_byte[0][of_byte[k - 1][i] & 255] ^ of_byte[k - 1][i] >> 8;
    for (int k = 0; k < 4; k++)
        for (uint32_t i = 1; i < 256; i++) { /* of a power of two by the zeros, else the sum of two that are there */
            uint32_t rest = i & (i - 1);
            over_lane[k][i] = rest ? over_lane[k][rest] ^ over_lane[k][i ^ rest]
                                   : by_tables(i << 8 * k, zeros, sizeof zeros);
        }
}

#if defined(__x86_64__)
#include <nmmintrin.h>

static uint64_t word(const unsigned char *at) {
    uint64_t found;
    memcpy(&found, at, sizeof found);
    return found;
}

static uint32_t moved(uint32_t crc) {
    return over_lane[0][crc & 255] ^ over_lane[1][crc >> 8 & 255] ^ over_lane[2][crc >> 16 & 255] ^
           over_lane[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const unsigned char *at, size_t bytes) {
    for (; bytes >= 3 * LANE; at += 3 * LANE, bytes -= 3 * LANE) {
        uint64_t a = crc, b = 0, c = 0;
        for (size_t i = 0; i < LANE; i += 8) {
            a = _mm_crc32_u64(a, word(at + i));
            b = _mm_crc32_u64(b, word(at + LANE + i));
            c = _mm_crc32_u64(c, word(at + 2 * LANE + i));
        }
        crc = moved(moved((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
    }
    uint64_t wide = crc;
    for (; bytes >= 8; at += 8, bytes -= 8)
        wide = _mm_crc32_u64(wide, word(at));
    crc = (uint32_t)wide;
    for (; bytes > 0; at++, bytes--)
        crc = _mm_crc32_u8(crc, *at);
    return crc;
}
#endif

static void once(void) {
    static pthread_once_t made = PTHREAD_ONCE_INIT;
    pthread_once(&made, make_tables);
}

uint32_t hc_crc32c_portable(uint32_t before, const void *data, size_t bytes) {
    once();
    return ~by_tables(~before, data, bytes);
}

uint32_t hc_crc32c(uint32_t before, const void *data, size_t bytes) {
    once();
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~by_instruction(~before, data, bytes);
#endif
    return ~by_tables(~before, data, bytes);
}
