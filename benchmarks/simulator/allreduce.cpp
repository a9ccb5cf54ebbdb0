// SPDX-License-Identifier: Apache-2.0
//
// allreduce.cpp - an allreduce, a reduce or a broadcast: the real hierarchy and the real algorithms of every node, over
// the simulated network. In a broadcast a node is one rank, whose array the net reads and writes.
//
// If a chunk is cut into rails, an actor is a node: all rails do the same at the same time, so one rail represents
// them, and its messages have the bytes of all rails. If ranks take turns, an actor is a rank. The C code of
// ext/transport decides what is sent, when, and in which chunks. The net, the node and the arithmetic below it are
// replaced by code that only takes the simulated time. No data is moved.
#include "c_code.hpp"
#include "machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <sys/mman.h>


extern "C" {
int64_t hc_node_chunk_bytes(int32_t) { // the settings give the size of a chunk
    return int64_t{1} << 30;
}

// stages=16,16,18 leaves no other split but the one of all nodes. The linker's --wrap puts this in the way.
static std::vector<int32_t> asked_radices;
void __real_hc__splits_of(int32_t n, int32_t group, hc__splits *splits);
void __wrap_hc__splits_of(int32_t n, int32_t group, hc__splits *splits) {
    __real_hc__splits_of(n, group, splits);
    if (asked_radices.empty())
        return;
    hc__stages stages{};
    int64_t product = 1;
    for (int32_t radix : asked_radices) {
        stages.radix[stages.depth++] = radix;
        product *= radix;
    }
    if (product != n)
        throw std::invalid_argument("stages: their product is " + std::to_string(product) + ", not nodes=" +
                                    std::to_string(n));
    splits->stages[1] = stages;
    splits->count = 2;
}

// form=tree, and form=scattered of a broadcast or form=stages of a reduce, are the ways between nodes; otherwise the
// model chooses.
static std::string asked_form;
const hc__stages *__real_hc__broadcast_stages(const hc__net_model *, const hc__splits *, int64_t, int64_t);
const hc__stages *__wrap_hc__broadcast_stages(const hc__net_model *model, const hc__splits *splits, int64_t bytes,
                                              int64_t most) {
    if (asked_form == "tree")
        return nullptr;
    return asked_form == "scattered" ? hc__choose_broadcast(model, splits, bytes).stages
                                     : __real_hc__broadcast_stages(model, splits, bytes, most);
}

const hc__stages *__real_hc__reduce_stages(const hc__net_model *, const hc__splits *, const hc__sum *, int64_t, int64_t);
const hc__stages *__wrap_hc__reduce_stages(const hc__net_model *model, const hc__splits *splits, const hc__sum *sum,
                                           int64_t segment, int64_t most) {
    if (asked_form == "tree")
        return nullptr;
    return asked_form == "stages" ? hc__choose_reduce(model, splits, sum).stages
                                  : __real_hc__reduce_stages(model, splits, sum, segment, most);
}

// All ranks share the arrays of one placement: those of 27,648 ranks would take 10 GB.
int __real_hc__placement_new(const hc_hierarchy_config *config, hc__placement *placement);
int __wrap_hc__placement_new(const hc_hierarchy_config *config, hc__placement *placement) {
    static hc__placement shared;
    const int status = shared.size ? HC_OK : __real_hc__placement_new(config, &shared);
    *placement = shared;
    placement->rank = config->set_rank;
    placement->node = config->node_of[config->set_rank];
    placement->local_rank = config->set_rank - shared.first[placement->node];
    return status;
}
void __wrap_hc__placement_free(hc__placement *) {
}
}

struct hc_net_request {
    sg::CommPtr comm;
    size_t bytes;
    int32_t peer;
    bool receives;
};

namespace {

struct Shape { // equal on all nodes
    int actors; // per node
    int rails;  // that an actor represents
    int size, wire_size;
    int64_t count, shard, chunks;
    int slots, depth, group;
    hc_operation operation;
    int root; // the actor that is the root, or -1
};

struct Node {
    hc_net net{};     // first: the C code knows this by its base
    hc_node node{};
    hc_arithmetic arithmetic{};
    Machine *machine = nullptr;
    const Shape *shape = nullptr;
    int me = 0, host = 0;
    std::vector<Node *> near; // the actors of this node, by local rank
    hc_rails rails{};
    int64_t packed = 0, reduced = 0, spread = 0; // chunks that have passed
    int64_t published = 0;                       // one more than the newest chunk of mine
    bool share_done = false;
    sg::CommPtr wakes; // another actor of this node has moved
    bool sleeps = false;
    uint64_t news = 0; // moves of the others
    std::vector<hc_net_request *> pending;
    uint64_t messages = 0;
    double ended = 0;
};

void *memory; // stands for the data; never accessed
constexpr size_t MEMORY = size_t{1} << 40;

Node *of_net(hc_net *net) {
    return reinterpret_cast<Node *>(net);
}
Node *of_node(hc_node *node) {
    return reinterpret_cast<Node *>(reinterpret_cast<char *>(node) - offsetof(Node, node));
}
Node *of_arithmetic(hc_arithmetic *a) {
    return reinterpret_cast<Node *>(reinterpret_cast<char *>(a) - offsetof(Node, arithmetic));
}

void compute(Node *n, double seconds) {
    sg::this_actor::sleep_for(n->machine->taken(n->host, seconds));
}

// ---- the net ------------------------------------------------------------------------------------------

char something; // the content of every message

sg::Mailbox *waking(const Node *n) {
    return sg::Mailbox::by_name("wake " + std::to_string(n->me));
}

void wake_near(const Node *n) {
    for (Node *other : n->near) {
        other->news += other != n;
        if (other != n && other->sleeps) {
            other->sleeps = false;
            waking(other)->put_init(&something, 1)->detach();
        }
    }
}

sg::Mailbox *between(int from, int to, int tag) {
    return sg::Mailbox::by_name(std::to_string(from) + ">" + std::to_string(to) + "#" + std::to_string(tag));
}

int net_isend(hc_net *net, int32_t peer, int32_t tag, const void *, size_t bytes, hc_net_request **request) {
    Node *n = of_net(net);
    compute(n, n->machine->overhead);
    sg::CommPtr comm = between(n->me, peer, tag)->put_init(&something, bytes * n->shape->rails + 64);
    if (n->shape->actors > 1)
        comm->set_rate(n->machine->port); // a rank has one adapter
    comm->start();
    *request = new hc_net_request{comm, bytes, peer, false};
    n->pending.push_back(*request);
    n->messages++;
    return HC_OK;
}

int net_irecv(hc_net *net, int32_t peer, int32_t tag, void *, size_t room, hc_net_request **request) {
    Node *n = of_net(net);
    static void *ignored;
    *request = new hc_net_request{between(peer, n->me, tag)->get_async<void>(&ignored), room, peer, true};
    n->pending.push_back(*request);
    return HC_OK;
}

int net_test(hc_net *net, hc_net_request **request, size_t *bytes, int32_t *peer) {
    Node *n = of_net(net);
    hc_net_request *r = *request;
    if (!r->comm->test())
        return HC_IDLE;
    if (r->receives)
        compute(n, n->machine->overhead);
    if (bytes)
        *bytes = r->bytes;
    if (peer)
        *peer = r->peer;
    n->pending.erase(std::find(n->pending.begin(), n->pending.end(), r));
    delete r;
    *request = nullptr;
    return HC_DONE;
}

int net_cancel(hc_net *, hc_net_request **) {
    return HC_OK;
}

// ---- the node -----------------------------------------------------------------------------------------

int node_open(hc_node *node, const hc_batch *, const hc_parts *, const hc_rails *rails, int64_t, int64_t *nchunks) {
    Node *n = of_node(node);
    if (rails->takes_turns != (n->shape->actors > 1))
        throw std::invalid_argument("turns: the hierarchy decides otherwise");
    *nchunks = n->shape->chunks;
    n->rails = *rails;
    return HC_OK;
}

int node_depth(hc_node *node) {
    return of_node(node)->shape->depth;
}

int64_t elements(const Node *n, int64_t chunk) {
    return std::min(n->shape->shard, n->shape->count - chunk * n->shape->shard);
}

void touch(Node *n, int64_t chunk, double times) {
    const double bytes = static_cast<double>(elements(n, chunk)) * n->shape->rails * n->shape->size;
    compute(n, bytes * times / n->machine->node_rate);
}

bool all_have(const Node *n, int64_t Node::*passed, int64_t chunks) {
    return std::all_of(n->near.begin(), n->near.end(), [=](const Node *other) { return other->*passed >= chunks; });
}

// A rank packs the chunk except its own share.
bool pack_next(Node *n, int64_t spread) {
    const double g = n->machine->per_node;
    if (n->packed == n->shape->chunks || n->packed >= spread + n->shape->depth ||
        !all_have(n, &Node::reduced, n->packed + 1 - n->shape->slots))
        return false;
    touch(n, n->packed, 1 - 1 / g);
    n->packed++;
    wake_near(n);
    return true;
}

// It reads all ranks' parts of its share. As in ext/transport/shm/allreduce.c, it packs the next chunk while others are
// late.
int node_reduce(hc_node *node, int64_t chunk) {
    Node *n = of_node(node);
    if (n->shape->operation == HC_BROADCAST)
        return HC_DONE;
    if (n->near.size() == 1) {
        touch(n, chunk, 2 - 1.0 / n->machine->per_node);
        return HC_DONE;
    }
    const bool first = n->packed == chunk;
    if (first && !pack_next(n, n->spread))
        return HC_IDLE;
    if (!n->share_done) {
        if (!all_have(n, &Node::packed, chunk + 1))
            return first || pack_next(n, n->spread) ? HC_MOVED : HC_IDLE;
        touch(n, chunk, 1);
        n->reduced = chunk + 1;
        n->share_done = true;
        wake_near(n);
    }
    if (hc_rail_driven(&n->rails, node->local_rank, chunk) >= 0 && !all_have(n, &Node::reduced, chunk + 1))
        return pack_next(n, n->spread) ? HC_MOVED : HC_IDLE;
    n->share_done = false;
    return HC_DONE;
}

int node_shard(hc_node *node, int64_t chunk, void **data, int64_t *bounds) {
    *data = memory;
    bounds[0] = 0;
    bounds[1] = elements(of_node(node), chunk);
    return HC_DONE;
}

int node_publish(hc_node *node, int64_t chunk) {
    Node *n = of_node(node);
    n->published = chunk + 1;
    wake_near(n);
    return HC_OK;
}

int node_spread(hc_node *node, int64_t chunk) {
    Node *n = of_node(node);
    if (n->near[chunk % n->shape->actors]->published <= chunk)
        return HC_IDLE;
    if (n->machine->per_node > 1 && (n->shape->operation == HC_ALLREDUCE || n->me == n->shape->root))
        touch(n, chunk, 1);
    n->spread = chunk + 1;
    return HC_DONE;
}

int node_close(hc_node *) {
    return HC_OK;
}

int node_exchange(hc_node *, const hc_stream_part *, int32_t, const hc_stream_read *, const int64_t *, int32_t) {
    return HC_UNSUPPORTED; // the only rank of its node has nobody to exchange with
}

void node_free(hc_node *) {
}

// ---- sums between nodes -------------------------------------------------------------------------------

void *take(hc_arithmetic *, size_t) {
    return memory;
}

void give(hc_arithmetic *, void *) {
}

int convert(hc_arithmetic *a, void *, int, const void *, int from_dtype, int64_t n) {
    compute(of_arithmetic(a), static_cast<double>(n) * hc_dtype_size(from_dtype) / of_arithmetic(a)->machine->sum_rate);
    return HC_OK;
}

int sum(hc_arithmetic *a, void *, const void *const *, int n_from, int dtype, int, int64_t n, double) {
    const double bytes = static_cast<double>(n) * n_from * hc_dtype_size(dtype);
    compute(of_arithmetic(a), bytes / of_arithmetic(a)->machine->sum_rate);
    return HC_OK;
}

int has_ended(hc_arithmetic *, uint64_t) {
    return HC_DONE;
}

// ---- a run --------------------------------------------------------------------------------------------

hc_net_ops net_ops;
hc_node_ops node_ops;
hc_arithmetic_ops arithmetic_ops;

void fill_operations() {
    net_ops.name = "simulated";
    net_ops.isend = net_isend;
    net_ops.irecv = net_irecv;
    net_ops.test = net_test;
    net_ops.cancel = net_cancel;
    node_ops.name = "simulated";
    node_ops.takes_turns = 1;
    node_ops.open = node_open;
    node_ops.depth = node_depth;
    node_ops.reduce = node_reduce;
    node_ops.shard = node_shard;
    node_ops.publish = node_publish;
    node_ops.spread = node_spread;
    node_ops.close = node_close;
    node_ops.exchange = node_exchange;
    node_ops.free = node_free;
    arithmetic_ops.alloc = take;
    arithmetic_ops.release = give;
    arithmetic_ops.convert = convert;
    arithmetic_ops.reduce = sum;
    arithmetic_ops.ended = has_ended;
    memory = mmap(nullptr, MEMORY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        throw std::runtime_error("no address space");
}

void wait_for_any(Node *n) {
    std::vector<sg::CommPtr> waiting;
    if (n->shape->actors > 1) {
        static void *ignored;
        if (!n->wakes)
            n->wakes = waking(n)->get_async<void>(&ignored);
        n->sleeps = true;
        waiting.push_back(n->wakes);
    }
    for (const hc_net_request *r : n->pending)
        waiting.push_back(r->comm);
    if (sg::Comm::wait_any(waiting) == 0 && n->wakes)
        n->wakes = nullptr;
}

// The numbers of all actors, and their nodes.
struct Places {
    std::vector<int32_t> ranks, nodes;
};

void live(Node *n, const Places *places, int dtype, int wire, const char *algorithm) {
    hc_hierarchy_config config{};
    config.set_rank = n->me;
    config.set_size = static_cast<int32_t>(places->ranks.size());
    config.members = places->ranks.data();
    config.node_of = places->nodes.data();
    config.group = n->shape->group;
    config.rails = n->shape->actors;
    config.algorithm = algorithm;
    config.arithmetic = &n->arithmetic;
    config.chunk_bytes = n->shape->shard * n->shape->size;
    hc_data *data;
    if (hc_hierarchy_new(&config, &n->node, &n->net, &data) < 0)
        throw std::runtime_error("no hierarchy");
    hc_piece piece{};
    piece.in = piece.out = memory;
    piece.count = n->shape->count;
    piece.scale = 1;
    piece.row = 1;
    hc_batch batch{};
    batch.operation = static_cast<uint8_t>(n->shape->operation);
    batch.reduction = HC_SUM;
    batch.dtype = static_cast<uint8_t>(dtype);
    batch.wire_dtype = static_cast<uint8_t>(wire);
    batch.root = n->shape->root;
    batch.divisor = 1;
    batch.count = n->shape->count;
    batch.npieces = 1;
    batch.pieces = &piece;
    int status = data->ops->start(data, &batch);
    uint64_t known = n->news;
    while (status >= 0 && (status = data->ops->test(data)) != HC_DONE) {
        if (status == HC_IDLE && n->news == known)
            wait_for_any(n);
        known = n->news;
    }
    if (status < 0)
        throw std::runtime_error("the operation failed");
    n->ended = sg::Engine::get_clock();
    if (n->wakes)
        n->wakes->cancel();
    data->ops->free(data);
}

} // namespace

void simulate_allreduce(Machine &machine, const Settings &s) {
    const bool half = s.text("dtype", "float32") == "float16";
    Shape shape{};
    shape.size = half ? 2 : 4;
    shape.wire_size = half || s.text("wire", "none") == "fp16" ? 2 : 4;
    const int rails = static_cast<int>(s.number("rails", machine.per_node));
    shape.actors = s.number("turns", 0) > 0 ? rails : 1;
    shape.rails = rails / shape.actors;
    shape.shard = static_cast<int64_t>(s.number("shard", 21846)); // elements
    shape.count = static_cast<int64_t>(s.number("bytes", 1 << 20)) / shape.size / shape.rails;
    shape.shard = std::min(shape.shard, shape.count);
    shape.chunks = (shape.count + shape.shard - 1) / shape.shard;
    shape.depth = static_cast<int>(s.number("depth", 4));
    shape.slots = static_cast<int>(s.number("slots", shape.depth));
    shape.group = static_cast<int>(s.number("group", 0));
    const std::string what = s.text("what", "allreduce");
    shape.operation = what == "broadcast" ? HC_BROADCAST : what == "reduce" ? HC_REDUCE : HC_ALLREDUCE;
    shape.root = shape.operation == HC_ALLREDUCE ? -1 : static_cast<int>(s.number("root", 0));
    if (shape.operation == HC_BROADCAST && machine.per_node > 1)
        throw std::invalid_argument("broadcast: per_node=1");
    asked_form = s.text("form", "auto");
    std::istringstream words(s.text("stages", ""));
    asked_radices.clear();
    for (std::string word; std::getline(words, word, ',');)
        asked_radices.push_back(std::stoi(word));
    const std::string algorithm = s.text("algorithm", asked_radices.empty() ? "auto" : "stages");
    fill_operations();
    Places places;
    std::vector<std::unique_ptr<Node>> all;
    for (int i = 0; i < machine.nodes * shape.actors; i++) {
        all.push_back(std::make_unique<Node>());
        places.ranks.push_back(i);
        places.nodes.push_back(i / shape.actors);
    }
    for (int i = 0; i < machine.nodes * shape.actors; i++) {
        Node *n = all[i].get();
        n->net.ops = &net_ops;
        n->net.rank = i;
        n->net.size = machine.nodes * shape.actors;
        n->net.max_tag = 1 << 20;
        n->node.ops = &node_ops;
        n->node.local_rank = i % shape.actors;
        n->node.local_size = shape.actors;
        n->arithmetic.ops = &arithmetic_ops;
        n->machine = &machine;
        n->shape = &shape;
        n->me = i;
        n->host = i / shape.actors;
        for (int j = 0; j < shape.actors; j++)
            n->near.push_back(all[n->host * shape.actors + j].get());
        sg::Actor::create("node", machine.hosts[n->host], [n, &places, half, &shape, &algorithm] {
            live(n, &places, half ? HC_FLOAT16 : HC_FLOAT32, shape.wire_size == 2 ? HC_FLOAT16 : HC_FLOAT32,
                 algorithm.c_str());
        });
    }
    sg::Engine::get_instance()->run();
    double last = 0;
    uint64_t messages = 0;
    for (const auto &n : all) {
        last = std::max(last, n->ended);
        messages += n->messages;
    }
    std::printf("{\"what\": \"%s\", \"nodes\": %d, \"ranks\": %d, \"bytes\": %lld, \"dtype\": \"%s\", "
                "\"algorithm\": \"%s\", \"rails\": %d, \"chunks\": %lld, \"depth\": %d, \"messages\": %llu, "
                "\"seconds\": %.9f}\n",
                what.c_str(), machine.nodes, machine.nodes * machine.per_node,
                static_cast<long long>(shape.count) * shape.rails * shape.size, half ? "float16" : "float32",
                algorithm.c_str(), rails, static_cast<long long>(shape.chunks), shape.depth,
                static_cast<unsigned long long>(messages), last);
}
