// SPDX-License-Identifier: Apache-2.0
//
// allreduce.cpp - the real hierarchy and the real algorithms of every node, over the simulated network.
//
// An actor is a node. All rails of a node do the same at the same time, so one rail represents them, and its messages
// have the bytes of all rails. The C code of ext/transport decides what is sent, when, and in which chunks. The net,
// the node and the arithmetic below it are replaced by code that only takes the simulated time. No data is moved.
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
}

struct hc_net_request {
    sg::CommPtr comm;
    size_t bytes;
    int32_t peer;
    bool receives;
};

namespace {

struct Shape { // equal on all nodes
    int rails, size, wire_size;
    int64_t count, shard, chunks;
    int depth, group;
};

struct Node {
    hc_net net{};     // first: the C code knows this by its base
    hc_node node{};
    hc_arithmetic arithmetic{};
    Machine *machine = nullptr;
    const Shape *shape = nullptr;
    int me = 0;
    std::vector<hc_net_request *> pending;
    int64_t packed = 0;
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
    sg::this_actor::sleep_for(n->machine->taken(n->me, seconds));
}

// ---- the net ------------------------------------------------------------------------------------------

char something; // the content of every message

sg::Mailbox *between(int from, int to, int tag) {
    return sg::Mailbox::by_name(std::to_string(from) + ">" + std::to_string(to) + "#" + std::to_string(tag));
}

int net_isend(hc_net *net, int32_t peer, int32_t tag, const void *, size_t bytes, hc_net_request **request) {
    Node *n = of_net(net);
    compute(n, n->machine->overhead);
    sg::CommPtr comm = between(n->me, peer, tag)->put_init(&something, bytes * n->shape->rails + 64);
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

int node_open(hc_node *node, const hc_batch *, const hc_parts *, int, int64_t, int64_t *nchunks) {
    Node *n = of_node(node);
    *nchunks = n->shape->chunks;
    n->packed = 0;
    return HC_OK;
}

int node_depth(hc_node *node) {
    return of_node(node)->shape->depth;
}

int64_t elements(const Node *n, int64_t chunk) {
    return std::min(n->shape->shard, n->shape->count - chunk * n->shape->shard);
}

// A rank packs the chunk except its own share, and reads all ranks' parts of its share.
int node_reduce(hc_node *node, int64_t chunk) {
    Node *n = of_node(node);
    const double g = n->machine->per_node;
    const double bytes = static_cast<double>(elements(n, chunk)) * n->shape->rails * n->shape->size;
    compute(n, bytes * (g > 1 ? 2 - 1 / g : 1) / n->machine->node_rate);
    return HC_DONE;
}

int node_shard(hc_node *node, int64_t chunk, void **data, int64_t *bounds) {
    *data = memory;
    bounds[0] = 0;
    bounds[1] = elements(of_node(node), chunk);
    return HC_DONE;
}

int node_publish(hc_node *, int64_t) {
    return HC_OK;
}

int node_spread(hc_node *node, int64_t chunk) {
    Node *n = of_node(node);
    if (n->machine->per_node > 1)
        compute(n, static_cast<double>(elements(n, chunk)) * n->shape->rails * n->shape->size / n->machine->node_rate);
    return HC_DONE;
}

int node_close(hc_node *) {
    return HC_OK;
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
    node_ops.open = node_open;
    node_ops.depth = node_depth;
    node_ops.reduce = node_reduce;
    node_ops.shard = node_shard;
    node_ops.publish = node_publish;
    node_ops.spread = node_spread;
    node_ops.close = node_close;
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

void live(Node *n, const std::vector<int32_t> *ranks, int dtype, int wire, const char *algorithm) {
    hc_hierarchy_config config{};
    config.set_rank = n->me;
    config.set_size = n->machine->nodes;
    config.members = config.node_of = ranks->data();
    config.group = n->shape->group;
    config.rails = 1;
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
    batch.operation = HC_ALLREDUCE;
    batch.reduction = HC_SUM;
    batch.dtype = static_cast<uint8_t>(dtype);
    batch.wire_dtype = static_cast<uint8_t>(wire);
    batch.root = -1;
    batch.divisor = 1;
    batch.count = n->shape->count;
    batch.npieces = 1;
    batch.pieces = &piece;
    int status = data->ops->start(data, &batch);
    while (status >= 0 && (status = data->ops->test(data)) != HC_DONE) {
        if (status != HC_IDLE)
            continue;
        std::vector<sg::CommPtr> waiting;
        for (const hc_net_request *r : n->pending)
            waiting.push_back(r->comm);
        sg::Comm::wait_any(waiting);
    }
    if (status < 0)
        throw std::runtime_error("the allreduce failed");
    n->ended = sg::Engine::get_clock();
    data->ops->free(data);
}

} // namespace

void simulate_allreduce(Machine &machine, const Settings &s) {
    const bool half = s.text("dtype", "float32") == "float16";
    Shape shape{};
    shape.size = half ? 2 : 4;
    shape.wire_size = half || s.text("wire", "none") == "fp16" ? 2 : 4;
    shape.rails = static_cast<int>(s.number("rails", machine.per_node));
    shape.shard = static_cast<int64_t>(s.number("shard", 21846)); // elements
    shape.count = static_cast<int64_t>(s.number("bytes", 1 << 20)) / shape.size / shape.rails;
    shape.shard = std::min(shape.shard, shape.count);
    shape.chunks = (shape.count + shape.shard - 1) / shape.shard;
    shape.depth = static_cast<int>(s.number("depth", 4));
    shape.group = static_cast<int>(s.number("group", 0));
    std::istringstream words(s.text("stages", ""));
    asked_radices.clear();
    for (std::string word; std::getline(words, word, ',');)
        asked_radices.push_back(std::stoi(word));
    const std::string algorithm = s.text("algorithm", asked_radices.empty() ? "auto" : "stages");
    fill_operations();
    std::vector<int32_t> ranks(machine.nodes);
    for (int i = 0; i < machine.nodes; i++)
        ranks[i] = i;
    std::vector<std::unique_ptr<Node>> all;
    for (int i = 0; i < machine.nodes; i++) {
        all.push_back(std::make_unique<Node>());
        Node *n = all.back().get();
        n->net.ops = &net_ops;
        n->net.rank = i;
        n->net.size = machine.nodes;
        n->net.max_tag = 1 << 20;
        n->node.ops = &node_ops;
        n->node.local_size = 1;
        n->arithmetic.ops = &arithmetic_ops;
        n->machine = &machine;
        n->shape = &shape;
        n->me = i;
        sg::Actor::create("node", machine.hosts[i], [n, &ranks, half, &shape, &algorithm] {
            live(n, &ranks, half ? HC_FLOAT16 : HC_FLOAT32, shape.wire_size == 2 ? HC_FLOAT16 : HC_FLOAT32,
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
    std::printf("{\"what\": \"allreduce\", \"nodes\": %d, \"ranks\": %d, \"bytes\": %lld, \"dtype\": \"%s\", "
                "\"algorithm\": \"%s\", \"rails\": %d, \"chunks\": %lld, \"depth\": %d, \"messages\": %llu, "
                "\"seconds\": %.9f}\n",
                machine.nodes, machine.nodes * machine.per_node,
                static_cast<long long>(shape.count) * shape.rails * shape.size, half ? "float16" : "float32",
                algorithm.c_str(), shape.rails, static_cast<long long>(shape.chunks), shape.depth,
                static_cast<unsigned long long>(messages), last);
}
