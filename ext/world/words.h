/* SPDX-License-Identifier: Apache-2.0
 *
 * words.h - the names that a program knows, for the texts of errors.
 *
 * An error is written in the words of the caller when it arises: the same text then goes to the other ranks.
 */
#pragma once

enum hc_words_of {
    HC_WORDS_OWN,     /* hpccoll's, in Python, C and Fortran */
    HC_WORDS_HOROVOD, /* those of Horovod's interfaces to frameworks */
    HC_WORDS_COUNT
};

typedef struct hc_words {
    const char *array, *an_array;     /* what an operation takes, without and with an article */
    const char *x, *out;              /* the arguments */
    const char *prescale, *postscale; /* the factors */
    const char *(*reduction)(int code);
} hc_words;

extern const hc_words hc_words_table[HC_WORDS_COUNT];
