/* SPDX-License-Identifier: Apache-2.0
 *
 * job.c - state of a job that the threads and languages of a process share: generations, plan numbers, users.
 */
#include "world/job.h"

#include <string.h>

void hc_job_init(hc_job *job) {
    pthread_mutex_init(&job->lock, NULL);
    hc_in_flight_init(&job->in_flight);
    hc_plan_memories_init(&job->plans);
    memset(&job->numbers.sets.free, 0xff, sizeof job->numbers.sets.free);
    job->numbers.sets.free.bits[0] &= ~1ull;
}

/* ---- users ------------------------------------------------------------------------------------------------- */

void hc_job_add_user(hc_job *job, hc_job_user *user) {
    pthread_mutex_lock(&job->lock);
    user->next = job->users;
    job->users = user;
    pthread_mutex_unlock(&job->lock);
}

void hc_job_remove_user(hc_job *job, hc_job_user *user) {
    pthread_mutex_lock(&job->lock);
    for (hc_job_user **at = &job->users; *at; at = &(*at)->next) {
        if (*at == user) {
            *at = user->next;
            break;
        }
    }
    pthread_mutex_unlock(&job->lock);
}

static hc_job_user *next_user(hc_job *job) {
    pthread_mutex_lock(&job->lock);
    hc_job_user *user = job->users;
    if (user)
        job->users = user->next;
    pthread_mutex_unlock(&job->lock);
    return user;
}

void hc_job_end_users(hc_job *job) {
    for (hc_job_user *user; (user = next_user(job));)
        user->ended(user->of); /* it may take the lock */
}

/* ---- process sets ------------------------------------------------------------------------------------------ */

hc_set_numbers hc_job_offer_sets(hc_job *job, int few) {
    hc_set_numbers numbers;
    int left = few;
    pthread_mutex_lock(&job->lock);
    for (int word = 0; word < HC_MAX_SETS / 64; word++) {
        uint64_t free = job->numbers.sets.free.bits[word] & ~job->numbers.sets.offered.bits[word], rest = free;
        for (; few && rest && left > 0; left--)
            rest &= rest - 1;
        numbers.bits[word] = few ? free & ~rest : free;
        job->numbers.sets.offered.bits[word] |= few ? numbers.bits[word] : 0;
    }
    pthread_mutex_unlock(&job->lock);
    return numbers;
}

void hc_job_withdraw_sets(hc_job *job, hc_set_numbers numbers) {
    pthread_mutex_lock(&job->lock);
    for (int word = 0; word < HC_MAX_SETS / 64; word++)
        job->numbers.sets.offered.bits[word] &= ~numbers.bits[word];
    pthread_mutex_unlock(&job->lock);
}

int hc_job_take_set_number(hc_job *job, int number, int shared) {
    uint64_t bit = 1ull << number % 64;
    pthread_mutex_lock(&job->lock);
    int is_free = !shared ||
                  (job->numbers.sets.free.bits[number / 64] & ~job->numbers.sets.offered.bits[number / 64] & bit) != 0;
    if (is_free)
        job->numbers.sets.free.bits[number / 64] &= ~bit;
    pthread_mutex_unlock(&job->lock);
    return is_free;
}

void hc_job_give_set_number_back(hc_job *job, int number) {
    pthread_mutex_lock(&job->lock);
    job->numbers.sets.free.bits[number / 64] |= 1ull << number % 64;
    pthread_mutex_unlock(&job->lock);
}

/* ---- plans ------------------------------------------------------------------------------------------------- */

hc_plans_used hc_job_used(hc_job *job) {
    pthread_mutex_lock(&job->lock);
    hc_plans_used used = job->numbers.plans;
    pthread_mutex_unlock(&job->lock);
    return used;
}

void hc_job_note_generation(hc_job *job, uint32_t generation) {
    pthread_mutex_lock(&job->lock);
    if (generation > job->numbers.plans.generation)
        job->numbers.plans.generation = generation;
    pthread_mutex_unlock(&job->lock);
}

void hc_job_take_plan_number(hc_job *job, int number) {
    if (number < 0)
        return;
    pthread_mutex_lock(&job->lock);
    job->numbers.plans.numbers[number / 64] |= 1ull << number % 64;
    pthread_mutex_unlock(&job->lock);
}

void hc_job_give_plan_number_back(hc_job *job, int number) {
    if (number < 0)
        return;
    pthread_mutex_lock(&job->lock);
    job->numbers.plans.numbers[number / 64] &= ~(1ull << number % 64);
    pthread_mutex_unlock(&job->lock);
}
