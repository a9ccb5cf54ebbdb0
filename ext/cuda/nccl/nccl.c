/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl.c - finds NCCL and fills its table.
 */
#include "cuda/nccl/nccl.h"

#include <stdio.h>
#include <string.h>

static const hc_symbol symbols[] = {{"ncclGetErrorString", offsetof(hc_nccl, error_text), 1},
                                    {"ncclGetLastError", offsetof(hc_nccl, last_error), 0},
#define X(member, name, arguments) {name, offsetof(hc_nccl, member), 1},
                                    HC_NCCL_FUNCTIONS(X)
#undef X
};
#define NSYMBOLS ((int)(sizeof symbols / sizeof *symbols))

int hc_nccl_open(hc_nccl *nccl, const char *named, const char *const *files) {
    hc_search search = {.what = "NCCL 2.14 or later",
                        .knob = "HPCCOLL_NCCL_LIBRARY",
                        .named = named,
                        .files = files,
                        .sonames = (const char *const[]){"libnccl.so.2", NULL},
                        .remedy = "`pip install nvidia-nccl-cu12` (or -cu13, as the driver)"};
    int status = hc_library_open(&nccl->library, &search, symbols, NSYMBOLS, nccl);
    if (status < 0)
        return status;
    int failed = nccl->get_version(&nccl->version);
    return failed ? hc_library_refuse(&nccl->library, search.remedy, "asking the version of %s: %s (%d)",
                                      nccl->library.path, nccl->error_text(failed), failed)
                  : HC_OK;
}

void hc_nccl_version_text(int version, char *text, size_t room) {
    snprintf(text, room, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}
