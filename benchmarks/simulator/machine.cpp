// SPDX-License-Identifier: Apache-2.0
//
// machine.cpp - Summit's fat tree and Frontier's dragonfly, as large as the job.
#include "machine.hpp"

#include <algorithm>
#include <stdexcept>

Settings::Settings(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i];
        const auto equals = word.find('=');
        if (equals == std::string::npos)
            throw std::invalid_argument(word + ": name=value");
        given[word.substr(0, equals)] = word.substr(equals + 1);
    }
}

double Settings::number(const std::string &name, double otherwise) const {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : std::stod(found->second);
}

std::string Settings::text(const std::string &name, const std::string &otherwise) const {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : found->second;
}

Machine::Machine(const Settings &s) {
    const std::string kind = s.text("machine", "summit");
    if (kind == "frontier") { // 8 GCDs and 4 adapters of 25 GB/s per node
        per_node = 8;
        port = 25e9;
        injection = 100e9;
    }
    nodes = static_cast<int>(s.number("nodes", 1));
    per_node = static_cast<int>(s.number("per_node", per_node));
    noise = s.number("noise", 0);
    slow_node = static_cast<int>(s.number("slow_node", -1));
    slow_link = static_cast<int>(s.number("slow_link", -1));
    slowness = s.number("slowness", 1);
    port = s.number("port", port);
    injection = s.number("injection", injection);
    hop = s.number("hop", hop);
    overhead = s.number("overhead", overhead);
    handling = s.number("handling", handling);
    node_rate = s.number("node_rate", node_rate);
    sum_rate = s.number("sum_rate", sum_rate);
    build(kind);
    if (s.text("order", "network") == "random") // node i is any host, as if the scheduler's list had no order
        std::shuffle(hosts.begin(), hosts.end(), std::mt19937_64(3));
    const double driven = std::min(injection, s.number("rails", per_node) * port);
    for (int node = 0; node < nodes && nodes > 1; node++)
        if (driven < injection || node == slow_link)
            limit(node, node == slow_link ? driven / slowness : driven);
}

void Machine::limit(int node, double bandwidth) {
    sg::Host *here = hosts[node], *there = hosts[node ? 0 : 1];
    std::vector<sg::Link *> out, in;
    double latency = 0;
    here->route_to(there, out, &latency);
    there->route_to(here, in, &latency);
    out.front()->set_bandwidth(bandwidth);
    in.back()->set_bandwidth(bandwidth);
}

double Machine::taken(int node, double seconds) {
    if (noise > 0)
        seconds *= std::lognormal_distribution<double>(0, noise)(random);
    return node == slow_node ? seconds * slowness : seconds;
}

void Machine::build(const std::string &kind) {
    sg::NetZone *world = sg::create_full_zone("world");
    const sg::ClusterCallbacks callbacks(
        [this](sg::NetZone *zone, const std::vector<unsigned long> &, unsigned long id) {
            sg::Host *host = zone->create_host("node" + std::to_string(id), 1e9);
            hosts.push_back(host);
            return std::make_pair(host->get_netpoint(), static_cast<simgrid::kernel::routing::NetPoint *>(nullptr));
        },
        [this](sg::NetZone *zone, const std::vector<unsigned long> &, unsigned long id) {
            return zone->create_link("inside" + std::to_string(id), node_rate)
                ->set_latency(inside)
                ->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)
                ->seal();
        },
        nullptr);
    const auto duplex = sg::Link::SharingPolicy::SPLITDUPLEX;
    sg::NetZone *zone;
    if (kind == "summit") { // 18 nodes per leaf switch, 18 director switches above: as many links up as down
        const auto leaves = static_cast<unsigned>(std::max(2, (nodes + 17) / 18));
        zone = sg::create_fatTree_zone(kind, world, {2, {18, leaves}, {1, 18}, {1, 1}}, callbacks, injection, hop, duplex);
    } else if (kind == "frontier") { // groups of 32 switches that are all connected, 4 nodes each
        const auto groups = static_cast<unsigned>(std::max(2, (nodes + 127) / 128));
        zone = sg::create_dragonfly_zone(kind, world, {{groups, 1}, {1, 1}, {32, 1}, 4}, callbacks, injection, hop,
                                         duplex);
    } else {
        throw std::invalid_argument("machine=" + kind + ": summit or frontier");
    }
    zone->seal();
    world->seal();
}
