/* SPDX-License-Identifier: Apache-2.0
 *
 * library.h - a library that is opened at run time, and what is said where it is not there.
 */
#ifndef HC_LIBRARY_H
#define HC_LIBRARY_H

#include "core/hc.h"

/* Where a library is looked for, in this order:
 *   named      what the user named; where that is given nothing else is tried, and its failure is an error
 *   sonames    what the process has opened already: a framework's, and two copies in a process are to be avoided
 *   files      full paths, those of Python packages
 *   sonames    the system's search (LD_LIBRARY_PATH, ld.so.cache) */
typedef struct hc_search {
    const char *what;           /* "the CUDA driver" */
    const char *knob;           /* the name of the knob that gives `named`, for texts */
    const char *named;          /* NULL or "": not named */
    const char *const *files;   /* ends with NULL; NULL: none */
    const char *const *sonames; /* ends with NULL */
    const char *remedy;         /* what to do where nothing was found: one sentence */
} hc_search;

/* One function of a table: where its address goes. */
typedef struct hc_symbol {
    const char *name;
    size_t offset; /* of the member in the table */
    int needed;    /* 0: stays NULL where the library does not have it */
} hc_symbol;

typedef struct hc_library {
    void *handle; /* NULL: not usable, and text says why. Never closed: drivers do not survive it */
    char path[1024];
    char text[4096]; /* what was tried in which order, and what came of it */
    char remedy[1280];
} hc_library;

/* Opens the library and fills the table: OK, or UNSUPPORTED with text and remedy. */
int hc_library_open(hc_library *, const hc_search *, const hc_symbol *symbols, int n, void *table);
/* Makes the library unusable, for this reason; UNSUPPORTED. */
int hc_library_refuse(hc_library *, const char *remedy, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
