/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.c - the links of the hosts of cluster.sh, with a rate and a delay: a switch in one process.
 *
 *     wire RATE DELAY [NAMESPACE]:DEVICE...        bits per second, microseconds
 *
 * Many kernels have no netem, which would delay packets. Here the interface of a host is a TAP device, whose frames
 * this program reads and writes. A frame takes DELAY, then its length / RATE on the link of the receiver; frames wait
 * in order, and none is lost below QUEUE bytes. The rate at which a host sends is for a queueing discipline of its
 * device (tbf), which tells TCP to wait, as a network adapter does. A device without a namespace, that of the machine
 * itself, has neither rate nor delay.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <linux/if.h>
#include <linux/if_tun.h>

enum { PORTS = 64, FRAME = 65536, MAC = 6, HEADER = 2 * MAC, QUEUE = 256 << 20 };

typedef struct frame {
    struct frame *next;
    int64_t due; /* when the receiver gets it, in nanoseconds */
    size_t length;
    uint8_t bytes[];
} frame;

typedef struct {
    int fd;
    uint8_t mac[MAC]; /* of the last frame that came from there; 0 before */
    double pace;      /* nanoseconds per byte */
    int64_t delay;
    int64_t down; /* until when its link is busy with frames to it */
    frame *first, **last;
    size_t waiting; /* bytes */
} port;

static port ports[PORTS];
static int count;

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* Open "NAMESPACE:DEVICE" or ":DEVICE", which exists. */
static void open_port(char *name, double rate, double delay, int home) {
    char *colon = strchr(name, ':'), path[256];
    if (!colon || count == PORTS)
        errx(2, "%s: not [NAMESPACE]:DEVICE, or more than %d", name, PORTS);
    *colon = 0;
    bool inside = *name != 0;
    if (inside) {
        snprintf(path, sizeof path, "/var/run/netns/%s", name);
        int space = open(path, O_RDONLY | O_CLOEXEC);
        if (space < 0 || setns(space, CLONE_NEWNET))
            err(1, "%s", path);
        close(space);
    }
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", colon + 1);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request))
        err(1, "%s:%s", name, colon + 1);
    if (setns(home, CLONE_NEWNET))
        err(1, "setns");
    port *one = &ports[count++];
    *one = (port){.fd = fd, .pace = inside ? 8e9 / rate : 0, .delay = inside ? (int64_t)(delay * 1000) : 0};
    one->last = &one->first;
}

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Let a frame wait for the link of its receiver. */
static void put(port *to, const uint8_t *bytes, size_t length, int64_t arrival) {
    static bool told;
    if (to->waiting + length > QUEUE) {
        if (!told)
            fprintf(stderr, "wire: %d bytes wait for a link: frames are lost from now on\n", QUEUE);
        told = true;
        return;
    }
    frame *one = malloc(sizeof *one + length);
    if (!one)
        err(1, "malloc");
    to->down = later(to->down, arrival) + (int64_t)(to->pace * (double)length);
    *one = (frame){.due = to->down, .length = length};
    memcpy(one->bytes, bytes, length);
    *to->last = one;
    to->last = &one->next;
    to->waiting += length;
}

/* Send a frame to the port of its receiver, or to all others if the receiver is not known, or is everybody. */
static void forward(port *from, const uint8_t *bytes, size_t length) {
    int64_t arrival = now() + from->delay;
    memcpy(from->mac, bytes + MAC, MAC);
    port *found = NULL;
    for (port *to = ports; to < ports + count; to++) {
        if (!memcmp(to->mac, bytes, MAC))
            found = to;
    }
    for (port *to = ports; to < ports + count; to++) {
        if (to != from && (!found || to == found))
            put(to, bytes, length, arrival);
    }
}

static void read_all(port *from) {
    static uint8_t bytes[FRAME];
    ssize_t length;
    while ((length = read(from->fd, bytes, sizeof bytes)) >= HEADER)
        forward(from, bytes, (size_t)length);
}

/* Write what is due; return when the next frame is. */
static int64_t write_due(port *to) {
    frame *one;
    while ((one = to->first) && one->due <= now()) {
        if (write(to->fd, one->bytes, one->length) < 0 && errno != EIO)
            warn("write"); /* EIO: the device is down */
        to->first = one->next;
        if (!to->first)
            to->last = &to->first;
        to->waiting -= one->length;
        free(one);
    }
    return one ? one->due : INT64_MAX;
}

int main(int argc, char **argv) {
    double rate = argc > 3 ? atof(argv[1]) : 0, delay = argc > 3 ? atof(argv[2]) : -1;
    if (rate <= 0 || delay < 0)
        errx(2, "wire RATE DELAY [NAMESPACE]:DEVICE...: bits per second, microseconds");
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    for (int i = 3; i < argc; i++)
        open_port(argv[i], rate, delay, home);
    /* It must have a core when a frame is due: before the ranks, and in memory. */
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}))
        warn("sched_setscheduler");
    if (mlockall(MCL_CURRENT))
        warn("mlockall");
    prctl(PR_SET_TIMERSLACK, 1UL);
    struct pollfd wanted[PORTS];
    for (int i = 0; i < count; i++)
        wanted[i] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
    for (;;) {
        int64_t next = INT64_MAX;
        for (int i = 0; i < count; i++) {
            int64_t due = write_due(&ports[i]);
            if (due < next)
                next = due;
        }
        int64_t wait = next == INT64_MAX ? 1000000000 : later(next - now(), 0);
        if (ppoll(wanted, (nfds_t)count, &(struct timespec){wait / 1000000000, wait % 1000000000}, NULL) < 0)
            err(1, "ppoll");
        for (int i = 0; i < count; i++) {
            if (wanted[i].revents & POLLIN)
                read_all(&ports[i]);
        }
    }
}
