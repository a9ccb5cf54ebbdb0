/* SPDX-License-Identifier: Apache-2.0
 *
 * explorer.h - runs threads under the memory model of C11, in every order and with every value that a load may return.
 *
 * The compiler's instrumentation for the thread sanitizer calls a function at each access to memory. hooks.c has these
 * functions in place of the sanitizer's library, so the files of ext run here as they are. The threads are coroutines
 * of one thread: an execution is a list of choices (which thread goes on, which store a load reads), and the search
 * repeats the scenario with another list until all are done.
 *
 *     choices.c    the list of choices, and its bounds
 *     threads.c    coroutines, waiting, deadlocks
 *     memory.c     stores that a load may read, what happens before what, races
 *     hooks.c      the instrumentation, and the C library's functions
 *     plants.c     the places of atomic operations in the code, and orders that are taken away
 *     main.c       searches
 *
 * The model: the order of the stores to one location is the order in which they run here, and a load reads a store that
 * has run. So it has no executions in which two unordered stores to a location take effect in the other order, or in
 * which a load reads from a store that comes later (load buffering; C11 allows it for relaxed operations).
 */
#ifndef MM_EXPLORER_H
#define MM_EXPLORER_H

#include <stddef.h>
#include <stdint.h>

#define MM_THREADS 3

/* ---- for scenarios ------------------------------------------------------------------------------------ */

typedef struct mm_scenario {
    const char *name;
    int threads;
    void (*set_up)(void);    /* before all threads */
    void (*run)(int thread); /* what each of them does */
    void (*tear_down)(void); /* after each execution, whatever its end */
    int preemptions, stale;  /* bounds of the short search */
} mm_scenario;

extern const mm_scenario *const mm_scenarios[], *const mm_litmus[]; /* end with NULL */

/* Zeroed memory that the threads share, until the end of the execution. Only this memory is watched. */
void *mm_shared(size_t bytes);
/* The calling thread has looked at everything and found nothing to do: it goes on when there may be something new. */
void mm_wait(void);
void mm_check(int is_right, const char *what); /* ends the execution if not */
/* From now on plain accesses to this memory may race, because who reads it checks afterwards whether it was written
 * meanwhile. They count as relaxed ones of whole lines, and a read returns the newest bytes. */
void mm_may_race(const void *, size_t bytes);
void mm_outcome(int number); /* of a program whose outcomes are listed: 0 to 9999 */
void mm_run_started(int n);  /* the calling thread is the n-th that the set-up has started by pthread_create() */
/* For functions that are not instrumented: an access of the calling thread. */
void mm_reads(const void *, size_t bytes);
void mm_writes(void *, size_t bytes);

/* ---- choices.c ------------------------------------------------------------------------------------------ */

/* preemptions: how often a thread that could go on is stopped for another. stale: loads that do not read the newest
 * store. -1: no bound. */
typedef struct mm_bounds {
    int preemptions, stale;
} mm_bounds;

void mm_search_all(mm_bounds);                   /* from now on each list of choices once */
void mm_search_random(mm_bounds, uint64_t seed); /* from now on random choices */
void mm_choices_begin(void);                     /* of an execution */
int mm_choices_next(void);                       /* 0: all lists have been tried */
void mm_choices_repeat(void);                    /* the next execution is the last one again */
int mm_choose(int n);                            /* 0 to n - 1 */
int mm_choose_dear(int *budget, int n);          /* anything but 0 takes 1 from the budget */
int *mm_preemptions_left(void);
int *mm_stale_left(void);

/* ---- threads.c ------------------------------------------------------------------------------------------ */

enum mm_end { MM_FINE, MM_WRONG, MM_TOO_LONG };

enum mm_end mm_execute(const mm_scenario *);
const char *mm_wrong(void); /* what was wrong in the last execution */
int mm_me(void);            /* the running thread; -1: none */
void mm_point(void);        /* another thread may go on here */
void mm_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void mm_give_up(void) __attribute__((noreturn)); /* the execution is too long */
void mm_changed(void);                           /* the running thread has changed a value */
void mm_read_stale(void);                        /* the running thread has read an old value */
void mm_doze(void);                              /* for a short time: others go first */
void mm_sleep_on(const void *);                  /* until a wake() */
void mm_wake(const void *);
void mm_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern int mm_is_tracing;

/* ---- hooks.c -------------------------------------------------------------------------------------------- */

void mm_hooks_begin(void); /* of an execution */

/* ---- memory.c ------------------------------------------------------------------------------------------- */

enum mm_order { MM_ACQUIRE = 1, MM_RELEASE = 2, MM_SC = 4 };

typedef uint64_t mm_operation(uint64_t before, uint64_t operand);

void mm_memory_begin(int threads);
int mm_is_watched(const volatile void *);
uint64_t mm_load(const volatile void *, size_t bytes, int order);
void mm_store(volatile void *, size_t bytes, uint64_t value, int order);
uint64_t mm_update(volatile void *, size_t bytes, mm_operation *, uint64_t operand, int order);
int mm_compare_exchange(volatile void *, size_t bytes, uint64_t *expected, uint64_t value, int order, int order_if_not,
                        int is_weak);
void mm_fence(int order);
uint64_t mm_newest(const volatile void *, size_t bytes); /* without any order */

/* ---- plants.c ------------------------------------------------------------------------------------------- */

/* A place of an atomic operation: an address in the program. */
typedef struct mm_place {
    uintptr_t address;
    const char *kind;
    int order, order_if_not; /* of a compare-and-exchange that fails */
    uint64_t passed;
} mm_place;

#define MM_PLACES 128
extern mm_place mm_places[MM_PLACES];
extern int mm_nplaces;
/* The order of the operation at this address, without what is taken away. */
int mm_order_at(const void *address, const char *kind, int c11_order, int c11_order_if_not, int *order_if_not);
/* Takes a part of the order away at one place; if_not: from a compare-and-exchange that fails. place -1: nothing. */
void mm_take_away(int place, enum mm_order part, int if_not);

#endif
