/* SPDX-License-Identifier: Apache-2.0
 *
 * start.c - see start.h.
 */
#include "world/start.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void hc_job_find_locals(hc_job *job) {
    job->local_rank = job->local_size = 0;
    for (int32_t rank = 0; rank < job->size; rank++) {
        int here = job->node_of[rank] == job->node_of[job->rank];
        job->local_size += here;
        job->local_rank += here && rank < job->rank;
    }
}

int hc_processes_copy(const hc_processes *from, int32_t n, int32_t size, hc_processes *to) {
    size_t names = (size_t)n * sizeof *from->hosts, numbers = (size_t)size * sizeof *from->pids, bytes = 0;
    for (int32_t host = 0; host < n; host++)
        bytes += strlen(from->hosts[host]) + 1;
    const char **hosts = malloc(names + 2 * numbers + bytes);
    if (!hosts)
        return HC_NO_MEMORY;
    int32_t *host_of = (int32_t *)(void *)(hosts + n), *pids = host_of + size;
    char *text = (char *)(pids + size);
    memcpy(host_of, from->host_of, numbers);
    memcpy(pids, from->pids, numbers);
    for (int32_t host = 0; host < n; host++) {
        hosts[host] = text;
        text = stpcpy(text, from->hosts[host]) + 1;
    }
    *to = (hc_processes){.hosts = hosts, .host_of = host_of, .pids = pids};
    return HC_OK;
}

/* Lists the ranks of this node, and the local rank of each rank of the job, or -1 on other nodes. */
static void list_locals(const hc_job *job, int32_t *locals, int32_t *local_of) {
    int32_t n = 0;
    for (int32_t rank = 0; rank < job->size; rank++) {
        int here = job->node_of[rank] == job->node_of[job->rank];
        local_of[rank] = here ? n : -1;
        if (here)
            locals[n++] = rank;
    }
}

#define PATH_BYTES 4096
#define FOLDER_MOST 640 /* the trace's limit in bytes */

/* Writes the folder of the trace: HPCCOLL_TRACE_DIR, or hpccoll-trace-JOB in the working folder; "": there is none. JOB
 * is the scheduler's number of the job, or a word of this World. */
static int find_folder(const hc_job *job, const hc_loop_words *words, char folder[PATH_BYTES], char why[HC_WHY]) {
    char here[PATH_BYTES] = "", named[128];
    const char *given = words->trace_dir;
    int is_known = words->job && *words->job;
    folder[0] = 0;
    if (strcmp(given, "none") == 0)
        return HC_OK;
    if (*given != '/' && !getcwd(here, sizeof here))
        here[0] = '.'; /* it was removed, as the attempt to write a trace will say */
    snprintf(named, sizeof named, "hpccoll-trace-%.*s", is_known ? 100 : 8, is_known ? words->job : job->nonce);
    int bytes = snprintf(folder, PATH_BYTES, "%s%s%s", here, *here && strcmp(here, "/") != 0 ? "/" : "",
                         *given ? given : named);
    return bytes <= FOLDER_MOST
               ? HC_OK
               : hc__refuse(why, HC_INVALID, "HPCCOLL_TRACE_DIR is %.400s: at most %d bytes", folder, FOLDER_MOST);
}

static int refuse_crowd(int32_t ranks, char why[HC_WHY]) {
    return hc__refuse(why, HC_UNSUPPORTED,
                      "a node has %d ranks, of which at most %d share memory: set HPCCOLL_NODES=%d", (int)ranks,
                      HC_NODE_RANKS, (int)((ranks + HC_NODE_RANKS - 1) / HC_NODE_RANKS));
}

static void fill_in(const hc_job *job, const hc_loop_words *words, const int32_t *locals, hc_loop_config *config) {
    config->engine.rank = job->rank;
    config->engine.size = job->size;
    config->wire = strcmp(words->wire, "fp16") == 0   ? HC_FLOAT16
                   : strcmp(words->wire, "bf16") == 0 ? HC_BFLOAT16
                                                      : HC_WIRE_SAME;
    config->stores = (uint8_t)hc_stores_named(words->stores);
    config->wait = (uint8_t)hc_wait_named(words->wait);
    config->fanout = job->fanout;
    config->node_of = job->node_of;
    config->local_rank = job->local_rank;
    config->local_size = job->local_size;
    config->locals = locals;
    config->trace.world = job->nonce;
}

static int make_parts(hc_job *job, hc_segment *memory, const int32_t *locals, const int32_t *local_of,
                      const hc_loop_config *config, hc_loop_parts *parts, char why[HC_WHY]) {
    int status = hc_node_control_new(memory, job->local_rank, job->local_size, locals, &parts->node_control);
    if (status >= 0)
        status = hc_control_new(parts->node_control, job->net, local_of, job->size, &parts->control);
    if (status >= 0)
        status = hc_p2p_new(parts->node_control, job->net, parts->control, local_of, job->rank, job->size, &parts->p2p);
    if (status < 0)
        return status;
    status = hc_loop_new(config, parts, &job->loop);
    return status != HC_NO_MEMORY ? status
                                  : hc__refuse(why, status,
                                               "there is no memory or no thread for a World: raise the limits of this "
                                               "process (ulimit -u, ulimit -v, pids.max and memory.max of its cgroup)");
}

int hc_job_make_loop(hc_job *job, const hc_loop_words *words, hc_segment *memory, hc_loop_config *config,
                     char why[HC_WHY]) {
    char folder[PATH_BYTES];
    hc_loop_parts parts = {.net = job->net};
    why[0] = 0;
    if (job->local_size > HC_NODE_RANKS)
        return refuse_crowd(job->local_size, why);
    int status = find_folder(job, words, folder, why);
    if (status < 0)
        return status;
    config->trace.folder = folder;
    int32_t *locals = malloc(2 * (size_t)job->size * sizeof *locals), *local_of = locals + job->size;
    if (!locals)
        return HC_NO_MEMORY;
    list_locals(job, locals, local_of);
    fill_in(job, words, locals, config);
    status = make_parts(job, memory, locals, local_of, config, &parts, why);
    if (status < 0)
        hc_loop_parts_free(&parts);
    else
        job->node_control = parts.node_control;
    free(locals);
    return status;
}
