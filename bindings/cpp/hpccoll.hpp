// SPDX-License-Identifier: Apache-2.0
//
// hpccoll.hpp - hpccoll.h for C++20: values with destructors, std::span, exceptions.
//
// A World, a Request and what an allgather of unknown size returns own what they stand for, and move. Every function
// throws hpccoll::Error, with the status and the text of hpccoll_last_error(). Spans are contiguous memory of float,
// double, bool, an integer of 8 to 64 bits, or a std::complex of the first two.
#ifndef HPCCOLL_HPP
#define HPCCOLL_HPP

#if __cplusplus < 202002L
#error "hpccoll.hpp needs C++20: compile with -std=c++20"
#endif

#include <hpccoll.h>

#include <complex>
#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace hpccoll {

// What the function of an Op has thrown in a call of this thread, which throws it again: frames of C are in between.
inline thread_local std::exception_ptr thrown;

class Error : public std::runtime_error {
  public:
    explicit Error(int code) : std::runtime_error(hpccoll_last_error()), code_(code) {}
    int status() const noexcept { return code_; }        // enum hpccoll_status
    static void drop(int) noexcept { thrown = nullptr; } // in a destructor

  private:
    int code_;
};

inline void check(int status) {
    if (status < 0 && thrown)
        std::rethrow_exception(std::exchange(thrown, nullptr));
    if (status < 0)
        throw Error(status);
}

// ---- element types -----------------------------------------------------------------------------------------------

template <class T> constexpr hpccoll_dtype dtype_of() {
    using U = std::remove_cv_t<T>;
    if constexpr (std::same_as<U, bool>)
        return HPCCOLL_BOOL;
    else if constexpr (std::integral<U>) {
        static_assert(sizeof(U) <= 8, "an integer of more than 64 bits does not move");
        constexpr bool is_signed = std::signed_integral<U>;
        return sizeof(U) == 1   ? (is_signed ? HPCCOLL_INT8 : HPCCOLL_UINT8)
               : sizeof(U) == 2 ? (is_signed ? HPCCOLL_INT16 : HPCCOLL_UINT16)
               : sizeof(U) == 4 ? (is_signed ? HPCCOLL_INT32 : HPCCOLL_UINT32)
                                : (is_signed ? HPCCOLL_INT64 : HPCCOLL_UINT64);
    } else if constexpr (std::same_as<U, float>)
        return HPCCOLL_FLOAT32;
    else if constexpr (std::same_as<U, double>)
        return HPCCOLL_FLOAT64;
    else if constexpr (std::same_as<U, std::complex<float>>)
        return HPCCOLL_COMPLEX64;
    else {
        static_assert(std::same_as<U, std::complex<double>>, "this type does not move");
        return HPCCOLL_COMPLEX128;
    }
}

// What every call may have: all of it optional.
struct Args {
    std::string name{};
    double prescale = 1.0, postscale = 1.0;
    hpccoll_dtype compression = HPCCOLL_NO_COMPRESSION;
    std::int64_t row = 1;

    hpccoll_args c() const { return {name.empty() ? nullptr : name.c_str(), prescale, postscale, compression, row}; }
};

// ---- reductions of the program's own -----------------------------------------------------------------------------

// A function of two values, the first of lower ranks, as the `op` of a call of spans of T: associative, and not
// necessarily commutative. It outlives its calls. `name`: for errors, equal on all ranks. What it throws the call, or
// the wait, throws on this rank; ranks that wait for the share of this rank get an Error.
template <class T> class Op {
  public:
    template <class F>
        requires(std::is_invocable_r_v<T, F, T, T>)
    explicit Op(F function, const std::string &name = {}) : made_(new Made{std::move(function)}) {
        check(hpccoll_op_create(combine, made_.get(), 1, name.c_str(), &made_->c));
    }

  private:
    template <class> friend struct ReductionOf;
    struct Made {
        std::function<T(T, T)> function;
        hpccoll_reduction c = HPCCOLL_OP_NULL;
        ~Made() { hpccoll_op_free(&c); }
    };
    static void combine(const void *in, void *inout, std::int64_t count, hpccoll_dtype, void *context) noexcept {
        const auto &function = static_cast<const Made *>(context)->function;
        const T *first = static_cast<const T *>(in);
        T *second = static_cast<T *>(inout);
        try {
            for (std::int64_t i = 0; i < count; i++)
                second[i] = function(first[i], second[i]);
        } catch (const std::exception &error) {
            thrown = std::current_exception();
            hpccoll_op_fail(error.what());
        } catch (...) {
            thrown = std::current_exception();
            hpccoll_op_fail("it has thrown no std::exception");
        }
    }

    std::unique_ptr<Made> made_;
};

// The `op` of a call of spans of T: one of hpccoll.h, or an Op of that type.
template <class T> struct ReductionOf {
    ReductionOf(hpccoll_reduction op) noexcept : c(op) {}
    template <class U> ReductionOf(const Op<U> &op) noexcept : c(op.made_ ? op.made_->c : HPCCOLL_OP_NULL) {
        static_assert(std::same_as<T, U>, "an Op is for spans of its own type");
    }
    hpccoll_reduction c;
};
template <class T> using Reduction = std::type_identity_t<ReductionOf<T>>; // the spans alone say what T is

// ---- requests ----------------------------------------------------------------------------------------------------

// A call in flight. Its destructor waits, and drops an error: call wait() to learn of it.
class Request {
  public:
    Request() = default;
    explicit Request(hpccoll_request *c) : c_(c) {}
    Request(Request &&other) noexcept : c_(std::exchange(other.c_, nullptr)) {}
    Request &operator=(Request &&other) noexcept {
        std::swap(c_, other.c_);
        return *this;
    }
    ~Request() { Error::drop(hpccoll_wait(&c_)); }

    void wait() { check(hpccoll_wait(&c_)); }
    bool test() {
        int done = 0;
        check(hpccoll_test(&c_, &done));
        return done;
    }

  private:
    hpccoll_request *c_ = nullptr;
};

inline void wait_all(std::span<Request> requests) {
    std::exception_ptr first;
    for (Request &request : requests)
        try {
            request.wait();
        } catch (...) {
            first = first ? first : std::current_exception();
        }
    if (first)
        std::rethrow_exception(first);
}

// ---- plans -------------------------------------------------------------------------------------------------------

// A persistent operation, over spans that outlive it. Its destructor waits for the last start and frees it.
class Plan {
  public:
    Plan() = default;
    explicit Plan(hpccoll_plan *c) : c_(c) {}
    // One plan of several, which it takes over.
    explicit Plan(std::span<Plan> plans) {
        std::vector<hpccoll_plan *> all;
        for (const Plan &plan : plans)
            all.push_back(plan.c_);
        check(hpccoll_plan_list(static_cast<int>(all.size()), all.data(), &c_));
        for (Plan &plan : plans)
            plan.c_ = nullptr;
    }
    Plan(Plan &&other) noexcept : c_(std::exchange(other.c_, nullptr)) {}
    Plan &operator=(Plan &&other) noexcept {
        std::swap(c_, other.c_);
        return *this;
    }
    ~Plan() {
        if (c_ && hpccoll_plan_free(&c_) < 0) {
            Error::drop(hpccoll_plan_wait(c_));
            hpccoll_plan_free(&c_);
        }
    }

    void start() { check(hpccoll_start(c_)); }
    void wait() { check(hpccoll_plan_wait(c_)); }
    void operator()() {
        start();
        wait();
    }
    bool test() {
        int done = 0;
        check(hpccoll_plan_test(c_, &done));
        return done;
    }
    void free() { check(hpccoll_plan_free(&c_)); }
    explicit operator bool() const noexcept { return c_ != nullptr; }

  private:
    hpccoll_plan *c_ = nullptr;
};

// ---- Worlds ------------------------------------------------------------------------------------------------------

// A message that no receive has taken.
struct Message {
    int source = HPCCOLL_ANY_SOURCE, tag = HPCCOLL_ANY_TAG;
    std::int64_t bytes = 0;
};

class World {
  public:
    World() = default; // empty, as on a rank outside of a split
    World(World &&other) noexcept : c_(std::exchange(other.c_, nullptr)) {}
    World &operator=(World &&other) noexcept {
        std::swap(c_, other.c_);
        return *this;
    }
    ~World() { hpccoll_world_free(&c_); }

    // Of an MPI communicator.
    template <class Comm> static World from_mpi(Comm comm, const std::string &options = {}) {
        World made;
        check(hpccoll_world_from_mpi(comm, options.c_str(), &made.c_));
        return made;
    }
    // Of all processes that a launcher has started, without MPI.
    static World from_launcher(const std::string &options = {}) {
        World made;
        check(hpccoll_world_from_launcher(options.c_str(), &made.c_));
        return made;
    }
    static World alone(const std::string &options = {}) {
        World made;
        check(hpccoll_world_alone(options.c_str(), &made.c_));
        return made;
    }
    // The World that the Python part of this program has made: `capsule_pointer` is the pointer in the capsule that
    // hpccoll.capsule() returns. Python ends the World.
    static World from_python(void *capsule_pointer) {
        World made;
        check(hpccoll_world_from_python(capsule_pointer, &made.c_));
        return made;
    }
    // As the destructor, and throws what broke the World.
    void free() { check(hpccoll_world_free(&c_)); }

    explicit operator bool() const noexcept { return c_ != nullptr; }
    hpccoll_world *c() const noexcept { return c_; }
    int rank() const { return checked(hpccoll_rank(c_)); }
    int size() const { return checked(hpccoll_size(c_)); }
    int local_rank() const { return checked(hpccoll_local_rank(c_)); }
    int local_size() const { return checked(hpccoll_local_size(c_)); }

    World split(int color, int key = 0) const {
        World part;
        check(hpccoll_split(c_, color, key, &part.c_));
        return part;
    }
    World subset(std::span<const int> ranks) const {
        World part;
        check(hpccoll_subset(c_, ranks.data(), static_cast<int>(ranks.size()), &part.c_));
        return part;
    }
    // ---- grids: of the first ranks of a World; empty on the others ----

    // A 0 in `dims` is chosen as by hpccoll_dims_create(). periods: 1: the ends of a dimension touch; none: no ends do.
    World cart_create(const std::vector<int> &dims, const std::vector<int> &periods = {}) const {
        World cart;
        bool fits = periods.empty() || periods.size() == dims.size();
        check(hpccoll_cart_create(c_, fits ? static_cast<int>(dims.size()) : 0, dims.data(),
                                  periods.empty() ? nullptr : periods.data(), &cart.c_));
        return cart;
    }
    std::vector<int> cart_dims() const {
        std::vector<int> dims(static_cast<std::size_t>(checked(hpccoll_cart_dims(c_, 0, nullptr))));
        check(hpccoll_cart_dims(c_, static_cast<int>(dims.size()), dims.data()));
        return dims;
    }
    std::vector<int> cart_coords(int rank) const {
        std::vector<int> coords = cart_dims();
        check(hpccoll_cart_coords(c_, rank, static_cast<int>(coords.size()), coords.data()));
        return coords;
    }
    // HPCCOLL_PROC_NULL: they lie beyond an end of the grid.
    int cart_rank(const std::vector<int> &coords) const {
        int rank = HPCCOLL_PROC_NULL;
        check(hpccoll_cart_rank(c_, coords.size() == cart_dims().size() ? coords.data() : nullptr, &rank));
        return rank;
    }
    // The ranks that a shift receives from and sends to.
    std::pair<int, int> cart_shift(int dimension, int displacement = 1) const {
        int source = HPCCOLL_PROC_NULL, dest = HPCCOLL_PROC_NULL;
        check(hpccoll_cart_shift(c_, dimension, displacement, &source, &dest));
        return {source, dest};
    }
    // A plan that fills the halo of an array of this shape, whose last dimension is the fastest one. width: of each
    // dimension of the grid. corners: also the corners and edges.
    template <class T>
    [[nodiscard]] Plan halo_exchange_init(std::span<T> x, const std::vector<std::int64_t> &shape,
                                          const std::vector<int> &width, bool corners = true) const {
        hpccoll_plan *made = nullptr;
        check(hpccoll_halo_exchange_init(x.data(), dtype_of<T>(), ndims(x, shape), shape.data(), nullptr, widths(width),
                                         corners, c_, &made));
        return Plan(made);
    }
    // The same once, without a plan.
    template <class T>
    void halo_exchange(std::span<T> x, const std::vector<std::int64_t> &shape, const std::vector<int> &width,
                       bool corners = true) const {
        check(hpccoll_halo_exchange(x.data(), dtype_of<T>(), ndims(x, shape), shape.data(), nullptr, widths(width),
                                    corners, c_));
    }
    std::uint64_t stat(const char *name) const {
        std::uint64_t value = 0;
        check(hpccoll_stat(c_, name, &value));
        return value;
    }

    // ---- lost ranks, and the changes of an elastic job's ranks: see hpccoll.h ----

    std::vector<int> lost_ranks() const {
        std::vector<int> ranks(static_cast<std::size_t>(size()));
        int count = 0;
        check(hpccoll_lost_ranks(c_, static_cast<int>(ranks.size()), ranks.data(), &count));
        ranks.resize(static_cast<std::size_t>(count));
        return ranks;
    }
    // The ranks are about to change: the same on all ranks.
    bool changes() const {
        int found = 0;
        check(hpccoll_world_changes(c_, &found));
        return found != 0;
    }
    void leave() const { check(hpccoll_leave(c_)); }

    // ---- collectives: of one span, which the result replaces, or from one span to another ----

    // generated: collectives (make bindings)
    template <class T> void allreduce(std::span<T> x, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        check(hpccoll_allreduce(x.data(), x.data(), count(x), dtype_of<T>(), op.c, &c, c_));
    }
    template <class T>
    void allreduce(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM,
                   const Args &args = {}) const {
        const hpccoll_args c = args.c();
        check(hpccoll_allreduce(in.data(), out.data(), equal(in.size(), out.size(), HPCCOLL_ALLREDUCE, c),
                                dtype_of<T>(), op.c, &c, c_));
    }
    template <class T> void reduce(std::span<T> x, Reduction<T> op, int root, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        check(hpccoll_reduce(x.data(), x.data(), count(x), dtype_of<T>(), op.c, root, &c, c_));
    }
    // On `root` the result comes to `out`; the other ranks may give an empty one.
    template <class T>
    void reduce(std::span<const T> in, std::span<T> out, Reduction<T> op, int root, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        check(hpccoll_reduce(in.data(), out.data(),
                             rank() == root ? equal(in.size(), out.size(), HPCCOLL_REDUCE, c) : count(in),
                             dtype_of<T>(), op.c, root, &c, c_));
    }
    template <class T> void scan(std::span<T> x, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        check(hpccoll_scan(x.data(), x.data(), count(x), dtype_of<T>(), op.c, &c, c_));
    }
    template <class T>
    void scan(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        check(hpccoll_scan(in.data(), out.data(), equal(in.size(), out.size(), HPCCOLL_SCAN, c), dtype_of<T>(), op.c,
                           &c, c_));
    }
    template <class T> void exscan(std::span<T> x, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        check(hpccoll_exscan(x.data(), x.data(), count(x), dtype_of<T>(), op.c, &c, c_));
    }
    template <class T>
    void exscan(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        check(hpccoll_exscan(in.data(), out.data(), equal(in.size(), out.size(), HPCCOLL_EXSCAN, c), dtype_of<T>(),
                             op.c, &c, c_));
    }
    template <class T> void broadcast(std::span<T> x, int root, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        check(hpccoll_broadcast(x.data(), count(x), dtype_of<T>(), root, &c, c_));
    }
    template <class T>
    std::vector<T> reducescatter(std::span<const T> in, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        Array<T> out(share(in, args));
        check(hpccoll_reducescatter(in.data(), out.data(), count(in), dtype_of<T>(), op.c, &c, c_));
        return as_vector<T>(std::move(out));
    }
    // All ranks' elements, which may differ in number; counts: of each rank's rows.
    template <class T>
    std::vector<T> allgather(std::span<const T> in, std::vector<std::int64_t> *counts = nullptr,
                             const Args &args = {}) const {
        const hpccoll_args c = args.c();
        on_host(in.data(), HPCCOLL_ALLGATHER, c);
        hpccoll_request *made = nullptr;
        check(hpccoll_allgather_async(in.data(), count(in), dtype_of<T>(), HPCCOLL_ALLOCATE, 0, place_for(counts), &c,
                                      c_, &made));
        return take<T>(made);
    }
    // The same on `root`; nothing on the others.
    template <class T>
    std::vector<T> gather(std::span<const T> in, int root, std::vector<std::int64_t> *counts = nullptr,
                          const Args &args = {}) const {
        const hpccoll_args c = args.c();
        on_host(in.data(), HPCCOLL_GATHER, c);
        hpccoll_request *made = nullptr;
        check(hpccoll_gather_async(in.data(), count(in), dtype_of<T>(), HPCCOLL_ALLOCATE, 0, place_for(counts), root,
                                   &c, c_, &made));
        return take<T>(made);
    }
    // splits: rows for each rank, on the root; empty: as hpccoll_share() says.
    template <class T>
    std::vector<T> scatter(std::span<const T> in, int root, std::span<const std::int64_t> splits = {},
                           const Args &args = {}) const {
        const hpccoll_args c = args.c();
        on_host(in.data(), HPCCOLL_SCATTER, c);
        hpccoll_request *made = nullptr;
        check(hpccoll_scatter_async(in.data(), count(in),
                                    rank() == root ? of_ranks(splits, HPCCOLL_SCATTER, c) : nullptr, dtype_of<T>(),
                                    HPCCOLL_ALLOCATE, 0, root, &c, c_, &made));
        return take<T>(made);
    }
    template <class T>
    std::vector<T> alltoall(std::span<const T> in, std::span<const std::int64_t> splits = {},
                            std::vector<std::int64_t> *recv_counts = nullptr, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        on_host(in.data(), HPCCOLL_ALLTOALL, c);
        hpccoll_request *made = nullptr;
        check(hpccoll_alltoall_async(in.data(), count(in), of_ranks(splits, HPCCOLL_ALLTOALL, c), dtype_of<T>(),
                                     HPCCOLL_ALLOCATE, 0, place_for(recv_counts), &c, c_, &made));
        return take<T>(made);
    }
    void barrier(const Args &args = {}) const {
        const hpccoll_args c = args.c();
        check(hpccoll_barrier(&c, c_));
    }
    // end of generated
    // Of one value, which it returns.
    template <class T>
        requires(std::is_arithmetic_v<T>)
    T allreduce(T value, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        allreduce(std::span<T>(&value, 1), op, args);
        return value;
    }
    // This rank has no more collectives: takes part in those of the others with neutral elements until all have joined.
    // The rank that joined last.
    int join() const {
        int last = -1;
        check(hpccoll_join(&last, c_));
        return last;
    }

    // ---- the same, asynchronous: the spans belong to the library until the request is over ----

    // generated: asynchronous (make bindings)
    template <class T>
    [[nodiscard]] Request allreduce_async(std::span<T> x, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_allreduce_async(x.data(), x.data(), count(x), dtype_of<T>(), op.c, &c, c_, &made));
        return Request(made);
    }
    template <class T>
    [[nodiscard]] Request allreduce_async(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM,
                                          const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_allreduce_async(in.data(), out.data(), equal(in.size(), out.size(), HPCCOLL_ALLREDUCE, c),
                                      dtype_of<T>(), op.c, &c, c_, &made));
        return Request(made);
    }
    template <class T>
    [[nodiscard]] Request reduce_async(std::span<T> x, Reduction<T> op, int root, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_reduce_async(x.data(), x.data(), count(x), dtype_of<T>(), op.c, root, &c, c_, &made));
        return Request(made);
    }
    // On `root` the result comes to `out`; the other ranks may give an empty one.
    template <class T>
    [[nodiscard]] Request reduce_async(std::span<const T> in, std::span<T> out, Reduction<T> op, int root,
                                       const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_reduce_async(in.data(), out.data(),
                                   rank() == root ? equal(in.size(), out.size(), HPCCOLL_REDUCE, c) : count(in),
                                   dtype_of<T>(), op.c, root, &c, c_, &made));
        return Request(made);
    }
    template <class T>
    [[nodiscard]] Request scan_async(std::span<T> x, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_scan_async(x.data(), x.data(), count(x), dtype_of<T>(), op.c, &c, c_, &made));
        return Request(made);
    }
    template <class T>
    [[nodiscard]] Request scan_async(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM,
                                     const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_scan_async(in.data(), out.data(), equal(in.size(), out.size(), HPCCOLL_SCAN, c), dtype_of<T>(),
                                 op.c, &c, c_, &made));
        return Request(made);
    }
    template <class T>
    [[nodiscard]] Request exscan_async(std::span<T> x, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_exscan_async(x.data(), x.data(), count(x), dtype_of<T>(), op.c, &c, c_, &made));
        return Request(made);
    }
    template <class T>
    [[nodiscard]] Request exscan_async(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM,
                                       const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_exscan_async(in.data(), out.data(), equal(in.size(), out.size(), HPCCOLL_EXSCAN, c),
                                   dtype_of<T>(), op.c, &c, c_, &made));
        return Request(made);
    }
    template <class T> [[nodiscard]] Request broadcast_async(std::span<T> x, int root, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_broadcast_async(x.data(), count(x), dtype_of<T>(), root, &c, c_, &made));
        return Request(made);
    }
    // out: hpccoll_share() of the rows.
    template <class T>
    [[nodiscard]] Request reducescatter_async(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM,
                                              const Args &args = {}) const {
        const hpccoll_args c = args.c();
        equal(share(in, args), out.size(), HPCCOLL_REDUCESCATTER, c);
        hpccoll_request *made = nullptr;
        check(hpccoll_reducescatter_async(in.data(), out.data(), count(in), dtype_of<T>(), op.c, &c, c_, &made));
        return Request(made);
    }
    template <class T>
    [[nodiscard]] Request allgather_async(std::span<const T> in, std::span<T> out,
                                          std::vector<std::int64_t> *counts = nullptr, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_allgather_async(in.data(), count(in), dtype_of<T>(), out.data(), count(out), place_for(counts),
                                      &c, c_, &made));
        return Request(made);
    }
    // On `root` all rows come to `out`; the other ranks may give an empty one.
    template <class T>
    [[nodiscard]] Request gather_async(std::span<const T> in, std::span<T> out, int root,
                                       std::vector<std::int64_t> *counts = nullptr, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_gather_async(in.data(), count(in), dtype_of<T>(), out.data(), count(out), place_for(counts), root,
                                   &c, c_, &made));
        return Request(made);
    }
    template <class T>
    [[nodiscard]] Request scatter_async(std::span<const T> in, std::span<T> out, int root,
                                        std::span<const std::int64_t> splits = {}, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_scatter_async(in.data(), count(in),
                                    rank() == root ? of_ranks(splits, HPCCOLL_SCATTER, c) : nullptr, dtype_of<T>(),
                                    out.data(), count(out), root, &c, c_, &made));
        return Request(made);
    }
    template <class T>
    [[nodiscard]] Request alltoall_async(std::span<const T> in, std::span<T> out,
                                         std::span<const std::int64_t> splits = {},
                                         std::vector<std::int64_t> *recv_counts = nullptr,
                                         const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_alltoall_async(in.data(), count(in), of_ranks(splits, HPCCOLL_ALLTOALL, c), dtype_of<T>(),
                                     out.data(), count(out), place_for(recv_counts), &c, c_, &made));
        return Request(made);
    }
    [[nodiscard]] Request barrier_async(const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_request *made = nullptr;
        check(hpccoll_barrier_async(&c, c_, &made));
        return Request(made);
    }
    // end of generated

    // ---- plans of them: the spans are used again at every start ----

    // generated: plans (make bindings)
    template <class T>
    [[nodiscard]] Plan allreduce_init(std::span<T> x, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_allreduce_init(x.data(), x.data(), count(x), dtype_of<T>(), op.c, &c, c_, &made));
        return Plan(made);
    }
    template <class T>
    [[nodiscard]] Plan allreduce_init(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM,
                                      const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_allreduce_init(in.data(), out.data(), equal_init(in.size(), out.size(), HPCCOLL_ALLREDUCE),
                                     dtype_of<T>(), op.c, &c, c_, &made));
        return Plan(made);
    }
    template <class T>
    [[nodiscard]] Plan reduce_init(std::span<T> x, Reduction<T> op, int root, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_reduce_init(x.data(), x.data(), count(x), dtype_of<T>(), op.c, root, &c, c_, &made));
        return Plan(made);
    }
    // On `root` the result comes to `out`; the other ranks may give an empty one.
    template <class T>
    [[nodiscard]] Plan reduce_init(std::span<const T> in, std::span<T> out, Reduction<T> op, int root,
                                   const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_reduce_init(in.data(), out.data(),
                                  rank() == root ? equal_init(in.size(), out.size(), HPCCOLL_REDUCE) : count(in),
                                  dtype_of<T>(), op.c, root, &c, c_, &made));
        return Plan(made);
    }
    template <class T>
    [[nodiscard]] Plan scan_init(std::span<T> x, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_scan_init(x.data(), x.data(), count(x), dtype_of<T>(), op.c, &c, c_, &made));
        return Plan(made);
    }
    template <class T>
    [[nodiscard]] Plan scan_init(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM,
                                 const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_scan_init(in.data(), out.data(), equal_init(in.size(), out.size(), HPCCOLL_SCAN), dtype_of<T>(),
                                op.c, &c, c_, &made));
        return Plan(made);
    }
    template <class T>
    [[nodiscard]] Plan exscan_init(std::span<T> x, Reduction<T> op = HPCCOLL_SUM, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_exscan_init(x.data(), x.data(), count(x), dtype_of<T>(), op.c, &c, c_, &made));
        return Plan(made);
    }
    template <class T>
    [[nodiscard]] Plan exscan_init(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM,
                                   const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_exscan_init(in.data(), out.data(), equal_init(in.size(), out.size(), HPCCOLL_EXSCAN),
                                  dtype_of<T>(), op.c, &c, c_, &made));
        return Plan(made);
    }
    template <class T> [[nodiscard]] Plan broadcast_init(std::span<T> x, int root) const {
        hpccoll_plan *made = nullptr;
        check(hpccoll_broadcast_init(x.data(), count(x), dtype_of<T>(), root, nullptr, c_, &made));
        return Plan(made);
    }
    // out: hpccoll_share() of the rows.
    template <class T>
    [[nodiscard]] Plan reducescatter_init(std::span<const T> in, std::span<T> out, Reduction<T> op = HPCCOLL_SUM,
                                          const Args &args = {}) const {
        const hpccoll_args c = args.c();
        equal_init(share(in, args), out.size(), HPCCOLL_REDUCESCATTER);
        hpccoll_plan *made = nullptr;
        check(hpccoll_reducescatter_init(in.data(), out.data(), count(in), dtype_of<T>(), op.c, &c, c_, &made));
        return Plan(made);
    }
    template <class T>
    [[nodiscard]] Plan allgather_init(std::span<const T> in, std::span<T> out,
                                      std::vector<std::int64_t> *counts = nullptr, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_allgather_init(in.data(), count(in), dtype_of<T>(), out.data(), count(out), place_for(counts), &c,
                                     c_, &made));
        return Plan(made);
    }
    // On `root` all rows come to `out`; the other ranks may give an empty one.
    template <class T>
    [[nodiscard]] Plan gather_init(std::span<const T> in, std::span<T> out, int root,
                                   std::vector<std::int64_t> *counts = nullptr, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_gather_init(in.data(), count(in), dtype_of<T>(), out.data(), count(out), place_for(counts), root,
                                  &c, c_, &made));
        return Plan(made);
    }
    template <class T>
    [[nodiscard]] Plan scatter_init(std::span<const T> in, std::span<T> out, int root,
                                    std::span<const std::int64_t> splits = {}, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_scatter_init(in.data(), count(in),
                                   rank() == root ? of_ranks_init(splits, HPCCOLL_SCATTER) : nullptr, dtype_of<T>(),
                                   out.data(), count(out), root, &c, c_, &made));
        return Plan(made);
    }
    template <class T>
    [[nodiscard]] Plan alltoall_init(std::span<const T> in, std::span<T> out, std::span<const std::int64_t> splits = {},
                                     std::vector<std::int64_t> *recv_counts = nullptr, const Args &args = {}) const {
        const hpccoll_args c = args.c();
        hpccoll_plan *made = nullptr;
        check(hpccoll_alltoall_init(in.data(), count(in), of_ranks_init(splits, HPCCOLL_ALLTOALL), dtype_of<T>(),
                                    out.data(), count(out), place_for(recv_counts), &c, c_, &made));
        return Plan(made);
    }
    [[nodiscard]] Plan barrier_init() const {
        hpccoll_plan *made = nullptr;
        check(hpccoll_barrier_init(nullptr, c_, &made));
        return Plan(made);
    }
    template <class T> [[nodiscard]] Plan send_init(std::span<const T> x, int dest, int tag = 0) const {
        hpccoll_plan *made = nullptr;
        check(hpccoll_send_init(x.data(), count(x), dtype_of<T>(), dest, tag, c_, &made));
        return Plan(made);
    }
    // *from: nullptr, or the rank that has sent it, as of the last start.
    template <class T>
    [[nodiscard]] Plan recv_init(std::span<T> x, int source, int tag = HPCCOLL_ANY_TAG, int *from = nullptr) const {
        hpccoll_plan *made = nullptr;
        check(hpccoll_recv_init(x.data(), count(x), dtype_of<T>(), source, tag, from, nullptr, c_, &made));
        return Plan(made);
    }
    // end of generated

    // ---- messages ----

    // generated: messages (make bindings)
    template <class T> void send(std::span<const T> x, int dest, int tag = 0) const {
        check(hpccoll_send(x.data(), count(x), dtype_of<T>(), dest, tag, c_));
    }
    template <class T> [[nodiscard]] Request send_async(std::span<const T> x, int dest, int tag = 0) const {
        hpccoll_request *made = nullptr;
        check(hpccoll_send_async(x.data(), count(x), dtype_of<T>(), dest, tag, c_, &made));
        return Request(made);
    }
    // *from: nullptr, or the rank that has sent it, when it was waited for.
    template <class T>
    [[nodiscard]] Request recv_async(std::span<T> x, int source, int tag = HPCCOLL_ANY_TAG, int *from = nullptr) const {
        hpccoll_request *made = nullptr;
        check(hpccoll_recv_async(x.data(), count(x), dtype_of<T>(), source, tag, from, nullptr, c_, &made));
        return Request(made);
    }
    // end of generated
    // The rank that has sent it.
    template <class T> int recv(std::span<T> x, int source, int tag = HPCCOLL_ANY_TAG) const {
        int from = -1;
        check(hpccoll_recv(x.data(), count(x), dtype_of<T>(), source, tag, &from, nullptr, c_));
        return from;
    }
    // Sends and receives at once: rings and shifts cannot deadlock. Returns the rank that has sent what came.
    template <class T>
    int sendrecv(std::span<const T> in, int dest, std::span<T> out, int source, int sendtag = 0,
                 int recvtag = HPCCOLL_ANY_TAG) const {
        int from = -1;
        check(hpccoll_sendrecv(in.data(), count(in), dtype_of<T>(), dest, sendtag, out.data(), count(out), source,
                               recvtag, &from, nullptr, c_));
        return from;
    }
    // Waits for a message that no receive has taken, and describes it. It stays.
    Message probe(int source = HPCCOLL_ANY_SOURCE, int tag = HPCCOLL_ANY_TAG) const {
        Message m;
        check(hpccoll_probe(source, tag, &m.source, &m.tag, &m.bytes, c_));
        return m;
    }
    // The same without a wait: nothing, if no such message has come.
    std::optional<Message> iprobe(int source = HPCCOLL_ANY_SOURCE, int tag = HPCCOLL_ANY_TAG) const {
        Message m;
        int there = 0;
        check(hpccoll_iprobe(source, tag, &there, &m.source, &m.tag, &m.bytes, c_));
        return there ? std::optional<Message>(m) : std::nullopt;
    }

  private:
    static int checked(int value) {
        check(value);
        return value;
    }
    // 0 and nullptr: the library refuses the call, and tells the other ranks.
    template <class T> static int ndims(std::span<T> x, const std::vector<std::int64_t> &shape) {
        std::size_t elements = 1; // the library refuses a product beyond 64 bits
        for (std::int64_t n : shape)
            elements *= static_cast<std::size_t>(n);
        return elements == x.size() ? static_cast<int>(shape.size()) : 0;
    }
    const int *widths(const std::vector<int> &width) const {
        return hpccoll_cart_dims(c_, 0, nullptr) == static_cast<int>(width.size()) ? width.data() : nullptr;
    }
    template <class T> static std::int64_t count(std::span<T> x) { return static_cast<std::int64_t>(x.size()); }
    // Spans that do not fit are a call that this rank refuses, and the other ranks get an error.
    std::int64_t equal(std::size_t in, std::size_t out, hpccoll_operation operation, const hpccoll_args &c) const {
        if (in != out)
            check(hpccoll_refuse(operation, no_fit, &c, c_));
        return static_cast<std::int64_t>(in);
    }
    std::int64_t equal_init(std::size_t in, std::size_t out, hpccoll_operation operation) const {
        if (in != out)
            check(hpccoll_refuse_init(operation, no_fit, c_));
        return static_cast<std::int64_t>(in);
    }
    // Elements of this rank's share. The library refuses rows of no element.
    template <class T> std::size_t share(std::span<const T> in, const Args &args) const {
        return args.row < 1 ? 0
                            : static_cast<std::size_t>(hpccoll_share(count(in) / args.row, size(), rank()) * args.row);
    }
    static constexpr const char *no_splits = "the number of splits is not that of the ranks";
    static constexpr const char *no_vector =
        "a result in device memory needs a span: use the asynchronous form, which takes one";
    static constexpr const char *no_fit = "in and out have sizes that do not fit";
    // Splits are for each rank, or there are none.
    const std::int64_t *of_ranks(std::span<const std::int64_t> splits, hpccoll_operation operation,
                                 const hpccoll_args &c) const {
        if (!splits.empty() && splits.size() != static_cast<std::size_t>(size()))
            check(hpccoll_refuse(operation, no_splits, &c, c_));
        return splits.empty() ? nullptr : splits.data();
    }
    const std::int64_t *of_ranks_init(std::span<const std::int64_t> splits, hpccoll_operation operation) const {
        if (!splits.empty() && splits.size() != static_cast<std::size_t>(size()))
            check(hpccoll_refuse_init(operation, no_splits, c_));
        return splits.empty() ? nullptr : splits.data();
    }
    // A vector is memory of the host.
    void on_host(const void *in, hpccoll_operation operation, const hpccoll_args &c) const {
        if (checked(hpccoll_on_device(in, c_)))
            check(hpccoll_refuse(operation, no_vector, &c, c_));
    }
    std::int64_t *place_for(std::vector<std::int64_t> *counts) const {
        if (counts)
            counts->assign(static_cast<std::size_t>(size()), 0);
        return counts ? counts->data() : nullptr;
    }
    // std::vector<bool> has bits, not an array.
    template <class T> using Array = std::vector<std::conditional_t<std::same_as<T, bool>, unsigned char, T>>;
    template <class T> static std::vector<T> as_vector(Array<T> array) {
        if constexpr (std::same_as<T, bool>)
            return {array.begin(), array.end()};
        else
            return array;
    }
    template <class T> static std::vector<T> take(hpccoll_request *request) {
        void *data = nullptr;
        std::int64_t n = 0;
        check(hpccoll_wait_result(&request, &data, &n));
        const std::unique_ptr<void, void (*)(void *)> owner(data, hpccoll_release);
        const T *first = static_cast<const T *>(data);
        return data ? std::vector<T>(first, first + n) : std::vector<T>();
    }

    hpccoll_world *c_ = nullptr;
};

} // namespace hpccoll

#endif
