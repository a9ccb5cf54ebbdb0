/* SPDX-License-Identifier: Apache-2.0
 *
 * control_segment.c - the node control segment: a doorbell and cells per rank, rings between ranks, and signs of life.
 *
 * A doorbell is a counter that a futex waits on. Ringing it costs a system call, and ranks publish marks far more often
 * than they sleep. So a rank sets its bit in `listening` before it sleeps. The bits of all ranks are in one cache line,
 * which stays shared in all caches; a rank that publishes reads that line and usually finds nothing to do.
 *
 * No wake-up is lost. The publisher publishes, fences, and reads `listening`; the listener sets its bit, fences, and
 * reads the published data. Both fences are sequentially consistent, so one of the two sees the other. A publisher that
 * finds the bit clears it and adds to the counter, so the futex does not sleep on the older count. If the listener sets
 * its bit between these two steps, its fence comes after the publisher's, so it sees the published data; the late
 * addition then wakes it once without need. So the bits themselves order nothing. The counter does: a listener that
 * reads the addition must see the cleared bit, or it would not set it again.
 *
 * A rank is alive while it holds the lock on its byte of the segment's file. It is a classic POSIX record lock: the
 * kernel releases it when the process ends in any way, and a forked child does not inherit it (an OFD lock lives as
 * long as any forked child that has the file open).
 */
#include "transport/shm/control_segment.h"
#include "transport/arithmetic.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LINE 128 /* two lines of 64 bytes: the prefetcher fetches pairs */
#define RINGS_BYTES ((size_t)4 << 20)
#define RING_ROOM_MIN 256 /* a few headers */
#define RING_ROOM_MAX 8064

enum reads { NEVER, UNKNOWN, POSSIBLE };
enum presence { NOT_YET, PRESENT, LEFT, LOST };

typedef struct rank_slot {
    _Alignas(LINE) _Atomic uint32_t doorbell;
    _Atomic uint32_t presence;
    _Alignas(LINE) _Atomic uint64_t dirty[HC__MASK_WORDS];
    /* Signs of life. Only `turns` changes often, and other ranks read it seldom. */
    _Alignas(LINE) hc_counter turns;
    _Atomic uint64_t waits, space; /* space: the name space of `pid` */
    _Atomic int32_t pid;
    _Atomic uint32_t answers;
    _Atomic uint64_t withdrawn; /* number of sends withdrawn while other ranks might read their memory */
    hc_cores cores;             /* written before `presence` */
} rank_slot;

typedef struct segment_head {
    _Alignas(LINE) _Atomic uint64_t listening[HC__MASK_WORDS];
    _Alignas(LINE) _Atomic uint64_t words[HC_NODE_WORDS], published_at;
    rank_slot slots[];
} segment_head;

struct hc_node_control {
    segment_head *head;
    uint8_t *rings, *cells;
    size_t ring_room;
    int32_t rank, size;
    int fd;
    int32_t *world_ranks;
    atomic_int stores, measured;  /* enum hc_stores */
    uint8_t reads[HC_NODE_RANKS]; /* enum reads, of each local rank's memory */
};

/* ---- layout -------------------------------------------------------------------------------------- */

static size_t ring_room(int32_t size) {
    size_t room = RINGS_BYTES / ((size_t)size * (size_t)size) / 64 * 64;
    return room < RING_ROOM_MIN ? RING_ROOM_MIN : room > RING_ROOM_MAX ? RING_ROOM_MAX : room;
}

static size_t slots_bytes(int32_t size) {
    return sizeof(segment_head) + (size_t)size * sizeof(rank_slot);
}

static size_t head_bytes(int32_t size) {
    return slots_bytes(size) + (size_t)size * HC_MAX_SETS * sizeof(hc__slice_state);
}

static size_t rings_bytes(int32_t size) {
    size_t bytes = (size_t)size * (size_t)size * (sizeof(hc__ring) + ring_room(size));
    return (bytes + LINE - 1) / LINE * LINE;
}

size_t hc_node_control_bytes(int32_t local_size) {
    return head_bytes(local_size) + rings_bytes(local_size) + (size_t)local_size * hc__cells_bytes(local_size);
}

/* ---- create and free ----------------------------------------------------------------------------- */

static int lock_byte(int fd, int32_t rank, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(fd, F_SETLK, &lock);
}

/* Publishes this process: its pid and its name space, with which other ranks find its state in /proc, and its cores. */
static void sign_in(hc_node_control *node_control) {
    rank_slot *mine = &node_control->head->slots[node_control->rank];
    struct stat space;
    if (stat("/proc/self/ns/pid", &space) == 0)
        atomic_store_explicit(&mine->space, (uint64_t)space.st_ino, memory_order_relaxed);
    atomic_store_explicit(&mine->pid, (int32_t)getpid(), memory_order_relaxed);
    hc_cores_read(&mine->cores);
}

int hc_node_control_new(hc_segment *segment, int32_t local_rank, int32_t local_size, const int32_t *world_rank_of,
                        hc_node_control **out) {
    if (local_size < 1 || local_size > HC_NODE_RANKS || local_rank < 0 || local_rank >= local_size ||
        segment->bytes < hc_node_control_bytes(local_size))
        return HC_INVALID;
    hc_node_control *node_control = calloc(1, sizeof *node_control);
    int32_t *ranks = malloc((size_t)local_size * sizeof *ranks);
    if (node_control == NULL || ranks == NULL) {
        free(node_control);
        free(ranks);
        return HC_NO_MEMORY;
    }
    memcpy(ranks, world_rank_of, (size_t)local_size * sizeof *ranks);
    uint8_t *rings = (uint8_t *)segment->base + head_bytes(local_size);
    *node_control = (hc_node_control){.head = segment->base,
                                      .rings = rings,
                                      .cells = rings + rings_bytes(local_size),
                                      .ring_room = ring_room(local_size),
                                      .rank = local_rank,
                                      .size = local_size,
                                      .fd = segment->fd,
                                      .measured = HC_STORES_AUTO,
                                      .world_ranks = ranks};
    if (node_control->fd >= 0 && lock_byte(node_control->fd, local_rank, F_WRLCK) != 0) {
        hc_node_control_free(node_control);
        return HC_TRANSPORT;
    }
    sign_in(node_control);
    atomic_store_explicit(&node_control->head->slots[local_rank].presence, PRESENT, memory_order_release);
    *out = node_control;
    return HC_OK;
}

void hc_node_control_free(hc_node_control *node_control) {
    if (node_control == NULL)
        return;
    uint32_t present = PRESENT; /* nothing is read after LEFT, so it orders nothing */
    atomic_compare_exchange_strong_explicit(&node_control->head->slots[node_control->rank].presence, &present, LEFT,
                                            memory_order_relaxed, memory_order_relaxed);
    if (node_control->fd >= 0)
        lock_byte(node_control->fd, node_control->rank, F_UNLCK);
    free(node_control->world_ranks);
    free(node_control);
}

int32_t hc__node_control_rank(const hc_node_control *node_control) {
    return node_control->rank;
}

int32_t hc__node_control_size(const hc_node_control *node_control) {
    return node_control->size;
}

int hc__node_control_words(const hc_node_control *node_control) {
    return (node_control->size + 63) / 64;
}

int32_t hc__node_control_world_rank(const hc_node_control *node_control, int32_t local_rank) {
    return node_control->world_ranks[local_rank];
}

/* ---- doorbells --------------------------------------------------------------------------------------- */

static long futex(hc_node_control *node_control, _Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *t) {
    if (node_control->fd < 0)
        operation |= FUTEX_PRIVATE_FLAG;
    return syscall(SYS_futex, word, operation, value, t, NULL, 0);
}

uint32_t hc_doorbell_listen(hc_node_control *node_control) {
    _Atomic uint64_t *word = &node_control->head->listening[node_control->rank / 64];
    uint64_t bit = UINT64_C(1) << (node_control->rank % 64);
    /* Read the count first: then any rank that clears the bit adds to the counter after this read. */
    uint32_t seen = atomic_load_explicit(&node_control->head->slots[node_control->rank].doorbell, memory_order_acquire);
    if ((atomic_load_explicit(word, memory_order_relaxed) & bit) == 0)
        atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return seen;
}

int hc_doorbell_sleep(hc_node_control *node_control, uint32_t seen, uint64_t ns) {
    _Atomic uint32_t *doorbell = &node_control->head->slots[node_control->rank].doorbell;
    struct timespec limit = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    /* A signal, or the late system call of an earlier wake-up, may also have woken it; the caller checks again. */
    long woken = futex(node_control, doorbell, FUTEX_WAIT, seen, &limit);
    return woken == 0 || errno != ETIMEDOUT;
}

static void wake(hc_node_control *node_control, int32_t rank) {
    uint64_t bit = UINT64_C(1) << (rank % 64);
    uint64_t before = atomic_fetch_and_explicit(&node_control->head->listening[rank / 64], ~bit, memory_order_relaxed);
    if ((before & bit) == 0)
        return; /* another rank was faster and wakes it */
    _Atomic uint32_t *doorbell = &node_control->head->slots[rank].doorbell;
    atomic_fetch_add_explicit(doorbell, 1, memory_order_release);
    futex(node_control, doorbell, FUTEX_WAKE, INT_MAX, NULL);
}

void hc__doorbells_ring(hc_node_control *node_control, const hc__mask *mask) {
    atomic_thread_fence(memory_order_seq_cst);
    for (int w = 0; w < hc__node_control_words(node_control); w++) {
        uint64_t listeners = atomic_load_explicit(&node_control->head->listening[w], memory_order_relaxed) &
                             mask->word[w];
        for (; listeners != 0; listeners &= listeners - 1)
            wake(node_control, w * 64 + __builtin_ctzll(listeners));
    }
}

void hc_doorbell_ring(hc_node_control *node_control, int32_t local_rank) {
    _Atomic uint64_t *listening = &node_control->head->listening[local_rank / 64];
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(listening, memory_order_relaxed) >> (local_rank % 64) & 1)
        wake(node_control, local_rank);
}

void hc_doorbell_ring_all(hc_node_control *node_control) {
    hc__mask others;
    memset(&others, 0xff, sizeof others);
    others.word[node_control->rank / 64] &= ~(UINT64_C(1) << (node_control->rank % 64));
    hc__doorbells_ring(node_control, &others);
}

/* ---- which ranks are alive -------------------------------------------------------------------------------- */

static int is_lost(hc_node_control *node_control, int32_t rank) {
    uint32_t presence = atomic_load_explicit(&node_control->head->slots[rank].presence, memory_order_acquire);
    if (presence != PRESENT || node_control->fd < 0)
        return presence == LOST;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    if (fcntl(node_control->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK)
        return 0;
    /* A leaving rank stores LEFT before it releases the lock, so read `presence` again after the lock. */
    return atomic_load_explicit(&node_control->head->slots[rank].presence, memory_order_acquire) == PRESENT;
}

int32_t hc_node_control_lost(hc_node_control *node_control) {
    for (int32_t rank = 0; rank < node_control->size; rank++)
        if (rank != node_control->rank && is_lost(node_control, rank))
            return rank;
    return -1;
}

void hc_node_control_mark_lost(hc_node_control *node_control, int32_t local_rank) {
    atomic_store_explicit(&node_control->head->slots[local_rank].presence, LOST, memory_order_release);
}

int hc_node_control_crowd(hc_node_control *node_control, int32_t machine, hc_crowd *crowd) {
    const hc_cores *cores[HC_NODE_RANKS];
    for (int32_t rank = 0; rank < node_control->size; rank++) {
        const rank_slot *slot = &node_control->head->slots[rank];
        if (atomic_load_explicit(&slot->presence, memory_order_acquire) == NOT_YET)
            return 0;
        cores[rank] = &slot->cores;
    }
    *crowd = hc_cores_crowd(cores, node_control->size, machine, (int32_t)sysconf(_SC_NPROCESSORS_ONLN));
    return 1;
}

int32_t hc_node_control_own_cores(const hc_node_control *node_control) {
    return hc_cores_count(&node_control->head->slots[node_control->rank].cores);
}

/* ---- how far apart they are ---------------------------------------------------------------------------- */

void hc_node_control_set_stores(hc_node_control *node_control, int stores) {
    atomic_store_explicit(&node_control->stores, stores, memory_order_relaxed);
}

int hc_node_control_stores(const hc_node_control *node_control) {
    return atomic_load_explicit(&node_control->stores, memory_order_relaxed);
}

void hc__node_control_measure(hc_node_control *node_control, int stores) {
    atomic_store_explicit(&node_control->measured, stores, memory_order_relaxed);
}

int hc_node_control_measured(const hc_node_control *node_control) {
    return atomic_load_explicit(&node_control->measured, memory_order_relaxed);
}

/* 0: it is not known. */
static uint32_t l3_of(const hc_node_control *node_control, int32_t rank) {
    const rank_slot *slot = &node_control->head->slots[rank];
    return atomic_load_explicit(&slot->presence, memory_order_acquire) == NOT_YET ? 0 : slot->cores.l3;
}

int hc__node_control_is_apart(const hc_node_control *node_control, int32_t local_rank) {
    uint32_t mine = l3_of(node_control, node_control->rank), theirs = l3_of(node_control, local_rank);
    return mine && theirs && mine != theirs;
}

int32_t hc_node_control_l3s(const hc_node_control *node_control) {
    int32_t found = 0;
    for (int32_t rank = 0; rank < node_control->size; rank++) {
        int is_new = l3_of(node_control, rank) != 0;
        if (!is_new)
            return 0;
        for (int32_t other = 0; other < rank; other++)
            is_new &= l3_of(node_control, rank) != l3_of(node_control, other);
        found += is_new;
    }
    return found;
}

/* ---- memory of other ranks ----------------------------------------------------------------------------- */

/* Ranks that are threads of one process share memory anyway. */
void hc_node_control_read_memory(hc_node_control *node_control) {
    memset(node_control->reads, node_control->fd < 0 ? NEVER : UNKNOWN, sizeof node_control->reads);
}

int hc__node_control_reads(hc_node_control *node_control, int32_t local_rank) {
    uint8_t *reads = &node_control->reads[local_rank];
    const rank_slot *mine = &node_control->head->slots[node_control->rank];
    const rank_slot *other = &node_control->head->slots[local_rank];
    if (*reads == UNKNOWN) {
        uint64_t space = atomic_load_explicit(&mine->space, memory_order_relaxed);
        *reads = space && space == atomic_load_explicit(&other->space, memory_order_relaxed) ? POSSIBLE : NEVER;
    }
    return *reads == POSSIBLE;
}

int hc__node_control_read(hc_node_control *node_control, int32_t local_rank, void *into, uint64_t address, size_t n) {
    pid_t pid = atomic_load_explicit(&node_control->head->slots[local_rank].pid, memory_order_relaxed);
    for (size_t done = 0; done < n;) {
        struct iovec here = {(uint8_t *)into + done, n - done};
        struct iovec there = {(void *)(uintptr_t)(address + done), n - done};
        ssize_t moved = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (moved <= 0) {
            node_control->reads[local_rank] = NEVER;
            return 0;
        }
        done += (size_t)moved;
    }
    return 1;
}

void hc__node_control_withdraw(hc_node_control *node_control) {
    atomic_fetch_add_explicit(&node_control->head->slots[node_control->rank].withdrawn, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* before anything is written to that memory */
}

uint64_t hc__node_control_withdrawn(hc_node_control *node_control, int32_t local_rank) {
    /* After the copy. For C11 it need only acquire, but the kernel may copy with string instructions. */
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&node_control->head->slots[local_rank].withdrawn, memory_order_relaxed);
}

/* ---- signs of life ----------------------------------------------------------------------------------- */

hc_counter *hc_node_control_turns(hc_node_control *node_control) {
    return &node_control->head->slots[node_control->rank].turns;
}

void hc_node_control_answers(hc_node_control *node_control, int by_itself) {
    atomic_store_explicit(&node_control->head->slots[node_control->rank].answers, (uint32_t)by_itself,
                          memory_order_relaxed);
}

int hc_node_control_look(hc_node_control *node_control, int32_t local_rank, hc_local_life *life) {
    rank_slot *slot = &node_control->head->slots[local_rank];
    life->turns = hc_counted(&slot->turns);
    life->waits = atomic_load_explicit(&slot->waits, memory_order_relaxed);
    life->answers = atomic_load_explicit(&slot->answers, memory_order_relaxed) != 0;
    return atomic_load_explicit(&slot->presence, memory_order_relaxed) == PRESENT;
}

void hc_node_control_wait(hc_node_control *node_control, uint64_t now) {
    atomic_store_explicit(&node_control->head->slots[node_control->rank].waits, now, memory_order_relaxed);
}

/* The state in /proc/PID/stat: the third field, after a name in brackets that may contain anything. */
static char state_in(const char *text) {
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' ? end[2] : 0;
}

char hc_node_control_state(hc_node_control *node_control, int32_t local_rank) {
    const rank_slot *slot = &node_control->head->slots[local_rank], *mine;
    char path[32], text[512];
    mine = &node_control->head->slots[node_control->rank];
    uint64_t space = atomic_load_explicit(&slot->space, memory_order_relaxed);
    if (!space || space != atomic_load_explicit(&mine->space, memory_order_relaxed))
        return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)atomic_load_explicit(&slot->pid, memory_order_relaxed));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return state_in(text);
}

void hc_node_control_publish(hc_node_control *node_control, const uint64_t words[HC_NODE_WORDS], uint64_t now) {
    for (int i = 0; i < HC_NODE_WORDS; i++)
        atomic_store_explicit(&node_control->head->words[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&node_control->head->published_at, now, memory_order_release);
}

uint64_t hc_node_control_published(hc_node_control *node_control, uint64_t words[HC_NODE_WORDS]) {
    uint64_t at = atomic_load_explicit(&node_control->head->published_at, memory_order_acquire);
    for (int i = 0; i < HC_NODE_WORDS; i++)
        words[i] = atomic_load_explicit(&node_control->head->words[i], memory_order_relaxed);
    return at;
}

/* ---- control rings ------------------------------------------------------------------------------- */

hc__ring *hc__node_control_ring(hc_node_control *node_control, int32_t from, int32_t to) {
    size_t stride = sizeof(hc__ring) + node_control->ring_room;
    return (hc__ring *)(node_control->rings + ((size_t)to * (size_t)node_control->size + (size_t)from) * stride);
}

size_t hc__node_control_ring_room(const hc_node_control *node_control) {
    return node_control->ring_room;
}

hc__cells *hc__node_control_cells(const hc_node_control *node_control, int32_t local_rank) {
    return (hc__cells *)(void *)(node_control->cells + (size_t)local_rank * hc__cells_bytes(node_control->size));
}

hc__slice_state *hc__node_control_slice(const hc_node_control *node_control, int32_t leader, uint32_t number) {
    uint8_t *states = (uint8_t *)node_control->head + slots_bytes(node_control->size);
    return (hc__slice_state *)(void *)states + (size_t)leader * HC_MAX_SETS + number;
}

void hc__node_control_mark_dirty(hc_node_control *node_control, int32_t to) {
    _Atomic uint64_t *word = &node_control->head->slots[to].dirty[node_control->rank / 64];
    atomic_fetch_or_explicit(word, UINT64_C(1) << (node_control->rank % 64), memory_order_release);
    hc_doorbell_ring(node_control, to);
}

int hc__node_control_take_dirty(hc_node_control *node_control, hc__mask *from) {
    _Atomic uint64_t *dirty = node_control->head->slots[node_control->rank].dirty;
    uint64_t any = 0;
    for (int w = 0; w < hc__node_control_words(node_control); w++) {
        from->word[w] = atomic_load_explicit(&dirty[w], memory_order_relaxed);
        if (from->word[w] != 0)
            from->word[w] = atomic_exchange_explicit(&dirty[w], 0, memory_order_acquire);
        any |= from->word[w];
    }
    return any != 0;
}
