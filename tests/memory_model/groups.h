/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.h - included before ext/transport/shm/layout.c: the scenario chooses the number of groups of ranks.
 */
extern int mm_groups;
#define HC__SHORTCUT_GROUPS mm_groups
