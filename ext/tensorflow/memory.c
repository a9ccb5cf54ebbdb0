/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - memory for results; after TensorFlow returns it, later results reuse it.
 *
 * Page faults of new tensors take longer than the reduction of 161 gradients, and libc returns large blocks to the
 * kernel at once. So this file keeps idle blocks by size, the last used block first. There are 8 sizes between two
 * powers of 2; the excess bytes of a block are never touched.
 */
#include "tensorflow/tensorflow.h"

#include <pthread.h>
#include <stdlib.h>

#define ALIGNMENT 64             /* TensorFlow's; its kernels abort at an address with less */
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
static uint32_t evicted_from; /* class of the last evicted block */

static uint32_t class_of(size_t bytes, size_t *rounded) {
    if (bytes < 1u << SMALLEST_LOG)
        bytes = 1u << SMALLEST_LOG;
    uint32_t log = 63 - (uint32_t)__builtin_clzll(bytes), shift = log - 3;
    size_t step = (size_t)1 << shift;
    *rounded = (bytes + step - 1) & ~(step - 1);
    return (log - SMALLEST_LOG) * 8 + (uint32_t)(*rounded >> shift) - 8;
}

/* The block's header is before the memory that the caller gets. */
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

/* Removes blocks until at most `most` bytes are idle; returns the removed blocks. */
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
