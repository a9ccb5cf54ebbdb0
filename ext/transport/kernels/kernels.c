/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.c - chooses the vector code, and knows which reductions exist.
 *
 * The choice is made once, at run time, so one binary serves all machines.
 */
#include "transport/kernels/kernels.h"

#include <stdatomic.h>
#include <string.h>

#ifdef HC__KERNELS_X86
#include <cpuid.h>

/* __builtin_cpu_supports() knows f16c only in newer compilers. */
static int has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int runs_avx2(void) {
    return __builtin_cpu_supports("avx2") && has_f16c();
}

static int runs_avx512(void) {
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#define ENHANCED_STRINGS (1u << 9) /* of CPUID leaf 7, ebx: "enhanced rep movsb" */

/* AMD's processors have it as well, but it reads slowly there (copy.h). */
static int moves_strings(void) {
    unsigned a, b, c, d;
    return __builtin_cpu_is("intel") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & ENHANCED_STRINGS);
}

#define ZEN_5 26 /* the family of AMD's processors */

static int is_zen5(void) {
    unsigned a, b, c, d;
    return __builtin_cpu_is("amd") && __get_cpuid(1, &a, &b, &c, &d) && (a >> 8 & 0xf) + (a >> 20 & 0xff) == ZEN_5;
}
#else
static int moves_strings(void) {
    return 0;
}

static int is_zen5(void) {
    return 0;
}
#endif

static int runs_always(void) {
    return 1;
}

/* Best first. */
static const struct {
    const hc__kernels *kernels;
    int (*runs)(void);
} sets[] = {
#ifdef HC__KERNELS_X86
    {&hc__kernels_avx512, runs_avx512},
    {&hc__kernels_avx2, runs_avx2},
#endif
    {&hc__kernels_portable, runs_always},
};

static _Atomic(const hc__kernels *) chosen;
static _Atomic(hc__copy_fn *) copy_of_many;

/* The C library uses `rep movsb` for many bytes. */
static void copy_string(void *to, const void *from, int64_t n) {
    memcpy(to, from, (size_t)n);
}

int hc_kernels_select(const char *name) {
    int any = strcmp(name, "auto") == 0;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if ((any || strcmp(name, sets[i].kernels->name) == 0) && sets[i].runs()) {
            hc__copy_fn *copy = hc_host_copies_strings() ? copy_string : sets[i].kernels->copy[HC_STORES_PLAIN];
            atomic_store_explicit(&copy_of_many, copy, memory_order_relaxed);
            atomic_store_explicit(&chosen, sets[i].kernels, memory_order_relaxed);
            return HC_OK;
        }
    }
    return HC_INVALID;
}

/* Relaxed order is enough: the tables are constants, and racing threads choose the same one. */
const hc__kernels *hc__kernels_chosen(void) {
    const hc__kernels *k = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!k) {
        hc_kernels_select("auto");
        k = atomic_load_explicit(&chosen, memory_order_relaxed);
    }
    return k;
}

hc__copy_fn *hc__copy_of_many(void) {
    const hc__kernels *k = hc__kernels_chosen();
    hc__copy_fn *copy = atomic_load_explicit(&copy_of_many, memory_order_relaxed);
    return copy ? copy : k->copy[HC_STORES_PLAIN]; /* another thread chooses */
}

/* Asks the processor once, because a virtual machine answers CPUID in microseconds. */
static int asked_once(_Atomic int *answer, int (*ask)(void)) {
    enum { UNKNOWN, NO, YES };
    int known = atomic_load_explicit(answer, memory_order_relaxed);
    if (known == UNKNOWN) {
        known = ask() ? YES : NO;
        atomic_store_explicit(answer, known, memory_order_relaxed);
    }
    return known == YES;
}

/* The ranks of a node rely on equal answers, so it does not depend on a choice that another thread may be making. */
int hc_host_copies_strings(void) {
    static _Atomic int answer;
    return asked_once(&answer, moves_strings);
}

int hc_host_rewrites_fast(void) {
    static _Atomic int answer;
    return asked_once(&answer, is_zen5);
}

const char *hc_kernels_name(void) {
    return hc__kernels_chosen()->name;
}

int hc_reduction_defined(int reduction, int dtype) {
    if (reduction < 0 || reduction >= HC_REDUCTION_COUNT || dtype < 0 || dtype >= HC_DTYPE_COUNT)
        return 0;
    return hc__kernels_portable.reduce[reduction][dtype] != NULL;
}
