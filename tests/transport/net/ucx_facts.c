/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_facts.c - prints sizes, places and constants of UCX's interface, as we declare it or (-DTHEIRS) as ucp.h does.
 */
#ifdef THEIRS
#include <ucp/api/ucp.h>
#include <ucs/type/status.h>
#else
#include "transport/net/ucx_api.h"
#endif
#include "transport/net/ucx_calls.h"

#ifdef THEIRS
#define DECLARED(result, name, arguments) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) arguments), "the type of " #name);
HC_UCX_CALLS(DECLARED)
#endif

int main(void) {
#define PRINT(what, value) printf("%s %lld\n", what, (long long)(value));
    HC_UCX_FACTS(PRINT)
    return 0;
}
