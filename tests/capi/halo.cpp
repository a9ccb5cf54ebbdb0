// SPDX-License-Identifier: Apache-2.0
//
// halo.cpp - grids and halo exchanges of the C++ header.
#include <hpccoll.hpp>
#include <mpi.h>

#include <cstdio>

static int rank, size;

static void check(bool good, const char *what) {
    if (good)
        return;
    std::fprintf(stderr, "rank %d: %s (%s)\n", rank, what, hpccoll_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

template <class Call> static void refuses(const char *words, Call call) {
    try {
        call();
    } catch (const hpccoll::Error &error) {
        check(std::string_view(error.what()).find(words) != std::string_view::npos, error.what());
        return;
    }
    check(false, words);
}

static void check_all(const hpccoll::World &world) {
    hpccoll::World ring = world.cart_create({0, 1}, {1, 0});
    check(ring.cart_dims() == std::vector<int>{size, 1}, "cart_dims");
    check(ring.cart_coords(rank) == std::vector<int>{rank, 0}, "cart_coords");
    check(ring.cart_rank({rank + size, 0}) == rank && ring.cart_rank({0, 1}) == HPCCOLL_PROC_NULL, "cart_rank");
    const int below = (rank + size - 1) % size, above = (rank + 1) % size;
    check(ring.cart_shift(0) == std::pair(below, above), "cart_shift");
    std::vector<float> u(15);
    const std::span<float> cells(u);
    hpccoll::Plan plan = ring.halo_exchange_init(cells, {5, 3}, {1, 0});
    for (int step = 0; step < 3; step++) {
        for (std::size_t i = 3; i < 12; i++)
            u[i] = float(100 * rank + int(i) + step);
        if (step < 2)
            plan();
        else
            ring.halo_exchange(cells, {5, 3}, {1, 0}, false);
        for (std::size_t i = 0; i < 3; i++) {
            check(u[i] == float(100 * below + int(i) + 9 + step), "the halo below");
            check(u[i + 12] == float(100 * above + int(i) + 3 + step), "the halo above");
        }
    }
    refuses("shape has another number of elements", [&] { auto none = ring.halo_exchange_init(cells, {5, 4}, {1, 0}); });
    refuses("shape has another number of elements", [&] {
        const std::int64_t half = std::int64_t{1} << 33; // cells.size() * half * half is 0 in 64 bits
        auto none = ring.halo_exchange_init(cells, {5, 3, half, half}, {1, 0});
    });
    refuses("width is NULL: give one for each of the 2", [&] { auto none = ring.halo_exchange_init(cells, {5, 3}, {1}); });
    refuses("has no halo of width (2, 0)", [&] { ring.halo_exchange(cells, {5, 3}, {2, 0}); });
    refuses("no grid of the", [&] { auto none = world.cart_create({1}, {1, 1}); });
    refuses("on no grid", [&] { world.cart_dims(); });
    check(bool(world.cart_create({1})) == (rank == 0), "a grid of one rank");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check_all(hpccoll::World::from_mpi(MPI_COMM_WORLD, "verbose=0"));
    MPI_Finalize();
    if (rank == 0)
        std::puts("fine");
    return 0;
}
