// SPDX-License-Identifier: Apache-2.0
//
// device.cpp - spans over device memory: results in spans, and no vector, which is memory of the host.
#include <hpccoll.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

extern "C" {
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int number);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(double **memory, std::size_t bytes);
int cuMemcpyHtoDAsync_v2(double *to, const double *from, std::size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(double *to, const double *from, std::size_t bytes, void *stream);
int cuStreamSynchronize(void *stream);
}

static void check(bool good, const char *what) {
    if (good)
        return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

template <class Call> static void expect(const char *words, Call call) {
    try {
        call();
    } catch (const hpccoll::Error &error) {
        check(std::string_view(error.what()).find(words) != std::string_view::npos, error.what());
        return;
    }
    check(false, words);
}

int main() {
    constexpr std::size_t n = 3, bytes = n * sizeof(double);
    void *context = nullptr;
    double *x = nullptr, *all = nullptr;
    check(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0, "driver");
    auto world = hpccoll::World::from_launcher();
    const auto size = static_cast<std::size_t>(world.size());
    const std::array<double, n> given = {1, 2, 3};
    std::vector<double> found(n * size);
    check(cuMemAlloc_v2(&x, bytes) == 0 && cuMemAlloc_v2(&all, bytes * size) == 0, "memory");
    check(cuMemcpyHtoDAsync_v2(x, given.data(), bytes, nullptr) == 0 && cuStreamSynchronize(nullptr) == 0, "copy");
    const std::span<double> mine(x, n);
    world.allreduce(mine);
    auto request = world.allgather_async(std::span<const double>(mine), std::span<double>(all, n * size));
    request.wait();
    check(cuMemcpyDtoHAsync_v2(found.data(), all, bytes * size, nullptr) == 0 && cuStreamSynchronize(nullptr) == 0,
          "copy");
    check(found.back() == 3.0 * world.size() && found.front() == world.size(), "values");
    expect("a result in device memory needs a span", [&] { world.allgather(std::span<const double>(mine)); });
    expect("a result in device memory needs a span", [&] { world.gather(std::span<const double>(mine), 0); });
    expect("out lies in host memory", [&] { world.reducescatter(std::span<const double>(mine)); });
    if (world.rank() == 0)
        std::printf("fine\n");
}
