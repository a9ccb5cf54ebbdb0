/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi.c - a net over MPI: non-blocking point-to-point messages on a private communicator.
 *
 * Testing one request makes MPI poll all its sockets. So all active requests are in one array for MPI_Testsome, which
 * is called when a request is tested a second time since the last call, or since it was posted. So a driver that tests
 * all its requests pays for one MPI_Testsome per iteration.
 *
 * MPICH's family probes for the message of a receive from any rank: MPICH 5.0 on UCX loses messages for a posted
 * MPI_ANY_SOURCE if receives from named ranks are posted, too. Four ranks hang within a few steps. Open MPI posts it,
 * which saves a second poll, and a search of all ranks per poll.
 *
 * MPI counts in int: a message beyond PIECE bytes is one element of a derived type, so it stays one message, in order.
 *
 * This file is compiled once per family of MPI libraries: mpi_mpich.c and its neighbours define MPI's types and
 * constants, include this file, and then mpi_drain.h, mpi_communicators.h and mpi_family.h.
 */
#include "transport/net/mpi_calls.h"
#include "transport/net/mpi_net.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 30)
/* Open MPI over TCP sends longer messages in one direction at a time: 480 of 950 Mbit/s each way, against 960. */
#define MESSAGE_BYTES (60 << 10)
/* Within one machine (emulated nodes) a message is one copy: 64 MiB took 8.9 ms in 60 KiB each, 7.0 in 256 KiB. */
#define MESSAGE_BYTES_ONE_MACHINE (1 << 20)
/* A shorter message has usually left when MPI_Isend returns. */
#define EAGER_BYTES (4 << 10)
#define ANY INT32_MAX

#define POINTER(result, name, arguments) static result(*MPI_##name) arguments;
HC_MPI_CALLS(POINTER)
#undef POINTER

struct hc_net_request {
    int32_t index;  /* in the arrays of active requests; ANY: active, not in them; -1: complete */
    uint32_t asked; /* the sweep after which it was last tested */
    int status;     /* of a complete request */
    int32_t peer;
    size_t bytes;
    uint8_t receives;
    hc_net_request *next; /* free list */
};

typedef struct mpi_net {
    hc_net base;
    MPI_Comm comm;
    MPI_Errhandler before; /* the error handler of a borrowed communicator */
    MPI_Request *handles;  /* the first `alive` are in use */
    hc_net_request **owners;
    int *indices;
    MPI_Status *statuses;
    int32_t alive, room;
    uint32_t sweep;
    struct {
        hc_net_request *request; /* NULL: there is none */
        void *data;
        int32_t room, tag;
    } any;              /* the receive from any rank */
    uint8_t *addressed; /* a bit per rank: it was sent control messages */
    hc_net_request *unused;
    char text[MPI_MAX_ERROR_STRING + 1];
    pid_t owner; /* a forked child has a copy of the net, but must not call MPI */
    uint8_t failed;
    hc_scope scope; /* surrounds every call of MPI while it has users */
    int scope_users;
} mpi_net;

/* ---- the scope of calls ----------------------------------------------------------------------------- */

/* MPI copies device memory in the context of the calling thread, whichever message it progresses. */
static void mpi_surround(hc_net *base, const hc_scope *scope) {
    mpi_net *net = (mpi_net *)base;
    net->scope_users += scope ? 1 : -1;
    if (scope)
        net->scope = *scope;
}

static void *enter(const mpi_net *net) {
    return net->scope_users > 0 ? net->scope.enter(net->scope.of) : NULL;
}

static void leave(const mpi_net *net, void *before) {
    if (net->scope_users > 0)
        net->scope.leave(net->scope.of, before);
}

/* ---- errors ---------------------------------------------------------------------------------------- */

static int class_of(int code) {
    int class = code;
    MPI_Error_class(code, &class);
    return class;
}

/* A failed receive from any rank does not name the failed process; a probe for that rank fails, too. */
static int32_t find_failed(const mpi_net *net) {
    int there;
    for (int32_t peer = 0; peer < net->base.size; peer++) {
        int code = MPI_Iprobe(peer, HC_TAG_CONTROL, net->comm, &there, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS && class_of(code) == MPI_ERR_PROC_FAILED)
            return peer;
    }
    return -1;
}

static int translate(mpi_net *net, int code, int32_t peer) {
    int length = 0;
    if (code == MPI_SUCCESS)
        return HC_OK;
    int class = class_of(code);
    net->failed = 1;
    net->base.text = net->text;
    if (MPI_Error_string(code, net->text, &length) != MPI_SUCCESS)
        snprintf(net->text, sizeof net->text, "MPI error %d", code);
    if (class == MPI_ERR_PROC_FAILED || class == MPI_ERR_PROC_FAILED_PENDING) {
        net->base.lost = (uint32_t)((peer >= 0 ? peer : find_failed(net)) + 1);
        return HC_PEER_LOST;
    }
    return class == MPI_ERR_NO_MEM ? HC_NO_MEMORY : HC_TRANSPORT;
}

/* ---- requests ---------------------------------------------------------------------------------------- */

static int grow(mpi_net *net) {
    int32_t room = net->room ? 2 * net->room : 64;
    void *handles = realloc(net->handles, (size_t)room * sizeof *net->handles);
    net->handles = handles ? handles : net->handles;
    void *owners = realloc(net->owners, (size_t)room * sizeof(hc_net_request *));
    net->owners = owners ? owners : net->owners;
    void *indices = realloc(net->indices, (size_t)room * sizeof *net->indices);
    net->indices = indices ? indices : net->indices;
    void *statuses = realloc(net->statuses, (size_t)room * sizeof *net->statuses);
    net->statuses = statuses ? statuses : net->statuses;
    if (!handles || !owners || !indices || !statuses)
        return HC_NO_MEMORY;
    net->room = room;
    return HC_OK;
}

/* Returns a request, with room for its handle in the arrays; NULL: out of memory. */
static hc_net_request *take(mpi_net *net) {
    if (net->alive == net->room && grow(net) != HC_OK)
        return NULL;
    hc_net_request *r = net->unused;
    if (r)
        net->unused = r->next;
    else
        r = malloc(sizeof *r);
    if (r) {
        *r = (hc_net_request){.index = net->alive, .asked = net->sweep - 1};
        net->owners[net->alive] = r;
    }
    return r;
}

static void give_back(mpi_net *net, hc_net_request *r) {
    r->next = net->unused;
    net->unused = r;
}

/* Allocates requests early, for the batches of a rank that runs out of memory later. */
static void stock(mpi_net *net) {
    hc_net_request *r = NULL;
    for (int32_t i = grow(net) == HC_OK ? net->room : 0; i > 0 && (r = malloc(sizeof *r)); i--)
        give_back(net, r);
}

/* Removes number i from the arrays; the last entry takes its place. */
static void retire(mpi_net *net, int32_t i) {
    int32_t last = --net->alive;
    net->owners[i]->index = -1;
    net->handles[i] = net->handles[last];
    net->owners[i] = net->owners[last];
    if (i != last)
        net->owners[i]->index = i;
}

/* MPI_BYTE for a short message; else a new type of `bytes` bytes, to be freed by drop_type(). */
static int make_type(size_t bytes, MPI_Datatype *type, int *count) {
    MPI_Datatype piece;
    int pieces = (int)(bytes / PIECE), rest = (int)(bytes % PIECE);
    *type = MPI_BYTE;
    *count = (int)bytes;
    if (bytes <= PIECE)
        return MPI_SUCCESS;
    *count = 1;
    int code = MPI_Type_contiguous((int)PIECE, MPI_BYTE, &piece);
    if (code != MPI_SUCCESS)
        return code;
    int lengths[2] = {pieces, rest};
    MPI_Aint places[2] = {0, (MPI_Aint)pieces * (MPI_Aint)PIECE};
    MPI_Datatype types[2] = {piece, MPI_BYTE};
    code = MPI_Type_create_struct(2, lengths, places, types, type);
    MPI_Type_free(&piece);
    return code == MPI_SUCCESS ? MPI_Type_commit(type) : code;
}

static void drop_type(MPI_Datatype *type) {
    if (*type != MPI_BYTE)
        MPI_Type_free(type);
}

static int post(mpi_net *net, int receives, int32_t peer, int32_t tag, void *data, size_t bytes, hc_net_request **out) {
    int is_any = POSTS_ANY_SOURCE && receives && peer == HC_ANY_PEER;
    *out = NULL;
    if ((peer < 0 && !is_any) || peer >= net->base.size || tag < 0 || tag > net->base.max_tag) {
        snprintf(net->text, sizeof net->text, "no such rank or tag: %d, %d", (int)peer, (int)tag);
        return HC_INVALID;
    }
    hc_net_request *r = take(net);
    if (!r)
        return HC_NO_MEMORY;
    MPI_Datatype type;
    MPI_Request *handle = &net->handles[net->alive];
    int has_left = 0, count, code = make_type(bytes, &type, &count);
    void *before = enter(net);
    if (code == MPI_SUCCESS && receives)
        code = MPI_Irecv(data, count, type, is_any ? MPI_ANY_SOURCE : peer, tag, net->comm, handle);
    else if (code == MPI_SUCCESS)
        code = MPI_Isend(data, count, type, peer, tag, net->comm, handle);
    if (code == MPI_SUCCESS && !receives && bytes <= EAGER_BYTES)
        code = MPI_Test(handle, &has_left, MPI_STATUS_IGNORE);
    leave(net, before);
    drop_type(&type);
    if (code != MPI_SUCCESS) {
        give_back(net, r);
        return translate(net, code, peer);
    }
    net->alive++;
    r->receives = (uint8_t)receives;
    r->bytes = bytes;
    r->peer = peer;
    if (has_left)
        retire(net, r->index);
    *out = r;
    return HC_OK;
}

static int isend(hc_net *base, int32_t peer, int32_t tag, const void *data, size_t bytes, hc_net_request **req) {
    mpi_net *net = (mpi_net *)base;
    int status = post(net, 0, peer, tag, (void *)(uintptr_t)data, bytes, req);
    if (status == HC_OK) {
        if (tag == HC_TAG_CONTROL)
            net->addressed[peer / 8] |= (uint8_t)(1 << peer % 8);
        hc_count(&base->sent_messages, 1);
        hc_count(&base->sent_bytes, bytes);
    }
    return status;
}

static int await_any(mpi_net *net, int32_t tag, void *data, size_t room, hc_net_request **req) {
    hc_net_request *r = NULL;
    *req = NULL;
    if (net->any.request || room > PIECE) {
        snprintf(net->text, sizeof net->text, "one receive from any rank at a time, of a GiB");
        return HC_INVALID;
    }
    if (!(r = take(net)))
        return HC_NO_MEMORY;
    r->index = ANY;
    r->receives = 1;
    net->any.data = data;
    net->any.room = (int32_t)room;
    net->any.tag = tag;
    *req = net->any.request = r;
    return HC_OK;
}

static int irecv(hc_net *base, int32_t peer, int32_t tag, void *data, size_t room, hc_net_request **req) {
    if (peer == HC_ANY_PEER && !POSTS_ANY_SOURCE)
        return await_any((mpi_net *)base, tag, data, room, req);
    return post((mpi_net *)base, 1, peer, tag, data, room, req);
}

/* ---- completion ---------------------------------------------------------------------------------------- */

static void complete(mpi_net *net, int32_t i, MPI_Status *status, int code) {
    hc_net_request *r = net->owners[i];
    r->status = translate(net, code, r->peer);
    if (r->receives && code == MPI_SUCCESS) {
        MPI_Count bytes = 0;
        r->status = translate(net, MPI_Get_elements_x(status, MPI_BYTE, &bytes), -1);
        r->bytes = (size_t)bytes;
        r->peer = status->MPI_SOURCE;
        hc_count(&net->base.received_bytes, r->bytes);
    }
}

static int compare_down(const void *a, const void *b) {
    return *(const int *)b - *(const int *)a;
}

/* If a message for the receive from any rank has arrived, the receive matches it and joins the active requests. */
static int match_any(mpi_net *net) {
    int there = 0;
    MPI_Message message;
    if (net->alive == net->room && grow(net) != HC_OK)
        return HC_NO_MEMORY;
    int code = MPI_Improbe(MPI_ANY_SOURCE, net->any.tag, net->comm, &there, &message, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && there)
        code = MPI_Imrecv(net->any.data, net->any.room, MPI_BYTE, &message, &net->handles[net->alive]);
    if (code != MPI_SUCCESS || !there)
        return translate(net, code, -1);
    net->owners[net->alive] = net->any.request;
    net->any.request->index = net->alive++;
    net->any.request = NULL;
    return HC_OK;
}

/* 1: a receive from any rank, which another rank could still send. It stays active. */
static int is_pending(int code) {
    return code != MPI_SUCCESS && class_of(code) == MPI_ERR_PROC_FAILED_PENDING;
}

/* Completes `done` requests, and removes them from the arrays. */
static int complete_all(mpi_net *net, int done, int has_errors) {
    int status = HC_OK, ended = 0;
    for (int i = 0; i < done; i++) {
        int error = has_errors ? net->statuses[i].MPI_ERROR : MPI_SUCCESS;
        if (is_pending(error)) {
            status = translate(net, error, -1);
            continue;
        }
        complete(net, net->indices[i], &net->statuses[i], error);
        net->indices[ended++] = net->indices[i];
    }
    if (ended > 1)
        qsort(net->indices, (size_t)ended, sizeof *net->indices, compare_down); /* retire() moves the last one */
    for (int i = 0; i < ended; i++)
        retire(net, net->indices[i]);
    return status;
}

/* Tests all active requests once. */
static int look(mpi_net *net) {
    int done = 0, status = net->any.request ? match_any(net) : HC_OK;
    net->sweep++;
    if (status < 0 || net->alive == 0)
        return status;
    int code = MPI_Testsome(net->alive, net->handles, &done, net->indices, net->statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
        return translate(net, code, -1);
    return done > 0 ? complete_all(net, done, code == MPI_ERR_IN_STATUS) : HC_OK; /* MPI_UNDEFINED is negative */
}

static int test(hc_net *base, hc_net_request **req, size_t *bytes, int32_t *peer) {
    mpi_net *net = (mpi_net *)base;
    hc_net_request *r = *req;
    if (r->index >= 0 && r->asked == net->sweep) {
        void *before = enter(net);
        int status = look(net);
        leave(net, before);
        if (status < 0)
            return status;
    }
    r->asked = net->sweep;
    if (r->index >= 0)
        return HC_IDLE;
    int status = r->status;
    if (bytes)
        *bytes = r->bytes;
    if (peer)
        *peer = r->peer;
    give_back(net, r);
    *req = NULL;
    return status < 0 ? status : HC_DONE;
}

/* Cancels a receive without a message; a message in flight cannot be cancelled. */
static int cancel(hc_net *base, hc_net_request **req) {
    mpi_net *net = (mpi_net *)base;
    hc_net_request *r = *req;
    int32_t i = r->index;
    int done = 1;
    *req = NULL;
    if (i == ANY) {
        net->any.request = NULL;
    } else if (i >= 0) {
        MPI_Request *handle = &net->handles[i];
        void *before = enter(net);
        done = 0;
        if (r->receives)
            MPI_Cancel(handle);
        if (MPI_Test(handle, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
            MPI_Request_free(handle);
        leave(net, before);
        retire(net, i);
    }
    give_back(net, r);
    return done ? HC_OK : HC_TRANSPORT;
}

/* ---- the net -------------------------------------------------------------------------------------------- */

static int drain(mpi_net *net); /* mpi_drain.h */

static void destroy(hc_net *base) {
    mpi_net *net = (mpi_net *)base;
    int finalized = net->owner != getpid();
    if (!finalized)
        MPI_Finalized(&finalized);
    while (!finalized && net->alive > 0) {
        hc_net_request *r = net->owners[0];
        cancel(base, &r);
    }
    if (net->any.request)
        give_back(net, net->any.request);
    /* After a failure the other ranks may be gone. */
    if (!finalized && !net->failed && !base->abandoned && drain(net))
        MPI_Comm_free(&net->comm);
    free(net->addressed);
    while (net->unused) {
        hc_net_request *r = net->unused;
        net->unused = r->next;
        free(r);
    }
    free(net->handles);
    free(net->owners);
    free(net->indices);
    free(net->statuses);
    free(net);
}

static const struct hc_net_ops mpi_ops = {.name = "mpi",
                                          .isend = isend,
                                          .irecv = irecv,
                                          .test = test,
                                          .cancel = cancel,
                                          .surround = mpi_surround,
                                          .free = destroy};

static int configure(mpi_net *net, MPI_Comm comm, int one_machine) {
    int rank = 0, size = 0, found = 0, *bound = NULL;
    int code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    net->comm = comm;
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(net->comm, &rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(net->comm, &size);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    net->addressed = calloc((size_t)size / 8 + 1, 1);
    net->base.rank = rank;
    net->base.size = size;
    net->base.message_bytes = one_machine ? MESSAGE_BYTES_ONE_MACHINE : MESSAGE_BYTES;
    net->base.max_tag = found ? *bound : 32767; /* the standard's minimum */
    return net->addressed ? translate(net, code, -1) : HC_NO_MEMORY;
}

static int net_new(const void *of, int one_machine, hc_net **out) {
    MPI_Comm comm;
    *out = NULL;
    mpi_net *net = calloc(1, sizeof *net);
    if (!net)
        return HC_NO_MEMORY;
    memcpy(&comm, of, sizeof comm);
    net->base.ops = &mpi_ops;
    net->owner = getpid();
    int status = configure(net, comm, one_machine);
    if (status < 0) {
        free(net->addressed);
        free(net);
        return status;
    }
    stock(net);
    *out = &net->base;
    return HC_OK;
}
