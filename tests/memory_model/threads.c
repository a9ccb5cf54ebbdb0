/* SPDX-License-Identifier: Apache-2.0
 *
 * threads.c - the threads of a scenario as coroutines: which one goes on, how they wait, and deadlocks.
 *
 * Another thread may go on before each atomic operation, and where a thread waits. Between two atomic operations it
 * would make no difference: what one thread writes there and another reads is a race, which memory.c finds.
 */
#include "explorer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define STACK_BYTES ((size_t)256 << 10)
#define POINTS_MOST 20000 /* of one execution */
#define STRETCH_MOST 100  /* then another thread goes on: this one may wait for it without a call */

/* WAITS: in mm_wait(). SLEEPS: until it is woken. */
enum state { READY, WAITS, SLEEPS, ENDED };

typedef struct thread {
    ucontext_t start; /* setjmp() is faster, but makes no stack */
    jmp_buf context;
    int has_started;
    void *stack;
    enum state state;
    uint64_t news, looked_at; /* changes by other threads: until now, when it began to look */
    int has_read_stale;       /* since then: it would find something new without a change */
    const void *sleeps_on;
} thread;

int mm_is_tracing;
static thread threads[MM_THREADS];
static int nthreads, running = -1, points, stretch;
static jmp_buf outside;
static enum mm_end end;
static char wrong[512];
static const mm_scenario *scenario;

int mm_me(void) {
    return running;
}

const char *mm_wrong(void) {
    return wrong;
}

static _Noreturn void leave(enum mm_end how) {
    end = how;
    running = -1;
    _longjmp(outside, 1);
}

void mm_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(wrong, sizeof wrong, format, arguments);
    va_end(arguments);
    leave(MM_WRONG);
}

void mm_give_up(void) {
    leave(MM_TOO_LONG);
}

void mm_check(int is_right, const char *what) {
    if (!is_right)
        mm_fail("thread %d: %s", running, what);
}

void mm_trace(const char *format, ...) {
    if (!mm_is_tracing)
        return;
    va_list arguments;
    va_start(arguments, format);
    printf("  %d: ", running);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

/* ---- who goes on -------------------------------------------------------------------------------------- */

static int can_go_on(const thread *t) {
    return t->state == READY || (t->state == WAITS && (t->has_read_stale || t->news != t->looked_at));
}

static _Noreturn void resume(int next) {
    thread *t = &threads[next];
    running = next;
    if (t->has_started)
        _longjmp(t->context, 1);
    t->has_started = 1;
    setcontext(&t->start);
    abort();
}

static void go_on(int next) {
    stretch = next == running ? stretch : 0;
    if (next != running && _setjmp(threads[running].context) == 0)
        resume(next);
}

/* The threads that can go on, the first one first if it can. */
static int find_ready(int first, int *ready) {
    int n = 0;
    for (int i = 0; i < nthreads; i++) {
        int t = (first + i) % nthreads;
        if (can_go_on(&threads[t]))
            ready[n++] = t;
    }
    return n;
}

/* The running thread cannot go on, or others go first. */
static int next_of_others(void) {
    int ready[MM_THREADS], n = find_ready((running + 1) % nthreads, ready);
    if (n > 1 && ready[n - 1] == running)
        n--;
    if (n == 0)
        return -1;
    return ready[mm_choose(n)];
}

static void go_on_with_others(void) {
    if (++points > POINTS_MOST)
        mm_give_up();
    int next = next_of_others();
    if (next < 0)
        mm_fail("deadlock: thread %d waits, and no other one goes on", running);
    go_on(next);
}

void mm_point(void) {
    int ready[MM_THREADS];
    if (++points > POINTS_MOST)
        mm_give_up();
    if (++stretch > STRETCH_MOST) {
        stretch = 0;
        go_on_with_others();
    }
    int n = find_ready(running, ready);
    go_on(ready[mm_choose_dear(mm_preemptions_left(), n)]);
}

void mm_wait(void) {
    thread *me = &threads[running];
    me->state = WAITS;
    mm_trace("waits");
    go_on_with_others();
    me->state = READY;
    me->looked_at = me->news;
    me->has_read_stale = 0;
}

void mm_doze(void) {
    mm_trace("dozes");
    go_on_with_others();
}

void mm_sleep_on(const void *word) {
    thread *me = &threads[running];
    me->state = SLEEPS;
    me->sleeps_on = word;
    mm_trace("sleeps");
    go_on_with_others();
}

void mm_wake(const void *word) {
    for (int i = 0; i < nthreads; i++)
        if (threads[i].state == SLEEPS && threads[i].sleeps_on == word)
            threads[i].state = READY;
}

void mm_changed(void) {
    for (int i = 0; i < nthreads; i++)
        threads[i].news += i != running;
}

void mm_read_stale(void) {
    threads[running].has_read_stale = 1;
}

/* ---- one execution ------------------------------------------------------------------------------------ */

static void run(int number) {
    scenario->run(number);
    mm_trace("ends");
    threads[number].state = ENDED;
    for (int i = 0; i < nthreads; i++)
        if (threads[i].state != ENDED)
            go_on_with_others();
    leave(MM_FINE);
}

static void begin(int number) {
    thread *t = &threads[number];
    t->state = READY;
    t->news = t->looked_at = 0;
    t->has_read_stale = t->has_started = 0;
    if (!t->stack)
        t->stack = malloc(STACK_BYTES);
    getcontext(&t->start);
    t->start.uc_stack.ss_sp = t->stack;
    t->start.uc_stack.ss_size = STACK_BYTES;
    t->start.uc_link = NULL;
    makecontext(&t->start, (void (*)(void))run, 1, number);
}

enum mm_end mm_execute(const mm_scenario *what) {
    scenario = what;
    nthreads = what->threads;
    points = stretch = 0;
    mm_choices_begin();
    mm_memory_begin(nthreads);
    mm_hooks_begin();
    what->set_up();
    for (int i = 0; i < nthreads; i++)
        begin(i);
    if (_setjmp(outside) == 0)
        resume(mm_choose(nthreads));
    scenario->tear_down();
    return end;
}
