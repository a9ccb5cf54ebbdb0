// SPDX-License-Identifier: Apache-2.0
//
// main.cpp - one simulated run: simulate what=agreement|allreduce|broadcast|reduce|vote machine=summit nodes=64 ... One
// line of JSON.
#include "machine.hpp"

#include <cstdio>
#include <stdexcept>

int main(int argc, char **argv) {
    static char quiet[] = "--log=root.thresh:warning";
    char *words[] = {argv[0], quiet, nullptr};
    int count = 2;
    sg::Engine engine(&count, words);
    for (const char *setting : {"network/model:CM02", "network/crosstraffic:0", "contexts/stack-size:64",
                                "contexts/guard-size:0"})
        sg::Engine::set_config(setting);
    try {
        const Settings settings(argc, argv);
        sg::Engine::set_config("surf/precision:" + settings.text("precision", "1e-9")); // seconds
        Machine machine(settings);
        const std::string what = settings.text("what", "allreduce");
        if (what == "agreement")
            simulate_agreement(machine, settings);
        else if (what == "vote")
            simulate_vote(machine, settings);
        else
            simulate_allreduce(machine, settings);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "simulate: %s\n", error.what());
        return 1;
    }
    return 0;
}
