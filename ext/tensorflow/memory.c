/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - memory for results, which TensorFlow gives back and the next result takes.
 *
 * The memory of a new tensor comes from the kernel page by page, which takes longer than to reduce 161 gradients, and
 * libc gives large blocks back at once. So idle blocks are kept here, by size, the last one used on top. There are 8
 * sizes between two powers of 2; what a block has too much is never touched.
 */
#include "tensorflow/tensorflow.h"

#include <pthread.h>
#include <stdlib.h>

#define ALIGNMENT 64             /* TensorFlow's own; its kernels end the process where an address has less */
#define MOST_IDLE (256ull << 20) /* two sets of ResNet-50's gradients */
#define SMALLEST_LOG 6
#define CLASSES (8 * (48 - SMALLEST_LOG))

typedef struct block {
    struct block *next;
    uint32_t class;
    size_t bytes;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *idle[CLASSES];
static size_t idle_bytes;
static uint32_t evicted_from; /* the next class to lose a block where there are too many */

static uint32_t class_of(size_t bytes, size_t *rounded) {
    if (bytes < 1u << SMALLEST_LOG)
        bytes = 1u << SMALLEST_LOG;
    uint32_t log = 63 - (uint32_t)__builtin_clzll(bytes), shift = log - 3;
    size_t step = (size_t)1 << shift;
    *rounded = (bytes + step - 1) & ~(step - 1);
    return (log - SMALLEST_LOG) * 8 + (uint32_t)(*rounded >> shift) - 8;
}

/* The block's own words lie before the memory that is given away. */
static block *block_of(void *memory) {
    return (block *)(void *)((char *)memory - ALIGNMENT);
}

static block *pop(uint32_t class) {
    block *found = idle[class];
    if (found) {
        idle[class] = found->next;
        idle_bytes -= found->bytes;
    }
    return found;
}

void *hc_tf_memory_take(size_t bytes) {
    size_t rounded;
    uint32_t class = class_of(bytes, &rounded);
    if (class >= CLASSES)
        return NULL;
    pthread_mutex_lock(&lock);
    block *found = pop(class);
    pthread_mutex_unlock(&lock);
    void *made = found;
    if (!made && posix_memalign(&made, ALIGNMENT, ALIGNMENT + rounded))
        return NULL;
    *(block *)made = (block){.class = class, .bytes = rounded};
    return (char *)made + ALIGNMENT;
}

/* Takes blocks out until `most` bytes are idle; returns them. */
static block *evict(size_t most) {
    block *out = NULL;
    while (idle_bytes > most) {
        evicted_from = (evicted_from + 1) % CLASSES;
        block *found = pop(evicted_from);
        if (found) {
            found->next = out;
            out = found;
        }
    }
    return out;
}

static void free_all(block *first) {
    for (block *next; first; first = next) {
        next = first->next;
        free(first);
    }
}

void hc_tf_memory_give(void *memory) {
    block *given = block_of(memory), *out = NULL;
    if (given->bytes > MOST_IDLE) {
        free(given);
        return;
    }
    pthread_mutex_lock(&lock);
    if (idle_bytes + given->bytes > MOST_IDLE)
        out = evict(MOST_IDLE - given->bytes);
    given->next = idle[given->class];
    idle[given->class] = given;
    idle_bytes += given->bytes;
    pthread_mutex_unlock(&lock);
    free_all(out);
}

void hc_tf_memory_free_idle(void) {
    pthread_mutex_lock(&lock);
    block *out = evict(0);
    pthread_mutex_unlock(&lock);
    free_all(out);
}

size_t hc_tf_memory_idle(void) {
    pthread_mutex_lock(&lock);
    size_t bytes = idle_bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}
