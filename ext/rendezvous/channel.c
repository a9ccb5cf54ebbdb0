/* SPDX-License-Identifier: Apache-2.0
 *
 * channel.c - connects to the launcher, and proves that this process has the job's secret.
 */
#include "rendezvous/channel.h"
#include "rendezvous/sha256.h"
#include "rendezvous/kinds.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define NONCE 32
#define PATIENCE (5 * HC__SECOND) /* for an address to accept a connection, and for a proof */
#define AGAIN_US 50000
#define LONGEST ((uint64_t)256 << 20) /* bytes of an answer */
#define SENT ">"
#define RECEIVED "<"

struct hc_channel {
    int fd;
    uint64_t sent, received; /* messages */
    unsigned char key[HC_SHA256_BYTES];
};

/* BUSY: the other end has accepted the connection, and has dropped it or does not answer. */
enum { BUSY = 1 };

static int system_failed(const char *what, char why[HC_CHANNEL_WHY]) {
    snprintf(why, HC_CHANNEL_WHY, "%s: %s", what, strerror(errno));
    return HC_TRANSPORT;
}

/* ---- bytes ------------------------------------------------------------------------------------------------- */

/* OK: the socket is ready; STALLED: it was not until the time `until`. */
static int await(int fd, short events, uint64_t until) {
    struct pollfd watched = {.fd = fd, .events = events};
    for (;;) {
        uint64_t now = hc__now_ns();
        int ready = poll(&watched, 1, now < until ? (int)((until - now) / 1000000u % 86400000u) + 1 : 0);
        if (ready > 0)
            return HC_OK;
        if (ready == 0 && hc__now_ns() >= until)
            return HC_STALLED;
        if (ready < 0 && errno != EINTR)
            return HC_TRANSPORT;
    }
}

/* BUSY: the other end has closed the connection. */
static int read_all(int fd, void *data, size_t bytes, uint64_t until, char why[HC_CHANNEL_WHY]) {
    for (char *at = data, *end = at + bytes; at < end;) {
        ssize_t n = recv(fd, at, (size_t)(end - at), MSG_DONTWAIT);
        if (n > 0) {
            at += n;
        } else if (n == 0 || errno == ECONNRESET) {
            snprintf(why, HC_CHANNEL_WHY, "the other end has closed the connection");
            return BUSY;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            int status = await(fd, POLLIN, until);
            if (status < 0)
                return status == HC_STALLED ? status : system_failed("poll", why);
        } else if (errno != EINTR) {
            return system_failed("recv", why);
        }
    }
    return HC_OK;
}

static int write_all(int fd, const void *data, size_t bytes, uint64_t until, char why[HC_CHANNEL_WHY]) {
    for (const char *at = data, *end = at + bytes; at < end;) {
        ssize_t n = send(fd, at, (size_t)(end - at), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            at += n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            int status = await(fd, POLLOUT, until);
            if (status < 0)
                return status == HC_STALLED ? status : system_failed("poll", why);
        } else if (errno != EINTR) {
            return system_failed("send", why);
        }
    }
    return HC_OK;
}

/* ---- the connection ---------------------------------------------------------------------------------------- */

static int read_secret(const char *text, size_t digits, unsigned char *secret, char why[HC_CHANNEL_WHY]) {
    for (size_t i = 0; i < digits / 2; i++) {
        unsigned byte;
        if (digits % 2 || digits / 2 > 64 || sscanf(text + 2 * i, "%2x", &byte) != 1) {
            snprintf(why, HC_CHANNEL_WHY, "the variable of the launcher has no secret");
            return HC_INVALID;
        }
        secret[i] = (unsigned char)byte;
    }
    return HC_OK;
}

/* Exchanges nonces and proofs. OK; BUSY; or a status and why. */
static int prove(hc_channel *channel, const unsigned char *secret, size_t secret_bytes, char why[HC_CHANNEL_WHY]) {
    unsigned char nonces[2 * NONCE], proof[HC_SHA256_BYTES], expected[HC_SHA256_BYTES], came[HC_SHA256_BYTES];
    uint64_t until = hc__now_ns() + PATIENCE;
    int status = getrandom(nonces, NONCE, 0) == NONCE ? HC_OK : system_failed("getrandom", why);
    if (status == HC_OK)
        status = write_all(channel->fd, nonces, NONCE, until, why);
    if (status == HC_OK)
        status = read_all(channel->fd, nonces + NONCE, NONCE, until, why);
    if (status != HC_OK)
        return status;
    hc_hmac(secret, secret_bytes, &(hc_part){nonces, sizeof nonces}, 1, channel->key);
    hc_hmac(channel->key, sizeof channel->key, &(hc_part){SENT, 1}, 1, proof);
    hc_hmac(channel->key, sizeof channel->key, &(hc_part){RECEIVED, 1}, 1, expected);
    status = write_all(channel->fd, proof, sizeof proof, until, why);
    if (status == HC_OK)
        status = read_all(channel->fd, came, sizeof came, until, why);
    if (status == HC_OK && !hc_codes_equal(came, expected)) {
        snprintf(why, HC_CHANNEL_WHY, "the other end does not know the secret");
        return HC_TRANSPORT;
    }
    return status;
}

static int connect_socket(const struct addrinfo *to, int *fd, char why[HC_CHANNEL_WHY]) {
    int one = 1, error = 0;
    socklen_t bytes = sizeof error;
    *fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to->ai_protocol);
    if (*fd < 0)
        return system_failed("socket", why);
    setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(*fd, to->ai_addr, to->ai_addrlen) == 0)
        return HC_OK;
    if (errno != EINPROGRESS)
        return system_failed("connect", why);
    int status = await(*fd, POLLOUT, hc__now_ns() + PATIENCE);
    if (status == HC_STALLED)
        errno = ETIMEDOUT;
    else if (status == HC_OK && getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0)
        errno = error;
    return status == HC_OK && error == 0 ? HC_OK : system_failed("connect", why);
}

/* `place`: HOST:PORT, with a 0 in place of its last colon. */
static int connect_to(hc_channel *channel, const char *host, const char *port, const unsigned char *secret,
                      size_t secret_bytes, char why[HC_CHANNEL_WHY]) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int problem = getaddrinfo(host, port, &hints, &found), status = HC_TRANSPORT;
    if (problem)
        snprintf(why, HC_CHANNEL_WHY, "%s", gai_strerror(problem));
    for (const struct addrinfo *at = found; at && status < 0; at = at->ai_next) {
        status = connect_socket(at, &channel->fd, why);
        if (status == HC_OK)
            status = prove(channel, secret, secret_bytes, why);
        if (status == HC_STALLED) {
            snprintf(why, HC_CHANNEL_WHY, "it does not answer");
            status = BUSY;
        }
        if (status != HC_OK && channel->fd >= 0)
            close(channel->fd);
    }
    if (found)
        freeaddrinfo(found);
    return status;
}

/* Tries each address once. */
static int try_all(hc_channel *channel, const char *places, const unsigned char *secret, size_t secret_bytes,
                   char why[HC_CHANNEL_WHY]) {
    int is_busy = 0, status = HC_TRANSPORT;
    size_t said = 0;
    snprintf(why, HC_CHANNEL_WHY, "no address");
    for (const char *at = places; *at && status != HC_OK; at += strcspn(at, ","), at += *at == ',') {
        char place[256], reason[HC_CHANNEL_WHY] = "";
        snprintf(place, sizeof place, "%.*s", (int)strcspn(at, ","), at);
        char *colon = strrchr(place, ':');
        if (!colon)
            continue;
        *colon = 0;
        status = connect_to(channel, place, colon + 1, secret, secret_bytes, reason);
        is_busy |= status == BUSY;
        if (status != HC_OK && said < HC_CHANNEL_WHY)
            said += (size_t)snprintf(why + said, HC_CHANNEL_WHY - said, "%s%s port %s: %s", said ? "; " : "", place,
                                     colon + 1, reason);
    }
    return status == HC_OK ? HC_OK : is_busy ? BUSY : HC_TRANSPORT;
}

int hc_channel_connect(const char *text, uint64_t ns, hc_channel **made, char why[HC_CHANNEL_WHY]) {
    unsigned char secret[64];
    size_t digits = strcspn(text, "@");
    const char *places = text + digits + (text[digits] == '@');
    hc_channel *channel = calloc(1, sizeof *channel);
    uint64_t until = hc__now_ns() + ns;
    int status = channel ? read_secret(text, digits, secret, why) : HC_NO_MEMORY;
    while (status >= 0 && (status = try_all(channel, places, secret, digits / 2, why)) == BUSY) {
        if (hc__now_ns() > until)
            status = HC_TRANSPORT;
        else
            usleep(AGAIN_US);
    }
    if (status < 0)
        free(channel);
    else
        *made = channel;
    return status;
}

void hc_channel_close(hc_channel *channel) {
    if (channel)
        close(channel->fd);
    free(channel);
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

static void put_number(unsigned char bytes[8], uint64_t number) {
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(number >> (56 - 8 * i));
}

static void code_of(const hc_channel *channel, const char *direction, uint64_t number, const void *message,
                    size_t bytes, unsigned char code[HC_SHA256_BYTES]) {
    unsigned char counted[8];
    put_number(counted, number);
    const hc_part parts[] = {{direction, 1}, {counted, sizeof counted}, {message, bytes}};
    hc_hmac(channel->key, sizeof channel->key, parts, 3, code);
}

static int send_message(hc_channel *channel, const char *message, size_t bytes, uint64_t until,
                        char why[HC_CHANNEL_WHY]) {
    unsigned char header[8 + HC_SHA256_BYTES];
    put_number(header, bytes);
    code_of(channel, SENT, channel->sent++, message, bytes, header + 8);
    int status = write_all(channel->fd, header, sizeof header, until, why);
    return status == HC_OK ? write_all(channel->fd, message, bytes, until, why) : status;
}

static int receive_message(hc_channel *channel, uint64_t until, char **message, char why[HC_CHANNEL_WHY]) {
    unsigned char header[8 + HC_SHA256_BYTES], code[HC_SHA256_BYTES];
    uint64_t bytes = 0;
    int status = read_all(channel->fd, header, sizeof header, until, why);
    if (status != HC_OK)
        return status;
    for (int i = 0; i < 8; i++)
        bytes = bytes << 8 | header[i];
    if (bytes > LONGEST) {
        snprintf(why, HC_CHANNEL_WHY, "an answer of %llu bytes", (unsigned long long)bytes);
        return HC_TRANSPORT;
    }
    char *came = malloc(bytes + 1);
    if (!came)
        return HC_NO_MEMORY;
    status = read_all(channel->fd, came, bytes, until, why);
    if (status == HC_OK) {
        came[bytes] = 0;
        code_of(channel, RECEIVED, channel->received++, came, bytes, code);
        if (!hc_codes_equal(code, header + 8)) {
            snprintf(why, HC_CHANNEL_WHY, "an answer whose sender does not know the secret");
            status = HC_TRANSPORT;
        }
    }
    if (status == HC_OK)
        *message = came;
    else
        free(came);
    return status;
}

int hc_channel_ask(hc_channel *channel, const char *question, uint64_t ns, char **answer, char why[HC_CHANNEL_WHY]) {
    uint64_t until = hc__now_ns() + ns;
    int status = send_message(channel, question, strlen(question), until, why);
    if (status == HC_OK)
        status = receive_message(channel, until, answer, why);
    return status == BUSY ? HC_TRANSPORT : status;
}

int hc_channel_send(hc_channel *channel, const char *message, uint64_t ns, char why[HC_CHANNEL_WHY]) {
    int status = send_message(channel, message, strlen(message), hc__now_ns() + ns, why);
    if (status == HC_STALLED)
        snprintf(why, HC_CHANNEL_WHY, "the other end takes no messages");
    return status == HC_STALLED ? HC_TRANSPORT : status;
}

void hc_channel_await(const hc_channel *channel, uint64_t ns) {
    await(channel->fd, POLLIN, hc__now_ns() + ns);
}

int hc_channel_receive(hc_channel *channel, uint64_t ns, char **message, char why[HC_CHANNEL_WHY]) {
    int status = await(channel->fd, POLLIN, hc__now_ns() + ns);
    if (status < 0)
        return status == HC_STALLED ? status : system_failed("poll", why);
    status = receive_message(channel, hc__now_ns() + PATIENCE, message, why);
    if (status == HC_STALLED)
        snprintf(why, HC_CHANNEL_WHY, "the other end has stopped in a message");
    return status == BUSY || status == HC_STALLED ? HC_TRANSPORT : status;
}
