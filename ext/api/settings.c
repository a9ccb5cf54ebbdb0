/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - reads the knobs of a World of C from options and the environment.
 *
 * It is the only C file that reads the environment, for programs without Python. Variables and bounds are those of
 * hpccoll/config.py.
 */
#include "api/codes.h"
#include "api/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern char **environ;

typedef struct knob {
    const char *name, *unit;
    double initial, low, high;
    int agreed;
    size_t offset, size;
    uint8_t is_signed;
    const char *text, *choices; /* the default of a text, and its choices */
} knob;

#define IS_SIGNED(type) ((type) - 1 < (type)1)
#define ROW(at, type, name, initial, low, high, unit, agreed) \
    {#name, unit, initial, low, high, agreed, offsetof(hc__settings, at name), sizeof(type), IS_SIGNED(type), NULL, ""},
#define ENGINE(type, name, initial, low, high, unit, agreed, doc) \
    ROW(engine., type, name, initial, low, high, unit, agreed)
#define LOOP(type, name, initial, low, high, unit, agreed, doc) ROW(loop., type, name, initial, low, high, unit, agreed)
#define HIERARCHY(type, name, initial, low, high, unit, agreed, doc) \
    ROW(hierarchy., type, name, initial, low, high, unit, agreed)
#define WORLD(type, name, initial, low, high, unit, agreed, doc) ROW(, type, name, initial, low, high, unit, agreed)
#define TEXT(name, initial, choices, agreed) \
    {#name, "", 0, 0, 0, agreed, offsetof(hc__settings, name), HC__TEXT_KNOB, 0, initial, choices},

static const knob knobs[] = {HC_ENGINE_KNOBS(ENGINE) HC_LOOP_KNOBS(LOOP) HC_HIERARCHY_KNOBS(HIERARCHY)
                                 HC_WORLD_KNOBS(WORLD) HC_WORLD_TEXTS(TEXT){.name = NULL}};

/* Knobs of Python's Worlds. Their variables have no effect in a World of C, and rank 0 says so. */
static const char *const of_python[] = {
    "end_time", "preempt_margin", "gpu_aware_record", "allow_singleton", "check",           "trust_mpi", "timeline",
    "secret",   "autotune",       "autotune_log",     "autotune_steps",  "autotune_warmup", NULL};

static const char *const yes[] = {"1", "true", "yes", "on", NULL}, *const no[] = {"0", "false", "no", "off", NULL};

static int is_one_of(const char *text, const char *const *words) {
    while (*words && strcasecmp(text, *words) != 0)
        words++;
    return *words != NULL;
}

static void put(hc__settings *settings, const knob *k, double value) {
    char *field = (char *)settings + k->offset;
    uint64_t whole = (uint64_t)(strcmp(k->unit, "s") == 0 && k->size == 8 ? value * 1e9 + 0.5 : value);
    memcpy(field, &whole, k->size); /* little-endian, like all supported machines */
}

static int is_choice(const knob *k, const char *text) {
    size_t length = strlen(text);
    if (length && strspn(text, "0123456789") == length && length < 6 && strstr(k->choices, "NUMBER"))
        return 1;
    for (const char *at = k->choices; *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == length && strncmp(at, text, length) == 0)
            return 1;
    return !*k->choices && length < HC__TEXT_KNOB;
}

/* Parses a number within the knob's bounds, with a suffix K, M or G unless it is a time; 0: not such a number. */
static int parse_number(const knob *k, const char *text, double *value) {
    char *end;
    int is_flag = k->size == 1, is_time = strcmp(k->unit, "s") == 0;
    if (is_flag) {
        *value = is_one_of(text, yes);
        return *value != 0 || is_one_of(text, no);
    }
    errno = 0;
    *value = strtod(text, &end);
    if (end == text || errno)
        return 0;
    const char *suffix = *end ? strchr("KMG", toupper((unsigned char)*end)) : NULL;
    if (suffix && !is_time) {
        *value *= (double)(1ull << (10 * (suffix - "KMG" + 1)));
        end++;
    }
    int whole = is_time || *value == (double)(int64_t)*value;
    return !*end && whole && *value >= k->low && *value <= k->high;
}

static int set(hc__settings *settings, const char *name, size_t length, const char *text, const char *given) {
    const knob *k = knobs;
    double value;
    while (k->name && !(strlen(k->name) == length && strncasecmp(k->name, name, length) == 0))
        k++;
    if (!k->name)
        return hc__error(HC_INVALID, "%s is no knob of hpccoll in a program of C", given);
    if (k->text) {
        if (!is_choice(k, text))
            return hc__error(HC_INVALID, "%s is not %s%s", given, *k->choices ? "one of " : "a short text", k->choices);
        snprintf((char *)settings + k->offset, HC__TEXT_KNOB, "%s", text);
        return HC_OK;
    }
    if (!parse_number(k, text, &value))
        return hc__error(HC_INVALID, "%s is not %g to %g%s%s", given, k->low, k->high, *k->unit ? " " : "", k->unit);
    put(settings, k, value);
    return HC_OK;
}

static int is_of_python(const char *name, size_t length) {
    for (const char *const *one = of_python; *one; one++)
        if (strlen(*one) == length && strncasecmp(*one, name, length) == 0)
            return 1;
    return 0;
}

/* Except HPCCOLL_SECRET, which the launcher sets, and not the user. */
static void note_ignored(hc__settings *settings, const char *variable, size_t length) {
    if (strncmp(variable, "HPCCOLL_SECRET=", length + 1) == 0)
        return;
    size_t at = strlen(settings->ignored);
    snprintf(settings->ignored + at, sizeof settings->ignored - at, "%s%.*s", at ? ", " : "", (int)length, variable);
}

static int read_environment(hc__settings *settings) {
    for (char **at = environ; at && *at; at++) {
        const char *name = *at + 8, *equals = strchr(*at, '=');
        if (strncmp(*at, "HPCCOLL_", 8) != 0 || !equals || equals < name)
            continue;
        size_t length = (size_t)(equals - name);
        if (is_of_python(name, length)) {
            note_ignored(settings, *at, (size_t)(equals - *at));
            continue;
        }
        int status = set(settings, name, length, equals + 1, *at);
        if (status < 0)
            return status;
    }
    return HC_OK;
}

static int read_options(hc__settings *settings, const char *options) {
    while (options && *(options += strspn(options, " \t\n,"))) {
        char word[HC__TEXT_KNOB];
        size_t length = strcspn(options, " \t\n,");
        snprintf(word, sizeof word, "%.*s", (int)length, options);
        char *equals = strchr(word, '=');
        if (!equals || length >= sizeof word)
            return hc__error(HC_INVALID, "options: \"%s\" is not name=value", word);
        int status = set(settings, word, (size_t)(equals - word), equals + 1, word);
        if (status < 0)
            return status;
        options += length;
    }
    return HC_OK;
}

const char *hc__settings_variable(const char *name) {
    return getenv(name);
}

int hc__settings_read(hc__settings *settings, const char *options) {
    memset(settings, 0, sizeof *settings);
    for (const knob *k = knobs; k->name; k++) {
        if (k->text)
            snprintf((char *)settings + k->offset, HC__TEXT_KNOB, "%s", k->text);
        else
            put(settings, k, k->initial);
    }
    int status = read_environment(settings);
    return status < 0 ? status : read_options(settings, options);
}

void hc__settings_agreed(const hc__settings *settings, char text[HC__AGREED_BYTES]) {
    size_t at = 0;
    text[0] = 0;
    for (const knob *k = knobs; k->name && at < HC__AGREED_BYTES; k++) {
        uint64_t whole = 0;
        if (!k->agreed)
            continue;
        if (k->text) {
            at += (size_t)snprintf(text + at, HC__AGREED_BYTES - at, "%s=%.64s ", k->name,
                                   (const char *)settings + k->offset);
            continue;
        }
        memcpy(&whole, (const char *)settings + k->offset, k->size);
        at += (size_t)snprintf(text + at, HC__AGREED_BYTES - at, "%s=%llu ", k->name, (unsigned long long)whole);
    }
}

int hc__settings_differ(const char *a, const char *b, char word_a[128], char word_b[128]) {
    while (*a || *b) {
        size_t na = strcspn(a, " "), nb = strcspn(b, " ");
        if (na != nb || strncmp(a, b, na) != 0) {
            snprintf(word_a, 128, "%.*s", (int)na, a);
            snprintf(word_b, 128, "%.*s", (int)nb, b);
            return 1;
        }
        a += na + (a[na] == ' ');
        b += nb + (b[nb] == ' ');
    }
    return 0;
}
