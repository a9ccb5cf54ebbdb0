/* SPDX-License-Identifier: Apache-2.0
 *
 * python_world.h - what Python's extension and this library share: a World of Python in a program in C.
 */
#pragma once

#include "loop/loop.h"
#include "world/halo.h"
#include "world/job.h"
#include "world/set_agreement.h"

/* Those of halo exchanges, which start plans. */
typedef struct hc_halo_calls {
    int (*make)(const hc_halo_place *, const hc_halo_given *, const hc_exchange *, int, hc_halo **, hc_plan_memory **,
                char *);
    int (*alone)(const hc_halo_place *, const hc_halo_given *, hc_halo **, char *);
    int (*start)(hc_halo *, int);
    int (*test)(hc_halo *);
    int (*wait)(hc_halo *, uint64_t);
    void (*free)(hc_halo *);
} hc_halo_calls;

/* The functions of the library that has made a loop, which may be another copy of this code: Python's extension.
 * Handles are only memory, so either copy may make and free them. */
typedef struct hc_loop_calls {
    int version; /* HC_LOOP_CALLS_VERSION: of this struct, and of the structs that it refers to */
    void (*submit)(hc_loop *, hc_handle *, int);
    int (*wait)(hc_loop *, hc_handle *const *, size_t, uint64_t);
    void (*progress)(hc_loop *);
    int (*pending)(hc_loop *);
    void (*get_stats)(hc_loop *, hc_loop_stats *);
    void (*refuse)(hc_loop *, uint32_t, const hc_request *);
    const char *(*broken_text)(const hc_loop *);
    int (*set_make)(hc_job *, const int32_t *, int32_t, uint32_t, uint32_t, hc_segment *, char *);
    void (*sets_fail)(hc_job *, uint32_t, int, const char *);
    int (*set_remove)(hc_job *, uint32_t);
    hc_plan *(*plan_new)(hc_loop *, hc_handle *, int32_t);
    int (*plan_build)(const hc_job *, const hc_members *, const hc_plan_terms *, hc_handle *, hc_segment *, hc_plan **);
    void (*plan_free)(hc_plan *);
    int (*plan_start)(hc_plan *, int);
    int (*plan_poll)(hc_plan *);
    int (*plan_test)(hc_plan *);
    int (*plan_wait)(hc_plan *, uint64_t);
    hc_halo_calls halo;
} hc_loop_calls;
#define HC_LOOP_CALLS_VERSION 11
/* The functions of the including code's copy. */
#define HC_LOOP_CALLS                                                                                                  \
    {                                                                                                                  \
        HC_LOOP_CALLS_VERSION, hc_loop_submit, hc_loop_wait, hc_loop_progress, hc_loop_pending, hc_loop_get_stats,     \
            hc_loop_refuse, hc_loop_broken_text, hc_set_make, hc_sets_fail, hc_set_remove, hc_plan_new, hc_plan_build, \
            hc_plan_free, hc_plan_start, hc_plan_poll, hc_plan_test, hc_plan_wait, {                                   \
            hc_halo_new, hc_halo_alone, hc_halo_start, hc_halo_test, hc_halo_wait, hc_halo_free                        \
        }                                                                                                              \
    }
extern const hc_loop_calls hc__own_calls;

/* The target of Python's capsule "hpccoll.world", which owns it and sets `closed` when the World ends. */
typedef struct hc_python_world {
    hc_loop_calls calls;
    hc_job *job;           /* valid until `closed` */
    uint64_t stop_timeout; /* ns */
    uint32_t set;
    int32_t rank, size;
    const int32_t *members;
    _Atomic int closed;
} hc_python_world;
