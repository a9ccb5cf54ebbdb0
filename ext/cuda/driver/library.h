/* SPDX-License-Identifier: Apache-2.0
 *
 * library.h - opens a library at run time, or says why it cannot be opened.
 */
#pragma once

#include "core/hc.h"

/* Where a library is searched, in this order:
 *   named      the user's path; then nothing else is tried, and a failure is an error
 *   sonames    a copy that the process has opened already, as a framework does: one process should not hold two
 *   files      full paths in Python packages
 *   sonames    the system's search (LD_LIBRARY_PATH, ld.so.cache) */
typedef struct hc_search {
    const char *what;           /* "the CUDA driver" */
    const char *knob;           /* the name of the knob that gives `named`, for texts */
    const char *named;          /* NULL or "": not named */
    const char *const *files;   /* ends with NULL; NULL: none */
    const char *const *sonames; /* ends with NULL */
    const char *remedy;         /* what the user can do if it is not found: one sentence */
} hc_search;

/* One function of a table, and where its address goes. */
typedef struct hc_symbol {
    const char *name;
    size_t offset; /* of the member in the table */
    int needed;    /* 0: may stay NULL */
} hc_symbol;

typedef struct hc_library {
    void *handle; /* NULL: not usable, and text says why. Never closed: drivers do not survive that */
    char path[1024];
    char text[4096]; /* every attempt, in order, with its result */
    char remedy[1280];
} hc_library;

/* Opens the library and fills the table: OK, or UNSUPPORTED with text and remedy. */
int hc_library_open(hc_library *, const hc_search *, const hc_symbol *symbols, int n, void *table);
/* Marks the library as unusable for this reason; returns UNSUPPORTED. */
int hc_library_refuse(hc_library *, const char *remedy, const char *format, ...) __attribute__((format(printf, 3, 4)));
