/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_file.c - writes the newest records of the trace to a file: when the World breaks, when an exception ends the
 * program, at SIGUSR2.
 *
 * A signal handler may write the file, in whatever call the process is stuck. So that code is async-signal-safe: it
 * uses system calls, and texts that were prepared when the loop was created.
 */
#include "loop/clock.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- preparation -------------------------------------------------------------------------------------- */

static uint64_t wall_minus_monotonic(void) {
    struct timespec wall, steady;
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_MONOTONIC, &steady);
    return (uint64_t)((int64_t)(wall.tv_sec - steady.tv_sec) * 1000000000 + (wall.tv_nsec - steady.tv_nsec));
}

void hc__trace_prepare(hc_loop *loop) {
    hc__trace *trace = &loop->trace;
    hc_trace_header *header = trace->header;
    const hc_trace_config *config = &loop->config.trace;
    snprintf(header->world, sizeof header->world, "%s", config->world ? config->world : "");
    snprintf(header->folder, sizeof header->folder, "%s", config->folder ? config->folder : "");
    gethostname(header->host, sizeof header->host - 1);
    header->clock = wall_minus_monotonic();
    snprintf(trace->file, sizeof trace->file, "%s/%.8s-rank-%d.hctrace", header->folder, header->world, header->rank);
    snprintf(trace->stack, sizeof trace->stack, "%s/%.8s-rank-%d.stack", header->folder, header->world, header->rank);
    snprintf(trace->unfinished, sizeof trace->unfinished, "%s.part", trace->file);
    snprintf(trace->note, sizeof trace->note, "%s/%.8s-README.txt", header->folder, header->world);
}

/* ---- one file ---------------------------------------------------------------------------------------- */

static int put(int fd, const void *bytes, size_t n) {
    for (const char *at = bytes; n;) {
        ssize_t written = write(fd, at, n);
        if (written < 0 && errno != EINTR)
            return -1;
        at += written > 0 ? written : 0;
        n -= written > 0 ? (size_t)written : 0;
    }
    return 0;
}

static int say(const char *text) {
    return put(STDERR_FILENO, text, strlen(text));
}

/* Writes `number` elements of `size` bytes from a ring, in at most two pieces. */
static int put_ring(int fd, const void *ring, size_t size, uint64_t first, uint64_t number) {
    uint64_t slot = first % HC_TRACE_ROOM;
    uint64_t before_end = number < HC_TRACE_ROOM - slot ? number : HC_TRACE_ROOM - slot;
    if (put(fd, (const char *)ring + slot * size, before_end * size) < 0)
        return -1;
    return put(fd, ring, (number - before_end) * size);
}

static int put_all(int fd, const hc__trace *trace) {
    hc_trace_header header;
    memcpy(&header, trace->header, sizeof header);
    uint64_t end = trace->broke_at ? trace->broke_at : atomic_load(&trace->header->head);
    uint64_t number = end < HC_TRACE_KEPT ? end : HC_TRACE_KEPT;
    header.is_file = 1;
    header.first = end - number;
    header.nrecords = (uint32_t)number;
    header.written = hc__loop_now();
    header.clock = wall_minus_monotonic();
    atomic_store(&header.head, end);
    if (put(fd, &header, sizeof header) < 0 ||
        put_ring(fd, trace->records, sizeof *trace->records, header.first, number) < 0)
        return -1;
    return trace->sites ? put_ring(fd, trace->sites, HC_TRACE_SITE, header.first, number) : 0;
}

static int write_file(const hc__trace *trace) {
    if (mkdir(trace->header->folder, 0777) < 0 && errno != EEXIST)
        return -1;
    int fd = open(trace->unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    int failed = put_all(fd, trace);
    failed |= close(fd);
    if (!failed && rename(trace->unfinished, trace->file) == 0)
        return 0;
    int error = errno;
    unlink(trace->unfinished); /* a full disk has better use for it */
    errno = error;
    return -1;
}

/* The first rank of the World on this node prints where the files are. */
static void announce(const hc__trace *trace) {
    int fd = open(trace->note, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    static const char note[] = "The last events of the ranks of a job of hpccoll, a file per rank that could write "
                               "one. `hpccoll trace explain` with this folder says what happened.\n";
    put(fd, note, sizeof note - 1);
    close(fd);
    say("hpccoll: each rank writes its last events to ");
    say(trace->header->folder);
    say(": `hpccoll trace explain` with this folder says who diverged\n");
}

static void complain(const hc__trace *trace, int error) {
    char digits[12];
    int at = sizeof digits - 1;
    digits[at] = 0;
    do
        digits[--at] = (char)('0' + error % 10);
    while ((error /= 10) && at);
    say("hpccoll: the last events of this rank could not be written to ");
    say(trace->file);
    say(" (errno ");
    say(digits + at);
    say("); HPCCOLL_TRACE_DIR names another folder\n");
}

int hc__trace_write_file(hc__trace *trace) {
    int before = errno, free_place = 0, status = HC_OK;
    if (!trace->header->folder[0] || !atomic_compare_exchange_strong(&trace->writing, &free_place, 1))
        return HC_OK;
    if (write_file(trace) == 0) {
        announce(trace);
    } else {
        complain(trace, errno);
        status = HC_TRANSPORT;
    }
    atomic_store(&trace->writing, 0);
    errno = before;
    return status;
}

int hc_loop_trace_write(hc_loop *loop, const char *ended) {
    if (ended && ended[0])
        snprintf(loop->trace.header->ended, sizeof loop->trace.header->ended, "%s", ended);
    return hc__trace_write_file(&loop->trace);
}

/* ---- SIGUSR2 ----------------------------------------------------------------------------------------- */

#define MOST_LOOPS 64 /* loops of one process whose traces a signal writes */
static _Atomic(hc__trace *) traces[MOST_LOOPS];
static atomic_int handling;
static atomic_flag busy = ATOMIC_FLAG_INIT;
static atomic_int stacks = -1;         /* file into which Python's handler writes the stack */
static _Atomic(void (*)(int)) pythons; /* Python's handler, which our handler calls */

/* Copies the stacks that Python's handler has just written to a file beside the trace. */
static void write_stacks(const hc__trace *trace, int from) {
    char piece[1024];
    int fd = open(trace->stack, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    off_t at = 0;
    for (ssize_t n; (n = pread(from, piece, sizeof piece, at)) > 0; at += n)
        if (put(fd, piece, (size_t)n) < 0)
            break;
    close(fd);
}

static void write_all(int number) {
    int from = atomic_load(&stacks);
    if (from >= 0)
        atomic_load (&pythons)(number);
    for (int i = 0; i < MOST_LOOPS; i++) {
        hc__trace *trace = atomic_load(&traces[i]);
        if (trace && hc__trace_write_file(trace) == HC_OK && from >= 0)
            write_stacks(trace, from);
    }
    if (from >= 0 && ftruncate(from, 0) == 0)
        lseek(from, 0, SEEK_SET);
}

/* Sends the signal on to the main thread, whose stack the file should show. */
static int signal_main_thread(void) {
    return (int)syscall(SYS_tgkill, getpid(), getpid(), SIGUSR2);
}

/* Several Worlds that break at once send a signal each; a second one that arrives while one is handled would write the
 * same files. */
static void on_signal(int number) {
    int before = errno;
    if (syscall(SYS_gettid) != getpid() && signal_main_thread() == 0) {
        errno = before;
        return;
    }
    atomic_fetch_add(&handling, 1);
    if (!atomic_flag_test_and_set(&busy)) {
        write_all(number);
        atomic_flag_clear(&busy);
    }
    atomic_fetch_sub(&handling, 1);
    errno = before;
}

static int is_ours(const struct sigaction *action) {
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == on_signal;
}

static int install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGUSR2, &action, NULL) == 0;
}

/* If the program has its own handler, the signal stays the program's. */
static int handle_signal(void) {
    struct sigaction action;
    if (sigaction(SIGUSR2, NULL, &action) < 0)
        return 0;
    if (is_ours(&action))
        return 1;
    if ((action.sa_flags & SA_SIGINFO) || action.sa_handler != SIG_DFL)
        return 0;
    return install();
}

/* Publishes whether our handler is installed: tools must not send the signal to a program's own handler. */
void hc__trace_watch_signal(hc_loop *loop) {
    struct sigaction action;
    if (loop->trace.header->folder[0] && loop->config.engine.size > 1 && sigaction(SIGUSR2, NULL, &action) == 0)
        loop->trace.header->dumps_at_signal = (uint32_t)is_ours(&action); /* any driving thread writes this */
}

void hc__trace_at_signal(hc_loop *loop) {
    if (!loop->trace.header->folder[0] || !handle_signal())
        return;
    for (int i = 0; i < MOST_LOOPS; i++) {
        hc__trace *none = NULL;
        if (!atomic_compare_exchange_strong(&traces[i], &none, &loop->trace))
            continue;
        loop->trace.header->dumps_at_signal = 1;
        return;
    }
}

/* Call it before the trace is freed, so that no handler reads it any more. */
void hc__trace_not_at_signal(hc_loop *loop) {
    for (int i = 0; i < MOST_LOOPS; i++) {
        hc__trace *own = &loop->trace;
        atomic_compare_exchange_strong(&traces[i], &own, NULL);
    }
    while (atomic_load(&handling))
        hc__wait_at_end();
}

int hc_loop_trace_at_signal(hc_loop *loop) {
    return (int)loop->trace.header->dumps_at_signal;
}

void hc_trace_stacks(int fd) {
    struct sigaction action;
    if (sigaction(SIGUSR2, NULL, &action) < 0 || (action.sa_flags & SA_SIGINFO) || is_ours(&action))
        return;
    atomic_store(&pythons, action.sa_handler);
    atomic_store(&stacks, fd);
    install();
}

void hc_trace_no_stacks(void) {
    struct sigaction action;
    atomic_store(&stacks, -1);
    if (sigaction(SIGUSR2, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL)
        install();
}

void hc__trace_write_broken(hc_loop *loop) {
    struct sigaction action;
    hc__trace_write_file(&loop->trace);
    if (sigaction(SIGUSR2, NULL, &action) == 0 && is_ours(&action))
        signal_main_thread();
}
