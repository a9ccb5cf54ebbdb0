/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.c - the tree between a root and the other members, its time, and the choice between it and stages.
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

double hc__tree_seconds(const hc__net_model *model, int32_t n, int64_t bytes, int64_t step) {
    double segments = bytes > step ? (double)bytes / (double)step : 1.0;
    double chain = steps_of_chain(n, segments), tree = steps_of_tree(n, segments);
    return (chain < tree ? chain : tree) * (model->alpha + (double)bytes / segments * model->beta);
}

int64_t hc__tree_segment(const hc__net_model *model, int32_t n, int64_t bytes, int64_t most) {
    double least = 0.0;
    int64_t best = most;
    for (int64_t step = most; step == most || step >= LEAST_SEGMENT; step /= 2) {
        double seconds = hc__tree_seconds(model, n, bytes, step);
        if (step == most || seconds < least) {
            least = seconds;
            best = step;
        }
    }
    return best;
}

/* A further segment takes a further message, as in the tree. */
double hc__staged_seconds(const hc__net_model *model, const hc__choice *staged, double segments) {
    return staged->seconds + (segments > 1.0 ? (segments - 1.0) * model->alpha : 0.0);
}

/* Few members gain little, and lose where a message costs less than the model knows. */
const hc__stages *hc__stages_or_tree(const hc__net_model *model, int32_t n, const hc__choice *staged, double segments,
                                     double tree) {
    return n > HC__FEW_MEMBERS && hc__staged_seconds(model, staged, segments) < tree ? staged->stages : NULL;
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

int32_t hc__tree_member(const hc__channel *channel, int32_t place) {
    return (channel->root + place) % channel->team->n;
}
