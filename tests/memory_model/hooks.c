/* SPDX-License-Identifier: Apache-2.0
 *
 * hooks.c - what gcc's -fsanitize=thread calls, and the functions of the C library that the protocols use.
 *
 * Outside of the shared memory, and while no thread runs, each does just what its name says.
 */
#include "explorer.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define HERE __builtin_return_address(0)

static int is_seen(const volatile void *at) {
    if (!mm_is_watched(at))
        return 0;
    if (mm_me() < 0)
        mm_newest(at, 1); /* zeroes its line once */
    return mm_me() >= 0;
}

/* ---- plain accesses ------------------------------------------------------------------------------------ */

void __tsan_init(void) {}
void __tsan_func_entry(void *caller) {
    (void)caller;
}
void __tsan_func_exit(void) {}
void __tsan_read_range(void *at, size_t bytes) {
    mm_reads(at, bytes);
}
void __tsan_write_range(void *at, size_t bytes) {
    mm_writes(at, bytes);
}

#define PLAIN(bytes)                               \
    void __tsan_read##bytes(void *at) {            \
        mm_reads(at, bytes);                       \
    }                                              \
    void __tsan_write##bytes(void *at) {           \
        mm_writes(at, bytes);                      \
    }                                              \
    void __tsan_unaligned_read##bytes(void *at) {  \
        mm_reads(at, bytes);                       \
    }                                              \
    void __tsan_unaligned_write##bytes(void *at) { \
        mm_writes(at, bytes);                      \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void *__real_memcpy(void *, const void *, size_t);
void *__real_memmove(void *, const void *, size_t);
void *__real_memset(void *, int, size_t);
int __real_memcmp(const void *, const void *, size_t);

void *__wrap_memcpy(void *to, const void *from, size_t bytes) {
    mm_reads(from, bytes);
    mm_writes(to, bytes);
    return __real_memcpy(to, from, bytes);
}

void *__wrap_memmove(void *to, const void *from, size_t bytes) {
    mm_reads(from, bytes);
    mm_writes(to, bytes);
    return __real_memmove(to, from, bytes);
}

void *__wrap_memset(void *to, int value, size_t bytes) {
    mm_writes(to, bytes);
    return __real_memset(to, value, bytes);
}

int __wrap_memcmp(const void *a, const void *b, size_t bytes) {
    mm_reads(a, bytes);
    mm_reads(b, bytes);
    return __real_memcmp(a, b, bytes);
}

/* ---- atomic operations ----------------------------------------------------------------------------------- */

static uint64_t replace(uint64_t before, uint64_t operand) {
    (void)before;
    return operand;
}
static uint64_t plus(uint64_t before, uint64_t operand) {
    return before + operand;
}
static uint64_t minus(uint64_t before, uint64_t operand) {
    return before - operand;
}
static uint64_t both(uint64_t before, uint64_t operand) {
    return before & operand;
}
static uint64_t any(uint64_t before, uint64_t operand) {
    return before | operand;
}

#define UPDATE(bits, type, name, operation)                                                                          \
    type __tsan_atomic##bits##_##name(volatile type *at, type operand, int order) {                                  \
        if (is_seen(at))                                                                                             \
            return (type)mm_update(at, sizeof *at, operation, operand, mm_order_at(HERE, "update", order, 0, NULL)); \
        type before = *at;                                                                                           \
        *at = (type)operation(before, operand);                                                                      \
        return before;                                                                                               \
    }

#define COMPARE(bits, type, name, is_weak)                                                                      \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile type *at, type *expected, type value, int order, \
                                                      int order_if_not) {                                       \
        if (!is_seen(at)) {                                                                                     \
            int fits = *at == *expected;                                                                        \
            *(fits ? (type *)(uintptr_t)at : expected) = fits ? value : *at;                                    \
            return fits;                                                                                        \
        }                                                                                                       \
        uint64_t seen = *expected;                                                                              \
        order = mm_order_at(HERE, "compare", order, order_if_not, &order_if_not);                               \
        int fits = mm_compare_exchange(at, sizeof *at, &seen, value, order, order_if_not, is_weak);             \
        *expected = (type)seen;                                                                                 \
        return fits;                                                                                            \
    }

#define ATOMIC(bits, type)                                                                                   \
    type __tsan_atomic##bits##_load(const volatile type *at, int order) {                                    \
        return is_seen(at) ? (type)mm_load(at, sizeof *at, mm_order_at(HERE, "load", order, 0, NULL)) : *at; \
    }                                                                                                        \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order) {                             \
        if (is_seen(at))                                                                                     \
            mm_store(at, sizeof *at, value, mm_order_at(HERE, "store", order, 0, NULL));                     \
        else                                                                                                 \
            *at = value;                                                                                     \
    }                                                                                                        \
    UPDATE(bits, type, exchange, replace)                                                                    \
    UPDATE(bits, type, fetch_add, plus)                                                                      \
    UPDATE(bits, type, fetch_sub, minus)                                                                     \
    UPDATE(bits, type, fetch_and, both)                                                                      \
    UPDATE(bits, type, fetch_or, any)                                                                        \
    COMPARE(bits, type, weak, 1)                                                                             \
    COMPARE(bits, type, strong, 0)

ATOMIC(8, uint8_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_atomic_thread_fence(int order) {
    if (mm_me() >= 0)
        mm_fence(mm_order_at(HERE, "fence", order, 0, NULL));
}

/* ---- the system ------------------------------------------------------------------------------------------- */

#define SHORT_NS 10000000 /* the end of a longer sleep is only for what went wrong */

/* The kernel compares and falls asleep in one step, seen from whoever wakes it. There is no time: a long sleep has no
 * end, so a wake-up that is lost is a deadlock, and a short one ends at any time. */
static long wait_on(const uint32_t *word, uint32_t value, const struct timespec *limit) {
    mm_point();
    if (mm_newest(word, sizeof *word) != value) {
        errno = EAGAIN;
        return -1;
    }
    if (limit->tv_sec == 0 && limit->tv_nsec < SHORT_NS)
        mm_doze();
    else
        mm_sleep_on(word);
    return 0;
}

long __wrap_syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    const uint32_t *word = va_arg(arguments, const uint32_t *);
    int operation = va_arg(arguments, int);
    uint32_t value = va_arg(arguments, uint32_t);
    const struct timespec *limit = va_arg(arguments, const struct timespec *);
    va_end(arguments);
    if (number != SYS_futex || mm_me() < 0)
        return 0;
    if ((operation & FUTEX_CMD_MASK) == FUTEX_WAIT)
        return wait_on(word, value, limit);
    mm_point();
    mm_wake(word);
    return 0;
}

/* Threads that the set-up of a scenario starts; one of the scenario's threads does what such a thread is to do. */
static struct {
    void *(*run)(void *);
    void *argument;
    uint32_t *has_ended;
} started[MM_THREADS];
static int nstarted;

void mm_hooks_begin(void) {
    nstarted = 0;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    (void)attributes;
    *thread = (pthread_t)nstarted;
    started[nstarted].run = run;
    started[nstarted].argument = argument;
    started[nstarted++].has_ended = mm_shared(sizeof(uint32_t));
    return 0;
}

void mm_run_started(int n) {
    started[n].run(started[n].argument);
    mm_store(started[n].has_ended, sizeof(uint32_t), 1, MM_RELEASE);
}

int __wrap_pthread_join(pthread_t thread, void **result) {
    (void)result;
    while (!mm_load(started[thread].has_ended, sizeof(uint32_t), MM_ACQUIRE))
        mm_wait();
    return 0;
}

/* A lock is a word: taken with acquire, given back with release. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    while (is_seen(mutex) && mm_update(mutex, sizeof(uint32_t), replace, 1, MM_ACQUIRE) != 0)
        mm_sleep_on(mutex);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    if (!is_seen(mutex))
        return 0;
    mm_store(mutex, sizeof(uint32_t), 0, MM_RELEASE);
    mm_wake(mutex);
    return 0;
}

int __wrap_sched_yield(void) {
    if (mm_me() >= 0)
        mm_wait();
    return 0;
}
