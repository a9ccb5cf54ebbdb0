/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcast.c - broadcast: down a tree, where each member receives from its parent and then sends to its children; or
 * scattered and then gathered, in stages.
 */
#include "transport/net/algorithms.h"

#define LEAST_SEGMENT ((int64_t)16 << 10)

/* A step takes the time of one segment on a link. A chain has n - 1 links, which work at the same time. */
static double steps_of_chain(int32_t n, double segments) {
    return n - 2 + segments;
}

/* The root has log2(n) children, and sends every segment to each of them. Its last child is a leaf. */
static double steps_of_tree(int32_t n, double segments) {
    int children = 0;
    while (((int32_t)1 << children) < n)
        children++;
    return children * segments;
}

static double seconds_of(const hc__net_model *model, int32_t n, int64_t bytes, int64_t step) {
    double segments = bytes > step ? (double)bytes / (double)step : 1.0;
    double chain = steps_of_chain(n, segments), tree = steps_of_tree(n, segments);
    return (chain < tree ? chain : tree) * (model->alpha + (double)bytes / segments * model->beta);
}

int64_t hc__tree_segment(const hc__net_model *model, int32_t n, int64_t bytes, int64_t most) {
    double least = 0.0;
    int64_t best = most;
    for (int64_t step = most; step == most || step >= LEAST_SEGMENT; step /= 2) {
        double seconds = seconds_of(model, n, bytes, step);
        if (step == most || seconds < least) {
            least = seconds;
            best = step;
        }
    }
    return best;
}

/* A further segment takes a further message, as down the tree. Few members gain little, and lose where a message costs
 * less than the model knows. */
const hc__stages *hc__broadcast_stages(const hc__net_model *model, const hc__splits *splits, int64_t bytes,
                                       int64_t most) {
    if (splits->n <= HC__FEW_MEMBERS)
        return NULL;
    hc__choice scattered = hc__choose_broadcast(model, splits, bytes);
    double further = bytes > most ? ((double)bytes / (double)most - 1.0) * model->alpha : 0.0;
    double tree = seconds_of(model, splits->n, bytes, hc__tree_segment(model, splits->n, bytes, most));
    return scattered.seconds + further < tree ? scattered.stages : NULL;
}

hc__tree hc__tree_of(int32_t n, int32_t place, double segments) {
    hc__tree f = {.parent = -1};
    if (steps_of_chain(n, segments) < steps_of_tree(n, segments)) {
        f.parent = place - 1;
        if (place + 1 < n)
            f.children[f.nchildren++] = place + 1;
        return f;
    }
    int32_t low = 1; /* below my lowest set bit: my children */
    while (low < n && !(place & low))
        low *= 2;
    if (place > 0)
        f.parent = place - low;
    for (low /= 2; low > 0; low /= 2)
        if (place + low < n)
            f.children[f.nchildren++] = place + low;
    return f;
}

static int32_t member(const hc__channel *channel, int32_t place) {
    return (channel->root + place) % channel->team->n;
}

static int round_tree(hc__channel *channel, int32_t round) {
    const hc__tree *f = &channel->tree;
    int status = HC_MOVED;
    if (round == 0 && f->parent >= 0)
        status = hc__receive_part(channel, member(channel, f->parent), 0, channel->count);
    for (int32_t i = 0; round == 1 && i < f->nchildren && status >= 0; i++)
        status = hc__send_part(channel, member(channel, f->children[i]), 0, channel->count);
    return status < 0 ? status : round < 2 ? HC_MOVED : HC_DONE;
}

int hc__net_broadcast_start(hc__channel *channel, void *data, int64_t count, int dtype, int32_t root, int64_t segments,
                            const hc__stages *stages) {
    int32_t n = channel->team->n;
    channel->stages = stages;
    channel->form = (hc__form){0};
    channel->rounds.call = stages ? hc__round_broadcast_stages : round_tree;
    channel->data = channel->work = data;
    channel->count = count;
    channel->dtype = channel->kind = (uint8_t)dtype;
    channel->root = root;
    channel->tree = hc__tree_of(n, (channel->team->me - root + n) % n, (double)segments);
    channel->rounds.next = 0;
    channel->rounds.running = n > 1 && count > 0;
    return HC_OK;
}
