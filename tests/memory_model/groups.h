/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.h - included before ext/transport/shm/layout.c: the scenario chooses how many groups of ranks count themselves.
 */
extern int mm_groups;
#define HC__SHORTCUT_GROUPS mm_groups
