/* SPDX-License-Identifier: Apache-2.0
 *
 * pmix.c - a PMIx client whose server gives ANSWER (a pmix_status_t) when it is asked for the size of this node.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct pmix_proc {
    char namespace[256];
    uint32_t rank;
} pmix_proc;

int PMIx_Init(pmix_proc *me, void *info, size_t ninfo);
int PMIx_Get(const pmix_proc *of, const char *key, const void *info, size_t ninfo, void **value);
int PMIx_Finalize(const void *info, size_t ninfo);

int PMIx_Init(pmix_proc *me, void *info, size_t ninfo) {
    (void)info;
    (void)ninfo;
    strcpy(me->namespace, "slurm.pmix.1.0");
    me->rank = 2;
    return 0;
}

int PMIx_Get(const pmix_proc *of, const char *key, const void *info, size_t ninfo, void **value) {
    (void)info;
    (void)value;
    int asked = !strcmp(key, "pmix.local.size") && of->rank == UINT32_MAX - 1 && ninfo == 0;
    return asked && !strcmp(of->namespace, "slurm.pmix.1.0") ? ANSWER : -1;
}

int PMIx_Finalize(const void *info, size_t ninfo) {
    (void)info;
    (void)ninfo;
    return 0;
}
