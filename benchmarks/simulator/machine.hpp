// SPDX-License-Identifier: Apache-2.0
//
// machine.hpp - the simulated machines, and the settings of a run.
#ifndef MACHINE_HPP
#define MACHINE_HPP

#include <map>
#include <random>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

// The settings of a run: name=value on the command line.
class Settings {
    std::map<std::string, std::string> given;

  public:
    Settings(int argc, char **argv);
    double number(const std::string &name, double otherwise) const;
    std::string text(const std::string &name, const std::string &otherwise) const;
};

// Seconds and bytes per second. Each has a source in docs/scaling-to-summit.md.
struct Machine {
    int nodes = 1, per_node = 6;
    double port = 11.5e9;     // of one adapter of a node, in one direction
    double injection = 23e9;  // of all of them
    double hop = 2e-7;        // latency of a link; four between nodes of different switches
    double overhead = 3e-7;   // of a processor for a message, at each end
    double inside = 3e-7;     // latency between two ranks of a node
    double handling = 8e-7;   // of the engine for a control message: hpccoll bench control
    double node_rate = 50e9;  // bytes that a rank packs, sums or copies out of a node's chunk
    double sum_rate = 100e9;  // bytes that the sums between nodes read
    double noise = 0;         // standard deviation of the logarithm of a processor's time
    int slow_node = -1;       // its processors take `slowness` times as long
    int slow_link = -1;       // the link of this node has 1 / `slowness` of the bandwidth
    double slowness = 1;
    std::vector<sg::Host *> hosts;

    explicit Machine(const Settings &);
    // Returns the time that `seconds` of processor time take on a node.
    double taken(int node, double seconds);

  private:
    std::mt19937_64 random{1};
    void build(const std::string &kind);
    void limit(int node, double bandwidth); // of a node's own link, in each direction
};

void simulate_agreement(Machine &, const Settings &);
void simulate_allreduce(Machine &, const Settings &);
void simulate_vote(Machine &, const Settings &);

#endif
