// SPDX-License-Identifier: Apache-2.0
//
// agreement.cpp - the real engine of every rank agrees on ResNet-50's gradients, over the simulated network.
//
// fleet.c carries out the first announcement in no simulated time. The next step is simulated; its requests are cached.
#include "c_code.hpp"
#include "machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>


namespace {

struct Message {
    int from;
    std::vector<uint8_t> bytes;
};

struct Agreement {
    Machine &machine;
    resnet50 model{};
    fleet engines{};
    std::vector<int> left;       // requests that have not ended, by rank
    std::vector<double> ended;   // when the last one ended
    uint64_t messages = 0;
    double last_raise = 0;
    int ranks_left = 0;

    Agreement(Machine &m, int fanout) : machine(m) {
        fleet_cost cost{};
        if (resnet50_gradients(&model) < 0 ||
            fleet_open(&engines, m.nodes, m.per_node, fanout, model.requests, RESNET50_GRADIENTS) ||
            fleet_step(&engines, FLEET_IN_ORDER, &cost) || fleet_step(&engines, FLEET_IN_ORDER, &cost))
            throw std::runtime_error(engines.problem ? engines.problem : "this is not ResNet-50");
        left.assign(engines.ranks, RESNET50_GRADIENTS);
        ended.assign(engines.ranks, 0);
        ranks_left = engines.ranks;
    }
    ~Agreement() { fleet_close(&engines); }

    static sg::Mailbox *inbox(int rank) { return sg::Mailbox::by_name("r" + std::to_string(rank)); }

    void step(int rank, hc_event event) {
        const hc_action *actions;
        size_t n;
        std::vector<std::unique_ptr<Message>> out;
        std::vector<int> peers;
        std::vector<uint64_t> batches;
        event.now = ++engines.now;
        if (hc_step(engines.rank[rank].engine, &event, &actions, &n))
            throw std::runtime_error("the engine refused an event");
        for (size_t i = 0; i < n; i++) {
            if (actions[i].kind == HC_AC_SEND) {
                out.emplace_back(new Message{rank, {actions[i].bytes, actions[i].bytes + actions[i].nbytes}});
                peers.push_back(actions[i].peer);
            } else if (actions[i].kind == HC_AC_RUN) {
                batches.push_back(actions[i].batch);
            } else if (actions[i].kind == HC_AC_COMPLETE && --left[rank] == 0) {
                ended[rank] = sg::Engine::get_clock();
                ranks_left--;
            }
        }
        for (size_t i = 0; i < out.size(); i++) {
            const auto nbytes = out[i]->bytes.size() + 32;
            messages++;
            sg::this_actor::sleep_for(machine.taken(rank / machine.per_node, machine.overhead));
            inbox(peers[i])->put_init(out[i].release(), nbytes)->detach();
            hc_event sent{};
            sent.kind = HC_EV_SENT;
            sent.peer = peers[i];
            step(rank, sent);
        }
        for (const uint64_t batch : batches) {
            hc_event done{};
            done.kind = HC_EV_BATCH_DONE;
            done.peer = -1;
            done.batch = batch;
            step(rank, done);
        }
    }

    void raise_all(int rank) {
        hc_request q{};
        q.operation = HC_ALLREDUCE;
        q.reduction = HC_AVERAGE;
        q.memory = HC_MEMORY_HOST;
        q.wire = HC_WIRE_SAME;
        q.root = -1;
        q.prescale = q.postscale = 1;
        for (int i = 0; i < engines.count; i++) {
            const fleet_request &asked = engines.requests[i];
            q.ticket = static_cast<uint64_t>(i) + 1;
            q.name = asked.name;
            q.name_len = static_cast<uint32_t>(strlen(asked.name));
            q.ntensors = asked.ntensors;
            q.tensors = asked.tensors;
            hc_event enqueue{};
            enqueue.kind = HC_EV_ENQUEUE;
            enqueue.peer = -1;
            enqueue.request = &q;
            step(rank, enqueue);
        }
        hc_event flush{};
        flush.kind = HC_EV_FLUSH;
        flush.peer = -1;
        last_raise = std::max(last_raise, sg::Engine::get_clock());
        step(rank, flush);
    }

    void live(int rank, double begin) {
        inbox(rank)->set_receiver(sg::Actor::self()); // messages travel at once, also if this rank is busy
        sg::this_actor::sleep_until(begin);
        raise_all(rank);
        while (left[rank] > 0) {
            const std::unique_ptr<Message> m(inbox(rank)->get<Message>());
            sg::this_actor::sleep_for(machine.taken(rank / machine.per_node, machine.handling));
            hc_event event{};
            event.kind = HC_EV_MESSAGE;
            event.peer = m->from;
            event.bytes = m->bytes.data();
            event.nbytes = m->bytes.size();
            step(rank, event);
        }
    }
};

} // namespace

void simulate_agreement(Machine &machine, const Settings &s) {
    const int fanout = static_cast<int>(s.number("fanout", 16));
    const double skew = s.number("skew", 0), late = s.number("late", 0);
    Agreement all(machine, fanout);
    std::mt19937_64 random(2);
    for (int r = 0; r < all.engines.ranks; r++) {
        double begin = skew > 0 ? std::exponential_distribution<double>(1 / skew)(random) : 0;
        if (r == all.engines.ranks / 2)
            begin += late;
        sg::Actor::create("rank", machine.hosts[r / machine.per_node], [&all, r, begin] { all.live(r, begin); });
    }
    sg::Engine::get_instance()->run();
    if (all.ranks_left)
        throw std::runtime_error("ranks still wait");
    const double last = *std::max_element(all.ended.begin(), all.ended.end());
    std::printf("{\"what\": \"agreement\", \"nodes\": %d, \"ranks\": %d, \"fanout\": %d, \"messages\": %llu, "
                "\"last_raise\": %.9f, \"seconds\": %.9f}\n",
                machine.nodes, all.engines.ranks, fanout, static_cast<unsigned long long>(all.messages), all.last_raise,
                last - all.last_raise);
}
