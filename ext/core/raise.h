/* SPDX-License-Identifier: Apache-2.0
 *
 * raise.h - raises the pending requests of this rank.
 */
#pragma once

#include "core/base.h"

void hc__raise_all(hc__set *);
void hc__raise_everywhere(hc_engine *);          /* the same in all sets */
void hc__raise_behind(hc__set *, uint32_t name); /* requests that waited for a refusal, which is agreed now */
void hc__raise_again(hc__set *);                 /* L5; the join of this rank follows */
void hc__raise_renamed(hc__set *);               /* L0 */
void hc__flush(hc_engine *, uint64_t ticket);    /* R1. 0: a caller waits for everything */
