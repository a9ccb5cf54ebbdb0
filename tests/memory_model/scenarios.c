/* SPDX-License-Identifier: Apache-2.0
 *
 * scenarios.c - the list of scenarios.
 */
#include "memory_model/scenarios.h"

const mm_scenario *const mm_scenarios[] = {
    &mm_ring,
    &mm_whole_messages,
    &mm_cells_of_two,
    &mm_cells_of_three,
    &mm_small_of_two,
    &mm_small_of_three,
    &mm_small_asleep,
    &mm_chunks_of_two,
    &mm_chunks_of_three,
    &mm_chunks_asleep,
    &mm_rails_of_two,
    &mm_rails_of_three,
    &mm_shortcut_of_two,
    &mm_shortcut_of_three,
    &mm_shortcuts_off_of_two,
    &mm_shortcuts_off_of_three,
    &mm_doorbells_of_two,
    &mm_doorbells_of_three,
    &mm_one_sleeper,
    &mm_long_messages,
    &mm_answers,
    &mm_lives,
    &mm_plan_of_two,
    &mm_plan_of_three,
    &mm_plan_from_one,
    &mm_plan_to_one,
    &mm_plan_asleep,
    &mm_rounds_of_two,
    &mm_rounds_of_three,
    &mm_leaving,
    &mm_withdrawn,
    &mm_local_net,
    &mm_local_net_of_three,
    &mm_local_cancel,
    NULL,
};
