// SPDX-License-Identifier: Apache-2.0
//
// values.cpp - the C++ header: each function, and what becomes of values and errors.
#include <hpccoll.hpp>
#include <mpi.h>

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>

static int rank, size;

static void check(bool good, const char *what) {
    if (good)
        return;
    std::fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

template <class Call> static void expect(int status, const char *words, Call call) {
    try {
        call();
    } catch (const hpccoll::Error &error) {
        check(error.status() == status && std::string_view(error.what()).find(words) != std::string_view::npos,
              error.what());
        return;
    }
    check(false, words);
}

static void check_rows(const hpccoll::World &world) {
    std::vector<int> mine(static_cast<std::size_t>(rank + 1), rank);
    std::vector<std::int64_t> counts;
    const std::span<const int> input(mine);
    const std::vector<int> all = world.allgather(input, &counts);
    check(all.size() == static_cast<std::size_t>(size * (size + 1) / 2) && all.back() == size - 1, "allgather");
    check(counts[static_cast<std::size_t>(size) - 1] == size, "counts");
    check(world.gather(input, 0).size() == (rank == 0 ? all.size() : 0), "gather");
    std::vector<double> values(static_cast<std::size_t>(size));
    for (int r = 0; r < size; r++)
        values[static_cast<std::size_t>(r)] = r;
    const std::span<const double> row(values);
    check(world.scatter(rank == 0 ? row : row.first(0), 0) == std::vector<double>{double(rank)}, "scatter");
    check(world.alltoall(row) == std::vector<double>(static_cast<std::size_t>(size), rank), "alltoall");
    check(world.reducescatter(row) == std::vector<double>{double(rank * size)}, "reducescatter");
    const auto flags = std::make_unique<bool[]>(std::size_t(size));
    flags[std::size_t(rank)] = true; // on one rank each
    const std::span<const bool> flagged(flags.get(), std::size_t(size));
    check(world.reducescatter(flagged, HPCCOLL_LOR) == std::vector<bool>{true}, "a reducescatter of bool");
    check(world.reducescatter(flagged, HPCCOLL_LAND) == std::vector<bool>{size == 1},
          "the same with another reduction");
}

// The last rank refuses a call, which the other ranks hear; the next calls of all ranks belong together.
static void check_refusals(const hpccoll::World &world) {
    const bool refuses = rank == size - 1;
    const int status = refuses ? HPCCOLL_INVALID : HPCCOLL_MISMATCH;
    const char *words = refuses ? "in and out have sizes that do not fit" : "has refused this call";
    std::vector<double> x(4, 1.0), y(4), z(refuses ? 3 : 4);
    const std::span<const double> in(x);
    const std::span<double> out(z);
    const auto wait = [](hpccoll::Request request) { request.wait(); };
    for (int form = 0; form < 3; form++) {
        expect(status, words, [&] {
            if (form == 0)
                world.allreduce(in, out);
            else if (form == 1)
                wait(world.scan_async(in, out));
            else
                world.allreduce_init(in, out)();
        });
        x.assign(4, form + 2.0);
        world.allreduce(in, std::span(y));
        check(y[3] == (form + 2.0) * size, "a sum after a call that one rank has refused");
    }
    const std::vector<std::int64_t> splits(static_cast<std::size_t>(refuses ? size + 1 : size), 0);
    const std::span<const std::int64_t> none(splits);
    words = refuses ? "the number of splits is not that of the ranks" : "has refused this call";
    expect(status, words, [&] { world.alltoall(in.first(0), none); });
    expect(status, words, [&] { world.scatter(in.first(0), size - 1, none); });
    expect(status, words, [&] { world.alltoall_init(in.first(0), out.first(0), none)(); });
    const hpccoll::Args no_row{.row = 0};
    expect(HPCCOLL_INVALID, "count is not a multiple of args.row",
           [&] { world.reducescatter(in, HPCCOLL_SUM, no_row); });
}

// Ranks without rows have empty spans, whose data() may be a null pointer.
static void check_no_rows(const hpccoll::World &world) {
    const std::vector<double> one{1.0};
    const std::span<const double> in(one);
    std::vector<double> own(rank == 0 ? 1 : 0);
    check(world.reducescatter(in).size() == own.size(), "a reducescatter of one row");
    world.reducescatter_async(in, std::span(own)).wait();
    check(own.empty() || own[0] == size, "an asynchronous reducescatter of one row");
    hpccoll::Plan plan = world.reducescatter_init(in, std::span(own), HPCCOLL_MAX);
    plan();
    check(own.empty() || own[0] == 1, "a plan of a reducescatter of one row");
    const std::vector<double> pair{double(rank), 7.0};
    const hpccoll::Args rows{.row = 2};
    own = world.reducescatter(std::span<const double>(pair), HPCCOLL_MAXLOC, rows);
    check(own.empty() == (rank > 0) && (own.empty() || own[0] == size - 1), "a reducescatter of one pair");
}

static void wait_for(hpccoll::Request request) {
    request.wait();
}

// Each operation that was tested above, asynchronous; from one span to another where there are two.
static void check_requests(const hpccoll::World &world) {
    const std::size_t n = static_cast<std::size_t>(size);
    std::vector<double> one{double(rank)}, each(n, rank), out(n), row(1), none;
    const std::span<const double> mine(one), whole(each);
    std::vector<std::int64_t> counts, splits(n, 1);
    wait_for(world.allgather_async(mine, std::span(out), &counts));
    check(out.back() == size - 1 && counts == splits, "an asynchronous allgather");
    expect(HPCCOLL_RESULT_SIZE, "an out of 0 rows", [&] { wait_for(world.allgather_async(mine, std::span(none))); });
    out.assign(n, -1);
    wait_for(world.gather_async(mine, std::span(rank == 0 ? out : none), 0));
    check(out.back() == (rank == 0 ? size - 1 : -1), "an asynchronous gather");
    for (std::size_t r = 0; r < n; r++)
        out[r] = double(2 * r);
    wait_for(world.scatter_async(std::span<const double>(out), std::span(row), 0, std::span(splits)));
    check(row[0] == 2 * rank, "an asynchronous scatter");
    wait_for(world.alltoall_async(whole, std::span(out), {}, &counts));
    check(out.back() == size - 1 && counts == splits, "an asynchronous alltoall");
    wait_for(world.reducescatter_async(whole, std::span(row)));
    check(row[0] == size * (size - 1) / 2, "an asynchronous reducescatter");
    wait_for(world.broadcast_async(std::span(row), size - 1));
    wait_for(world.barrier_async());
    wait_for(world.scan_async(mine, std::span(row)));
    check(row[0] == rank * (rank + 1) / 2, "an asynchronous scan");
    wait_for(world.exscan_async(mine, std::span(row)));
    check(row[0] == rank * (rank - 1) / 2, "an asynchronous exscan");
    row[0] = -1;
    wait_for(world.reduce_async(mine, std::span(rank == 1 % size ? row : none), HPCCOLL_MAX, 1 % size));
    check(row[0] == (rank == 1 % size ? size - 1 : -1), "an asynchronous reduce");
    world.exscan(mine, std::span(row), HPCCOLL_MAX);
    check(rank == 0 || row[0] == rank - 1, "an exscan from one span to another");
    wait_for(world.allreduce_async(mine, std::span(row), HPCCOLL_MIN));
    check(row[0] == 0 && one[0] == rank, "an asynchronous allreduce from one span to another");
    hpccoll::Plan upto = world.scan_init(mine, std::span(row), HPCCOLL_MAX);
    upto();
    check(row[0] == rank && one[0] == rank, "a plan from one span to another");
}

// The others have joined when rank 0 sums, and count as zeros.
static void check_join(const hpccoll::World &world) {
    hpccoll::Args args;
    args.name = "of rank 0 alone";
    if (rank == 0)
        check(world.allreduce(5.0, HPCCOLL_SUM, args) == 5, "a sum of one rank");
    check(world.join() == 0, "join");
}

static void check_plans(const hpccoll::World &world) {
    std::vector<double> x(5), out(static_cast<std::size_t>(size));
    std::vector<double> share(static_cast<std::size_t>(hpccoll_share(5, size, rank)));
    const std::span<double> whole(x);
    const double given = rank;
    double taken = -1;
    int from = -1;
    std::vector<std::int64_t> counts;
    hpccoll::Plan sum = world.allreduce_init(whole), most = world.reduce_init(whole.first(1), HPCCOLL_MAX, 0);
    hpccoll::Plan all = world.allgather_init(std::span(&given, 1), std::span(out), &counts);
    hpccoll::Plan parts = world.reducescatter_init(std::span<const double>(x), std::span(share));
    check(counts == std::vector<std::int64_t>(static_cast<std::size_t>(size), 1), "counts of a plan");
    std::array<hpccoll::Plan, 2> messages{
        world.recv_init(std::span(&taken, 1), (rank + size - 1) % size, HPCCOLL_ANY_TAG, &from),
        world.send_init(std::span(&given, 1), (rank + 1) % size, 3)};
    hpccoll::Plan ring{std::span(messages)}, barrier = world.barrier_init();
    check(!messages[0] && ring, "a list takes its plans over");
    std::vector<double> rows(rank == 0 ? static_cast<std::size_t>(size) : 0), back(1), below{1};
    hpccoll::Plan up = world.gather_init(std::span(&given, 1), std::span(rows), 0);
    hpccoll::Plan down = world.scatter_init(std::span<const double>(rows), std::span(back), 0);
    hpccoll::Plan before = world.exscan_init(std::span(below)), upto = world.scan_init(std::span(back));
    up();
    down();
    before();
    check(back[0] == rank && below[0] == rank, "plans of a gather, a scatter and an exscan");
    upto();
    check(back[0] == rank * (rank + 1) / 2, "a plan of a scan");
    for (int step = 1; step < 4; step++) {
        x.assign(5, step);
        sum();
        check(x[4] == step * size, "a plan of an allreduce");
        parts();
        check(share.empty() || share[0] == x[0] * size, "a plan of a reducescatter");
        all.start();
        ring.start();
        while (!ring.test()) {}
        all.wait();
        barrier();
        most();
        check(out.back() == size - 1 && taken == from && from == (rank + size - 1) % size, "plans");
    }
    barrier.start(); // its destructor waits
    sum.free();
    expect(HPCCOLL_INVALID, "the plan is NULL", [&] { sum(); });
}

struct Boom : std::runtime_error {
    using std::runtime_error::runtime_error;
};

static double sum_or_throw(double a, double b) {
    if (rank == size - 1)
        throw Boom("too large");
    return a + b;
}

// The function of an Op throws on the last rank alone; `others`: what the other ranks get, OK or a status.
template <class Call> static void expect_boom(const hpccoll::World &world, int others, Call call) {
    const char *words = "has refused this call: the function of sums has failed: too large";
    if (rank < size - 1 && others < 0)
        expect(others, words, call);
    else
        try {
            call();
            check(rank < size - 1, "nothing was thrown");
        } catch (const Boom &boom) {
            check(rank == size - 1 && std::string_view(boom.what()) == "too large", "thrown");
        }
    check(world.allreduce(1.0) == size, "a sum after a function has thrown"); // the ranks are together
}

static void check_thrown(const hpccoll::World &world) {
    const hpccoll::Op<double> sums(sum_or_throw, "sums");
    std::vector<double> x(20000, 1.0); // the work is divided: the others wait for the share of the last rank
    std::vector<double> y(1);
    const std::span<double> large(x), small(y);
    hpccoll::Args named;
    named.name = "sums";
    expect_boom(world, HPCCOLL_MISMATCH, [&] { world.allreduce(large, sums); });
    expect_boom(world, HPCCOLL_MISMATCH, [&] { world.allreduce(large, sums, named); });
    expect_boom(world, HPCCOLL_MISMATCH, [&] { world.reduce(large, sums, 0); });
    check(x == std::vector<double>(x.size(), 1.0), "what a failed call leaves");
    const auto again = [&] { y[0] = 1; };
    const auto sum = [&] { check(y[0] == (rank < size - 1 ? size : 1), "the sum where nothing was thrown"); };
    again();
    expect_boom(world, HPCCOLL_OK, [&] { world.allreduce(small, sums); });
    sum();
    again();
    expect_boom(world, HPCCOLL_OK, [&] {
        std::array<hpccoll::Request, 2> two{world.allreduce_async(small, sums), world.barrier_async()};
        hpccoll::wait_all(two);
    });
    sum();
    again();
    hpccoll::Plan plan = world.allreduce_init(small, sums);
    expect_boom(world, HPCCOLL_OK, [&] { plan(); });
    sum();
    plan.start();
    plan = hpccoll::Plan(); // destructors wait, and drop what was thrown
    { const auto request = world.allreduce_async(small, sums); }
    expect(HPCCOLL_UNSUPPORTED, "BAND", [&] { world.allreduce(small, HPCCOLL_BAND); });
}

static void check_all(const hpccoll::World &world) {
    check(world.allreduce(rank, HPCCOLL_MAX) == size - 1, "a value");
    std::array<float, 4> x{float(rank), 1, 2, 3};
    hpccoll::Args args;
    args.name = "named";
    hpccoll::Request request = world.allreduce_async(std::span<float>(x), HPCCOLL_SUM, args);
    while (!request.test()) {}
    check(x[1] == float(size), "asynchronous");
    std::complex<double> z(rank, 1);
    world.broadcast(std::span(&z, 1), size - 1);
    check(z.real() == size - 1, "broadcast");
    int64_t n = rank;
    world.scan(std::span(&n, 1));
    check(n == rank * (rank + 1) / 2, "scan");
    const hpccoll::Op<double> hypotenuse([](double a, double b) { return std::hypot(a, b); }, "hypot");
    double side = 3 + rank % 2;
    const double length = world.allreduce(side, hypotenuse);
    check(std::abs(length * length - 9.0 * ((size + 1) / 2) - 16.0 * (size / 2)) < 1e-9, "a function of its own");
    hpccoll::Plan norm = world.allreduce_init(std::span(&side, 1), hypotenuse);
    norm();
    check(side == length, "a plan of it");
    check_thrown(world);
    std::array<int, 2> most{rank, rank};
    world.allreduce(std::span<int>(most), HPCCOLL_MAXLOC);
    check(most[1] == size - 1, "MAXLOC");
    check_rows(world);
    check_no_rows(world);
    check_refusals(world);
    check_requests(world);
    check_plans(world);
    const double out = rank;
    double in = -1;
    int from = -1;
    auto receive = world.recv_async(std::span(&in, 1), HPCCOLL_ANY_SOURCE, 7, &from);
    world.send(std::span(&out, 1), (rank + 1) % size, 7);
    receive.wait();
    check(in == from && from == (rank + size - 1) % size, "messages");
    in = -1;
    from = world.sendrecv(std::span(&out, 1), (rank + 1) % size, std::span(&in, 1), from);
    check(in == from && from == (rank + size - 1) % size, "a shift");
    check(!world.iprobe(from, 9), "no message");
    world.send(std::span(&out, 1), (rank + 1) % size, 8);
    const hpccoll::Message message = world.probe(from);
    check(message.source == from && message.tag == 8 && message.bytes == sizeof out && world.iprobe(), "a probe");
    world.recv(std::span(&in, 1), from, 8);
    check_join(world);
    hpccoll::World half = world.split(rank % 2);
    check(half && half.size() == (size + 1 - rank % 2) / 2, "split");
    const std::array<int, 1> first{0};
    check(bool(world.subset(first)) == (rank == 0), "subset");
    check(world.stat("requests") > 0, "counters");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    {
        hpccoll::World world = hpccoll::World::from_mpi(MPI_COMM_WORLD, "verbose=0");
        check_all(world);
        std::array<double, 8> x{};
        expect(HPCCOLL_MISMATCH, "rank",
               [&] { world.allreduce(std::span(x).first(static_cast<std::size_t>(rank + 1))); });
        check(hpccoll_allreduce(HPCCOLL_IN_PLACE, x.data(), 8, HPCCOLL_FLOAT64, HPCCOLL_SUM, nullptr, world.c()) == 0,
              "a function of C");
        expect(HPCCOLL_UNSUPPORTED, "BAND", [&] { world.allreduce(std::span<double>(x), HPCCOLL_BAND); });
        hpccoll::World moved = std::move(world);
        expect(HPCCOLL_INVALID, "the World is NULL", [&] { world.barrier(); });
        moved.barrier();
        moved.free();
    }
    expect(HPCCOLL_INVALID, "no knob", [] { hpccoll::World::alone("nonsense=1"); });
    MPI_Finalize();
    if (rank == 0)
        std::puts("fine");
    return 0;
}
