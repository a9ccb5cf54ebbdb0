// SPDX-License-Identifier: Apache-2.0
//
// cg.cpp - conjugate gradients for the Poisson equation on a square, its rows spread over the ranks. With the word
// "mpi" the same iterations run on bare MPI.
//
//     cg POINTS [mpi]
#include <hpccoll.hpp>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

using Vector = std::vector<double>;

// The operations that the solver needs.
struct Ranks {
    int rank = 0, size = 1;
    virtual ~Ranks() = default;
    virtual double sum(double mine) = 0;
    // Sends rows to the neighbours above and below, and receives theirs.
    virtual void exchange(std::span<const double> first, std::span<double> above, std::span<const double> last,
                          std::span<double> below) = 0;
};

struct OnHpccoll : Ranks {
    hpccoll::World world = hpccoll::World::from_mpi(MPI_COMM_WORLD, "verbose=0");
    OnHpccoll() {
        rank = world.rank();
        size = world.size();
    }
    double sum(double mine) override { return world.allreduce(mine); }
    void exchange(std::span<const double> first, std::span<double> above, std::span<const double> last,
                  std::span<double> below) override {
        std::vector<hpccoll::Request> requests;
        if (rank > 0) {
            requests.push_back(world.recv_async(above, rank - 1, 1));
            requests.push_back(world.send_async(first, rank - 1, 2));
        }
        if (rank + 1 < size) {
            requests.push_back(world.recv_async(below, rank + 1, 2));
            requests.push_back(world.send_async(last, rank + 1, 1));
        }
        hpccoll::wait_all(requests);
    }
};

struct OnMpi : Ranks {
    OnMpi() {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
    }
    double sum(double mine) override {
        MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        return mine;
    }
    void exchange(std::span<const double> first, std::span<double> above, std::span<const double> last,
                  std::span<double> below) override {
        const int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
        const int n = static_cast<int>(first.size());
        MPI_Sendrecv(first.data(), n, MPI_DOUBLE, up, 2, below.data(), n, MPI_DOUBLE, down, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(last.data(), n, MPI_DOUBLE, down, 1, above.data(), n, MPI_DOUBLE, up, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
};

// The five-point stencil on this rank's rows of x, which has a row of a neighbour at either end.
static void apply(Ranks &ranks, std::size_t n, Vector &x, Vector &y) {
    const std::size_t rows = x.size() / n - 2;
    const std::span<double> all(x);
    ranks.exchange(all.subspan(n, n), all.subspan(0, n), all.subspan(rows * n, n), all.subspan((rows + 1) * n, n));
    for (std::size_t row = 1; row <= rows; row++) {
        for (std::size_t i = 0; i < n; i++) {
            const double *here = &x[row * n + i];
            const double left = i ? here[-1] : 0, right = i + 1 < n ? here[1] : 0;
            y[(row - 1) * n + i] = 4 * here[0] - left - right - here[-static_cast<std::ptrdiff_t>(n)] - here[n];
        }
    }
}

static void solve(Ranks &ranks, std::size_t n) {
    const auto rows = static_cast<std::size_t>(hpccoll_share(static_cast<std::int64_t>(n), ranks.size, ranks.rank));
    Vector x(rows * n), residual(rows * n, 1.0), image(rows * n), direction((rows + 2) * n);
    std::copy(residual.begin(), residual.end(), direction.begin() + static_cast<std::ptrdiff_t>(n));
    const auto dot = [&](const double *a, const double *b) { return std::inner_product(a, a + rows * n, b, 0.0); };
    double square = ranks.sum(dot(residual.data(), residual.data()));
    const double enough = 1e-16 * square;
    int steps = 0;
    for (; square > enough && steps < 10000; steps++) {
        apply(ranks, n, direction, image);
        const double step = square / ranks.sum(dot(&direction[n], image.data()));
        for (std::size_t i = 0; i < rows * n; i++) {
            x[i] += step * direction[n + i];
            residual[i] -= step * image[i];
        }
        const double next = ranks.sum(dot(residual.data(), residual.data()));
        for (std::size_t i = 0; i < rows * n; i++)
            direction[n + i] = residual[i] + next / square * direction[n + i];
        square = next;
    }
    const double total = ranks.sum(std::accumulate(x.begin(), x.end(), 0.0));
    if (ranks.rank == 0)
        std::printf("%zu^2 points: %d iterations, the sum of the solution is %.9e\n", n, steps, total);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const int points = std::atoi(argc > 1 ? argv[1] : "64");
    int size = 0, status = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (points < size) {
        std::fprintf(stderr, "cg: POINTS is %d: at least one row for each of %d ranks\n", points, size);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const auto n = static_cast<std::size_t>(points);
    try {
        if (argc > 2 && std::strcmp(argv[2], "mpi") == 0) {
            OnMpi ranks;
            solve(ranks, n);
        } else {
            OnHpccoll ranks;
            solve(ranks, n);
        }
    } catch (const hpccoll::Error &error) {
        std::fprintf(stderr, "cg: %s\n", error.what());
        status = 1;
    }
    MPI_Finalize();
    return status;
}
