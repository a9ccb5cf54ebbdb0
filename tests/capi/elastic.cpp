// SPDX-License-Identifier: Apache-2.0
//
// elastic.cpp - an elastic job in C++: worker 1 of three is killed, and worker 3, which comes in for it, leaves.
#include "hpccoll.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

constexpr std::int64_t STEPS = 30;

struct State {
    std::int64_t step = 0;
    double total = 0;
};

static void take_newest(hpccoll::World &world, State &state) {
    std::int64_t newest[] = {state.step, world.rank()};
    world.allreduce(std::span<std::int64_t>(newest), HPCCOLL_MAXLOC);
    world.broadcast(std::span<std::uint8_t>(reinterpret_cast<std::uint8_t *>(&state), sizeof state),
                    static_cast<int>(newest[1]));
}

// At step 10 all wait for the third rank, at step 15 for its end.
static void make_step(hpccoll::World &world, State &state) {
    double mean = world.allreduce(static_cast<double>(state.step), HPCCOLL_AVERAGE);
    if (state.step == (world.size() < 3 ? 10 : 15)) {
        usleep(5000);
    } else {
        state.total += mean;
        state.step++;
    }
}

// True: the program has come to its end; false: the ranks change.
static bool make_steps(hpccoll::World &world, State &state) {
    const int worker = std::atoi(std::getenv("_HPCCOLL_WORKER"));
    bool leaves = worker == 3;
    take_newest(world, state);
    while (state.step < STEPS) {
        if (worker == 1 && state.step == 5)
            raise(SIGKILL);
        if (leaves && state.step == 15)
            world.leave();
        leaves = leaves && state.step != 15;
        make_step(world, state);
        if (world.changes())
            return false;
    }
    return true;
}

int main() {
    State state;
    for (bool over = false; !over;) {
        hpccoll::World world;
        try {
            world = hpccoll::World::from_launcher("verbose=0");
            over = make_steps(world, state);
        } catch (const hpccoll::Error &error) {
            if (error.status() == HPCCOLL_SHUT_DOWN) {
                std::printf("released: %s\n", error.what());
                return 0;
            }
            if (!world && error.status() == HPCCOLL_PEER_LOST) // while the World was made
                continue;
            if (!world || world.lost_ranks().empty())
                throw;
            for (int rank : world.lost_ranks())
                std::printf("lost rank %d of %d\n", rank, world.size());
        }
    }
    const bool fine = state.total == STEPS * (STEPS - 1) / 2;
    std::printf("%s\n", fine ? "fine" : "the sum is wrong");
    return fine ? 0 : 1;
}
