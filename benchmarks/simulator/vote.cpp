// SPDX-License-Identifier: Apache-2.0
//
// vote.cpp - the leaders of all nodes vote on a blocking call of few bytes, over the simulated network.
//
// The ranks of each node have come. `radix=2` stands for MPI's recursive doubling: the same messages, two nodes in each
// group, and no work for a message but the processor's overhead.
#include "c_code.hpp"
#include "machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

namespace {

struct Ballot {
    int from;
    uint64_t value;
};

struct Votes {
    Machine &machine;
    const double handling;
    hc__stages split{};
    std::vector<hc_vote> nodes;
    std::vector<double> ended;
    uint64_t messages = 0;

    Votes(Machine &m, int radix, double handling) : machine(m), handling(handling), nodes(m.nodes), ended(m.nodes, -1) {
        hc__splits splits;
        hc__splits_of(m.nodes, 0, &splits);
        const hc__stages *chosen = radix ? in_groups_of(splits, radix) : hc__few_bytes(&splits);
        if (chosen)
            split = *chosen;
        for (int node = 0; node < m.nodes; node++)
            if (hc_vote_new(&nodes[node], chosen ? &split : nullptr, m.nodes, node) < 0)
                throw std::runtime_error("no memory for votes");
    }
    ~Votes() {
        for (hc_vote &vote : nodes)
            hc_vote_free(&vote);
    }

    static const hc__stages *in_groups_of(const hc__splits &splits, int radix) {
        for (int i = 0; i < splits.count; i++)
            if (*std::max_element(splits.stages[i].radix, splits.stages[i].radix + splits.stages[i].depth) == radix)
                return &splits.stages[i];
        throw std::runtime_error("these nodes have no such stages");
    }
    static sg::Mailbox *inbox(int node) { return sg::Mailbox::by_name("n" + std::to_string(node)); }

    void send(int me) {
        hc_vote &vote = nodes[me];
        uint64_t value;
        std::memcpy(&value, vote.ballot.value, sizeof value);
        for (int i = 0; i < vote.npartners; i++) {
            if (vote.partners[i].sends_in != vote.at)
                continue;
            messages++;
            sg::this_actor::sleep_for(machine.taken(me, machine.overhead));
            inbox(vote.partners[i].node)->put_init(new Ballot{me, value}, 120)->detach();
        }
    }

    // Does what is to be done with the votes that are here; false: the call has its result.
    bool look(int me) {
        const hc_ballot *operands[HC_VOTE_OPERANDS];
        hc_vote &vote = nodes[me];
        while (hc_vote_look(&vote) == HC_SHORTCUT_TAKEN) {
            uint64_t sum = 0, value;
            for (int i = 0, n = hc_vote_operands(&vote, operands); i < n; i++) {
                std::memcpy(&value, operands[i]->value, sizeof value);
                sum += value;
            }
            std::memcpy(vote.ballot.value, &sum, sizeof sum);
            if (!hc_vote_advance(&vote))
                return false;
            send(me);
        }
        return true;
    }

    void live(int me) {
        const uint64_t one = 1;
        inbox(me)->set_receiver(sg::Actor::self());
        std::memcpy(hc_vote_cast(&nodes[me], 1, HC_VOTE_YES)->value, &one, sizeof one);
        send(me);
        while (look(me)) {
            const std::unique_ptr<Ballot> ballot(inbox(me)->get<Ballot>());
            sg::this_actor::sleep_for(machine.taken(me, machine.overhead + handling));
            hc_ballot *to = hc_vote_note(&nodes[me], hc_vote_partner_at(&nodes[me], ballot->from), 1, HC_VOTE_YES);
            std::memcpy(to->value, &ballot->value, sizeof ballot->value);
        }
        uint64_t sum;
        std::memcpy(&sum, nodes[me].ballot.value, sizeof sum);
        if (sum != static_cast<uint64_t>(machine.nodes))
            throw std::runtime_error("a vote is missing in the result");
        ended[me] = sg::Engine::get_clock();
    }
};

} // namespace

void simulate_vote(Machine &machine, const Settings &s) {
    const int radix = static_cast<int>(s.number("radix", 0));
    Votes all(machine, radix, radix ? 0 : machine.handling);
    for (int node = 0; node < machine.nodes; node++)
        sg::Actor::create("leader", machine.hosts[node], [&all, node] { all.live(node); });
    sg::Engine::get_instance()->run();
    if (*std::min_element(all.ended.begin(), all.ended.end()) < 0)
        throw std::runtime_error("nodes still wait");
    std::printf("{\"what\": \"vote\", \"nodes\": %d, \"ranks\": %d, \"messages\": %llu, \"seconds\": %.9f}\n",
                machine.nodes, machine.nodes * machine.per_node, static_cast<unsigned long long>(all.messages),
                *std::max_element(all.ended.begin(), all.ended.end()));
}
