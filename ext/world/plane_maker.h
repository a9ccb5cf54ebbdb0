/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_maker.h - makes the data planes of a job's sets for device memory, by a function that knows its devices.
 */
#pragma once

#include "loop/loop.h"
#include "transport/hierarchy/hierarchy.h"

/* What makes these planes: Python's extension for CUDA, or this library's. */
typedef struct hc_plane_source {
    /* As make() of hc_plane_maker; `parts` lives until `ended`. [driver] */
    int (*plane)(void *of, const hc_plane_parts *parts, hc_data **, char *text);
    void (*begun)(void *of); /* from now on a set may call the others */
    void (*ended)(void *of, uint32_t set);
    void *of;
} hc_plane_source;

/* Makes the maker of a set, whose host's plane has this place. OK or NO_MEMORY. */
int hc_plane_maker_new(const hc_plane_source *, const hc_hierarchy_config *place, hc_data *host, hc_net *,
                       hc_plane_maker **);
