/* SPDX-License-Identifier: Apache-2.0
 *
 * scenarios.h - the scenarios, by the files in which they are.
 */
#ifndef MM_SCENARIOS_H
#define MM_SCENARIOS_H

#include "memory_model/explorer.h"

extern const mm_scenario mm_ring, mm_whole_messages, mm_cells_of_two, mm_cells_of_three; /* rings.c */
extern const mm_scenario mm_small_of_two, mm_small_of_three, mm_small_asleep;            /* nodes.c */
extern const mm_scenario mm_chunks_of_two, mm_chunks_of_three, mm_chunks_asleep;
extern const mm_scenario mm_rails_of_two, mm_rails_of_three, mm_turns_of_two, mm_turns_of_three;
extern const mm_scenario mm_broadcasts_of_two, mm_broadcasts_of_three, mm_broadcasts_in_turns;
extern const mm_scenario mm_shortcut_of_two, mm_shortcut_of_three; /* shortcuts.c */
extern const mm_scenario mm_shortcuts_off_of_two, mm_shortcuts_off_of_three;
extern const mm_scenario mm_shortcut_of_groups, mm_shortcuts_off_of_groups;
extern const mm_scenario mm_votes_of_two, mm_votes_of_three;
extern const mm_scenario mm_doorbells_of_two, mm_doorbells_of_three, mm_one_sleeper; /* doorbells.c */
extern const mm_scenario mm_long_messages, mm_answers, mm_lives, mm_withdrawn;
extern const mm_scenario mm_plan_of_two, mm_plan_of_three, mm_plan_from_one; /* flats.c */
extern const mm_scenario mm_plan_to_one, mm_plan_asleep;
extern const mm_scenario mm_rounds_of_two, mm_rounds_of_three, mm_leaving; /* nodes.c */
extern const mm_scenario mm_direct_of_two, mm_direct_of_three;
extern const mm_scenario mm_local_net, mm_local_net_of_three, mm_local_cancel; /* nets.c */
extern const mm_scenario mm_trace_ring, mm_tuning;                             /* traces.c */
extern const mm_scenario mm_callers_of_two, mm_callers_of_three;               /* loops.c */
extern const mm_scenario mm_counting_beside, mm_background, mm_polls, mm_callers_and_thread, mm_completions;

#endif
