// SPDX-License-Identifier: Apache-2.0
//
// stages.cpp - an experiment: an allreduce between nodes in several stages of several members each.
//
// ext/transport has no such algorithm. stages=18,16,16 runs it in place of "direct": 18 neighbours scatter and sum
// their contributions as "direct" does, then 16 members with equal parts, 18 nodes apart, and so on; the results come
// back the other way. The product is the number of nodes, which need not be a power of two. Contributions travel in the
// dtype between nodes, float16 as well, and are rounded once in each stage. order=near begins with the nearest members,
// as "rabenseifner" does; order=far with those that are furthest apart, as it did before decision 56.
#include "c_code.hpp"
#include "machine.hpp"

#include <sstream>
#include <stdexcept>

namespace {

struct Stage {
    int members, distance; // of neighbours in it
};

std::vector<Stage> stages;

struct Block {
    int64_t at, count;
};

int digit(int member, const Stage &stage) {
    return member / stage.distance % stage.members;
}

int with_digit(int member, const Stage &stage, int value) {
    return member + (value - digit(member, stage)) * stage.distance;
}

Block part(const Block &whole, const Stage &stage, int i) {
    const int64_t begin = hc__even_part(whole.count, stage.members, i);
    return {whole.at + begin, hc__even_part(whole.count, stage.members, i + 1) - begin};
}

// Returns the part that a member works on after this number of stages.
Block block(const hc__channel *a, int member, size_t after) {
    Block found{0, a->count};
    for (size_t s = 0; s < after; s++)
        found = part(found, stages[s], digit(member, stages[s]));
    return found;
}

void add_up(hc__channel *a, size_t stage) {
    const Block mine = block(a, a->team->me, stage + 1);
    const std::vector<const void *> from(stages[stage].members, a->scratch);
    if (mine.count > 0)
        hc__add_up(a, a->work, from.data(), stages[stage].members, mine.count, stage + 1 == stages.size());
}

// Calls `act` for the other members of a stage. Each member begins after itself, so that not all send to one at once.
template <class Function> int for_others(hc__channel *a, const Stage &stage, Function act) {
    int status = HC_OK;
    for (int s = 1; s < stage.members && status >= 0; s++)
        status = act(with_digit(a->team->me, stage, (digit(a->team->me, stage) + s) % stage.members));
    return status;
}

int scatter(hc__channel *a, size_t stage) {
    const Block before = block(a, a->team->me, stage), mine = block(a, a->team->me, stage + 1);
    int status = for_others(a, stages[stage], [&](int q) { return hc__receive_scratch(a, q, 0, mine.count); });
    return status < 0 ? status
                      : for_others(
                            a, stages[stage],
                            [&](int q) {
                                const Block theirs = part(before, stages[stage], digit(q, stages[stage]));
                                return hc__send_part(a, q, theirs.at, theirs.count);
                            });
}

int gather(hc__channel *a, size_t stage) {
    const Block mine = block(a, a->team->me, stage + 1);
    int status = for_others(a, stages[stage], [&](int q) {
        const Block theirs = block(a, q, stage + 1);
        return hc__receive_part(a, q, theirs.at, theirs.count);
    });
    return status < 0 ? status
                      : for_others(a, stages[stage], [&](int q) { return hc__send_part(a, q, mine.at, mine.count); });
}

} // namespace

extern "C" {
int hc__round_direct_of_c(hc__channel *a, int32_t round);

int hc__round_direct(hc__channel *a, int32_t round) {
    if (stages.empty())
        return hc__round_direct_of_c(a, round);
    const size_t now = static_cast<size_t>(round), all = stages.size();
    if (now == 2 * all)
        return HC_DONE;
    if (now > 0 && now <= all)
        add_up(a, now - 1);
    const int status = now < all ? scatter(a, now) : gather(a, 2 * all - 1 - now);
    return status < 0 ? status : HC_MOVED;
}
}

void set_stages(const std::string &members, const std::string &order, int nodes) {
    stages.clear();
    std::istringstream words(members);
    int product = 1;
    for (std::string word; std::getline(words, word, ',');) {
        const int count = std::stoi(word);
        stages.push_back({count, product});
        product *= count;
    }
    if (!stages.empty() && product != nodes)
        throw std::invalid_argument("stages=" + members + ": their product is not nodes=" + std::to_string(nodes));
    if (order == "far") {
        for (Stage &stage : stages)
            stage.distance = product /= stage.members;
    } else if (order != "near") {
        throw std::invalid_argument("order=" + order + ": near or far");
    }
}
