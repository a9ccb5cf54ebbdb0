// SPDX-License-Identifier: Apache-2.0
//
// driver.cpp - a call of a differential program, in C++: its arguments are numbers and addresses (modes_cpp.py).
#include <hpccoll.hpp>

#include <algorithm>
#include <string>
#include <string_view>

struct Call {
    const char *operation, *form;
    int dtype, op, root;
    double factors[2];
    const char *name;
    std::int64_t row;
    const std::int64_t *splits;
    std::int64_t n_splits;
    const void *in;
    std::int64_t in_count;
    void *out;
    std::int64_t out_count;
    int peers[2]; // the next rank and the one before
};

static std::string text; // of the last error

template <class T> static void keep(const std::vector<T> &result, std::span<T> out) {
    if (result.size() != out.size())
        throw std::length_error("a result of " + std::to_string(result.size()) + " elements");
    std::copy(result.begin(), result.end(), out.begin());
}

static void wait(hpccoll::Request request) {
    request.wait();
}

static void start(hpccoll::Plan plan) {
    plan();
}

template <class T> static void run(const Call &c, const hpccoll::World &world) {
    const std::span<const T> in(static_cast<const T *>(c.in), static_cast<std::size_t>(c.in_count));
    const std::span<T> out(static_cast<T *>(c.out), static_cast<std::size_t>(c.out_count));
    const std::span<const std::int64_t> splits(c.splits, static_cast<std::size_t>(c.n_splits));
    const std::string_view what(c.operation), form(c.form);
    const auto op = static_cast<hpccoll_reduction>(c.op);
    hpccoll::Args args;
    args.name = c.name ? c.name : "";
    args.prescale = c.factors[0];
    args.postscale = c.factors[1];
    args.row = c.row;
    // the calls
    world.sendrecv(in, c.peers[0], out, c.peers[1]);
}

extern "C" hpccoll::World *open_world(void *capsule_pointer) {
    return new hpccoll::World(hpccoll::World::from_python(capsule_pointer));
}

// Returns the text of an error, or NULL.
extern "C" const char *run_call(const Call *call, const hpccoll::World *world) {
    try {
        switch (call->dtype) {
        case HPCCOLL_INT32:
            run<std::int32_t>(*call, *world);
            break;
        case HPCCOLL_INT64:
            run<std::int64_t>(*call, *world);
            break;
        case HPCCOLL_FLOAT32:
            run<float>(*call, *world);
            break;
        default:
            run<double>(*call, *world);
        }
    } catch (const std::exception &error) {
        text = error.what();
        return text.c_str();
    }
    return nullptr;
}
