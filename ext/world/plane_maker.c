/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_maker.c - see plane_maker.h.
 */
#include "world/plane_maker.h"

#include <stdlib.h>
#include <string.h>

typedef struct maker {
    hc_plane_maker base;
    hc_plane_source source; /* copied */
    hc_plane_parts parts;
    int32_t ranks[]; /* members and nodes, to which parts.place points; then its algorithm */
} maker;

static int make(hc_plane_maker *base, int memory, hc_data **data, char *text) {
    const maker *m = (const maker *)base;
    (void)memory; /* there is one kind beside the host's */
    return m->source.plane(m->source.of, &m->parts, data, text);
}

static void end(hc_plane_maker *base) {
    maker *m = (maker *)base;
    m->source.ended(m->source.of, m->parts.place.set);
    free(m);
}

int hc_plane_maker_new(const hc_plane_source *source, const hc_hierarchy_config *place, hc_data *host, hc_net *net,
                       hc_plane_maker **out) {
    size_t n = (size_t)place->set_size, bytes = strlen(place->algorithm) + 1;
    maker *m = malloc(sizeof *m + 2 * n * sizeof *m->ranks + bytes);
    if (!m)
        return HC_NO_MEMORY;
    *m = (maker){.base = {make, end}, .source = *source};
    memcpy(m->ranks, place->members, n * sizeof *m->ranks);
    memcpy(m->ranks + n, place->node_of, n * sizeof *m->ranks);
    m->parts = (hc_plane_parts){.version = HC_PLANE_VERSION,
                                .place = *place,
                                .host = host,
                                .net = net,
                                .new_hierarchy = hc_hierarchy_new,
                                .neutral = hc_host_neutral};
    m->parts.place.members = m->ranks;
    m->parts.place.node_of = m->ranks + n;
    m->parts.place.algorithm = memcpy(m->ranks + 2 * n, place->algorithm, bytes);
    source->begun(source->of);
    *out = &m->base;
    return HC_OK;
}
