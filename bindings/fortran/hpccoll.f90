! SPDX-License-Identifier: Apache-2.0
!
! hpccoll.f90 - the module hpccoll: collective operations on arrays of any shape and of all types that move.
!
! Arrays are assumed-rank, so a scalar, a vector or a matrix is given as it is. They must be contiguous: a section with
! a stride is an error that names the argument. Where rows are cut, counted or concatenated, they run along the last
! dimension. An array in device memory is one of c_f_pointer(). Every procedure has `ierror` as its last optional
! argument, a status: without it an error ends the program. Compile this file and hpccoll_fortran.c, which lies beside
! it, with the compilers of your program.
module hpccoll
  use, intrinsic :: iso_c_binding, only: c_ptr, c_null_ptr, c_associated, c_int, c_int64_t, c_double
  implicit none
  private

  ! ---- codes: those of hpccoll.h -------------------------------------------------------------------------------

  ! HPCCOLL_MINLOC and HPCCOLL_MAXLOC are of pairs of one type, value and index: x(2, n). HPCCOLL_OP_NULL is what
  ! hpccoll_op_free makes of an op. A compression is HPCCOLL_FLOAT16 or HPCCOLL_BFLOAT16.

  ! generated: codes (make bindings)
  enum, bind(c)
    enumerator :: HPCCOLL_OP_NULL = -1, HPCCOLL_AVERAGE = 0, HPCCOLL_SUM = 1, HPCCOLL_MIN = 3, HPCCOLL_MAX = 4, &
      HPCCOLL_PRODUCT = 5, HPCCOLL_BAND = 6, HPCCOLL_BOR = 7, HPCCOLL_BXOR = 8, HPCCOLL_LAND = 9, HPCCOLL_LOR = 10, &
      HPCCOLL_LXOR = 11, HPCCOLL_MINLOC = 64, HPCCOLL_MAXLOC = 65
  end enum
  public :: HPCCOLL_OP_NULL, HPCCOLL_AVERAGE, HPCCOLL_SUM, HPCCOLL_MIN, HPCCOLL_MAX, HPCCOLL_PRODUCT, HPCCOLL_BAND, &
    HPCCOLL_BOR, HPCCOLL_BXOR, HPCCOLL_LAND, HPCCOLL_LOR, HPCCOLL_LXOR, HPCCOLL_MINLOC, HPCCOLL_MAXLOC
  integer(c_int), parameter, public :: HPCCOLL_NO_COMPRESSION = -1, HPCCOLL_BOOL = 0, HPCCOLL_UINT8 = 1, &
    HPCCOLL_INT8 = 2, HPCCOLL_UINT16 = 3, HPCCOLL_INT16 = 4, HPCCOLL_UINT32 = 5, HPCCOLL_INT32 = 6, &
    HPCCOLL_UINT64 = 7, HPCCOLL_INT64 = 8, HPCCOLL_FLOAT16 = 9, HPCCOLL_BFLOAT16 = 10, HPCCOLL_FLOAT32 = 11, &
    HPCCOLL_FLOAT64 = 12, HPCCOLL_COMPLEX64 = 13, HPCCOLL_COMPLEX128 = 14
  integer(c_int), parameter, public :: HPCCOLL_OK = 0, HPCCOLL_MISMATCH = -1, HPCCOLL_DUPLICATE_NAME = -2, &
    HPCCOLL_SHUT_DOWN = -3, HPCCOLL_ROOT_JOINED = -4, HPCCOLL_PEER_LOST = -5, HPCCOLL_STALLED = -6, &
    HPCCOLL_TRANSPORT = -7, HPCCOLL_INVALID = -8, HPCCOLL_NO_MEMORY = -9, HPCCOLL_BAD_MESSAGE = -10, &
    HPCCOLL_FORKED = -11, HPCCOLL_BROKEN = -12, HPCCOLL_UNSUPPORTED = -13, HPCCOLL_RESULT_SIZE = -14
  ! end of generated
  integer(c_int), parameter, public :: HPCCOLL_UNDEFINED = -32766, HPCCOLL_ANY_SOURCE = -1, &
    HPCCOLL_ANY_TAG = -1, HPCCOLL_PROC_NULL = -2

  ! ---- types ---------------------------------------------------------------------------------------------------

  type, bind(c), public :: hpccoll_world
    private
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c), public :: hpccoll_request
    private
    type(c_ptr) :: handle = c_null_ptr
  end type

  type, bind(c), public :: hpccoll_plan
    private
    type(c_ptr) :: handle = c_null_ptr
  end type

  public :: hpccoll_world_create, hpccoll_world_launched, hpccoll_world_alone, hpccoll_world_free, hpccoll_split, &
    hpccoll_subset, hpccoll_rank, hpccoll_size, hpccoll_local_rank, hpccoll_local_size, hpccoll_is_member, &
    hpccoll_share, hpccoll_share_begin, hpccoll_last_error, hpccoll_strerror, hpccoll_lost_ranks, &
    hpccoll_world_changes, hpccoll_leave
  public :: hpccoll_wait, hpccoll_waitall, hpccoll_test, hpccoll_function, hpccoll_op_create, hpccoll_op_free
  ! generated: public (make bindings)
  public :: hpccoll_allreduce, hpccoll_reduce, hpccoll_scan, hpccoll_exscan, hpccoll_broadcast, hpccoll_reducescatter, &
    hpccoll_allgather, hpccoll_gather, hpccoll_scatter, hpccoll_alltoall, hpccoll_barrier, hpccoll_join, hpccoll_send, &
    hpccoll_recv, hpccoll_sendrecv, hpccoll_probe
  public :: hpccoll_allreduce_init, hpccoll_reduce_init, hpccoll_scan_init, hpccoll_exscan_init, &
    hpccoll_broadcast_init, hpccoll_reducescatter_init, hpccoll_allgather_init, hpccoll_gather_init, &
    hpccoll_scatter_init, hpccoll_alltoall_init, hpccoll_barrier_init, hpccoll_send_init, hpccoll_recv_init
  ! end of generated
  public :: hpccoll_dims_create, hpccoll_cart_create, hpccoll_cart_dims, hpccoll_cart_coords, hpccoll_cart_rank, &
    hpccoll_cart_shift, hpccoll_halo_exchange, hpccoll_halo_exchange_init
  public :: hpccoll_iprobe, hpccoll_plan_list, hpccoll_start, hpccoll_startall, hpccoll_plan_free

  ! Leaves each element of `in` combined with that of `inout` in `inout`, both of which c_f_pointer makes arrays of
  ! `count` elements; `in` comes from lower ranks. It is associative, and need not be commutative.
  abstract interface
    subroutine hpccoll_function(in, inout, count, dtype, context) bind(c)
      import
      type(c_ptr), value :: in, inout, context
      integer(c_int64_t), value :: count
      integer(c_int), value :: dtype
    end subroutine
  end interface

  interface
    ! Makes a reduction of the program's own, the `op` of an allreduce, reduce, reducescatter, scan or exscan. block:
    ! elements that belong together (1): combine gets any blocks of an array, and no element may depend on elements of
    ! other blocks; 0: it gets whole arrays. name: for errors; all ranks give the same one.
    subroutine hpccoll_op_create(combine, op, block, name, ierror) bind(c, name="hpccoll_f_op_create")
      import
      procedure(hpccoll_function) :: combine
      integer(c_int), intent(out) :: op
      integer(c_int), intent(in), optional :: block
      character(len=*), intent(in), optional :: name
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_op_free(op, ierror) bind(c, name="hpccoll_f_op_free")
      import
      integer(c_int), intent(inout) :: op
      integer(c_int), intent(out), optional :: ierror
    end subroutine
  end interface

  ! Of requests and of plans: blocks until they are over.
  interface hpccoll_wait
    procedure wait_request, wait_plan
  end interface
  interface hpccoll_waitall
    procedure wait_requests, wait_plans
  end interface
  interface hpccoll_test
    procedure test_request, test_plan
  end interface

  interface
    ! comm: an integer of mpi, or a type(MPI_Comm) of mpi_f08. options: knobs, as "stall_limit=60 verbose=0".
    subroutine hpccoll_world_create(comm, world, options, ierror) bind(c, name="hpccoll_f_world")
      import
      type(*), intent(in) :: comm
      type(hpccoll_world), intent(out) :: world
      character(len=*), intent(in), optional :: options
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! The World of all processes that a launcher has started, without MPI: see hpccoll_world_from_launcher in hpccoll.h.
    subroutine hpccoll_world_launched(world, options, ierror) bind(c, name="hpccoll_f_launched")
      import
      type(hpccoll_world), intent(out) :: world
      character(len=*), intent(in), optional :: options
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_world_alone(world, options, ierror) bind(c, name="hpccoll_f_alone")
      import
      type(hpccoll_world), intent(out) :: world
      character(len=*), intent(in), optional :: options
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_world_free(world, ierror) bind(c, name="hpccoll_f_free")
      import
      type(hpccoll_world), intent(inout) :: world
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_split(world, color, key, part, ierror) bind(c, name="hpccoll_f_split")
      import
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(in) :: color, key
      type(hpccoll_world), intent(out) :: part
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_subset(world, ranks, subset, ierror) bind(c, name="hpccoll_f_subset")
      import
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(in) :: ranks(..)
      type(hpccoll_world), intent(out) :: subset
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine lost_n(world, capacity, ranks, count, ierror) bind(c, name="hpccoll_f_lost_ranks")
      import
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(in) :: capacity
      integer(c_int), intent(inout) :: ranks(*)
      integer(c_int), intent(out) :: count
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine world_changes(world, changes, ierror) bind(c, name="hpccoll_f_world_changes")
      import
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(out) :: changes
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! Asks the launcher of an elastic job to take this rank out of it.
    subroutine hpccoll_leave(world, ierror) bind(c, name="hpccoll_f_leave")
      import
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_last_error(text) bind(c, name="hpccoll_f_last_error")
      character(len=*), intent(out) :: text
    end subroutine
    subroutine hpccoll_strerror(status, text) bind(c, name="hpccoll_f_strerror")
      import
      integer(c_int), intent(in) :: status
      character(len=*), intent(out) :: text
    end subroutine
    subroutine wait_request(request, ierror) bind(c, name="hpccoll_f_wait")
      import
      type(hpccoll_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine wait_for_n(n, requests, ierror) bind(c, name="hpccoll_f_waitall")
      import
      integer(c_int), intent(in) :: n
      type(hpccoll_request), intent(inout) :: requests(*)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine probe_now(source, tag, world, there, from, found_tag, bytes, ierror) bind(c, name="hpccoll_f_iprobe")
      import
      integer(c_int), intent(in) :: source, tag
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(out) :: there
      integer(c_int), intent(out), optional :: from, found_tag
      integer(c_int64_t), intent(out), optional :: bytes
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine test_one(request, done, ierror) bind(c, name="hpccoll_f_test")
      import
      type(hpccoll_request), intent(inout) :: request
      integer(c_int), intent(out) :: done
      integer(c_int), intent(out), optional :: ierror
    end subroutine
  end interface

  interface
    integer(c_int) function hpccoll_rank(world) bind(c, name="hpccoll_f_rank")
      import
      type(hpccoll_world), intent(in) :: world
    end function
    integer(c_int) function hpccoll_size(world) bind(c, name="hpccoll_f_size")
      import
      type(hpccoll_world), intent(in) :: world
    end function
    integer(c_int) function hpccoll_local_rank(world) bind(c, name="hpccoll_f_local_rank")
      import
      type(hpccoll_world), intent(in) :: world
    end function
    integer(c_int) function hpccoll_local_size(world) bind(c, name="hpccoll_f_local_size")
      import
      type(hpccoll_world), intent(in) :: world
    end function
  end interface

  ! ---- grids of ranks and halos: dimensions, ranks and coordinates are numbered from 0, as in MPI ------------

  interface
    ! Replaces the zeros in dims so that the product of all extents is `size`, as evenly as possible.
    subroutine hpccoll_dims_create(size, dims, ierror) bind(c, name="hpccoll_f_dims_create")
      import
      integer(c_int), intent(in) :: size
      integer(c_int), intent(inout) :: dims(..)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine create_cart(world, ndims, dims, periods, cart, ierror) bind(c, name="hpccoll_f_cart_create")
      import
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(in) :: ndims, dims(*), periods(*)
      type(hpccoll_world), intent(out) :: cart
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_cart_dims(cart, dims, ierror) bind(c, name="hpccoll_f_cart_dims")
      import
      type(hpccoll_world), intent(in) :: cart
      integer(c_int), intent(inout) :: dims(..)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_cart_coords(cart, rank, coords, ierror) bind(c, name="hpccoll_f_cart_coords")
      import
      type(hpccoll_world), intent(in) :: cart
      integer(c_int), intent(in) :: rank
      integer(c_int), intent(inout) :: coords(..)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! The rank at these coordinates; HPCCOLL_PROC_NULL: they lie beyond an end of the grid.
    subroutine hpccoll_cart_rank(cart, coords, rank, ierror) bind(c, name="hpccoll_f_cart_rank")
      import
      type(hpccoll_world), intent(in) :: cart
      integer(c_int), intent(in) :: coords(..)
      integer(c_int), intent(out) :: rank
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! The ranks that a shift receives from and sends to; HPCCOLL_PROC_NULL: there is none.
    subroutine hpccoll_cart_shift(cart, dimension, displacement, source, dest, ierror) &
        bind(c, name="hpccoll_f_cart_shift")
      import
      type(hpccoll_world), intent(in) :: cart
      integer(c_int), intent(in) :: dimension, displacement
      integer(c_int), intent(out) :: source, dest
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! A plan that fills the halo of u from the neighbours on the grid, as hpccoll_halo_exchange_init in hpccoll.h. The
    ! first dimension of u is divided along the first one of the grid, and so on. u may be a section with strides.
    ! width: for each dimension of the grid, or one number for all. corners: a logical, also the corners and edges
    ! (.true.).
    ! Without bind(c), gfortran 12 would give it a copy of a component, u = cells%value.
    ! With it, a logical of the default kind is no dummy argument (Fortran 2018, 18.3.6), so corners is of any type.
    subroutine hpccoll_halo_exchange_init(u, width, cart, plan, corners, ierror) &
        bind(c, name="hpccoll_f_halo_exchange_init")
      import
      type(*), asynchronous :: u(..)
      integer(c_int), intent(in) :: width(..)
      type(hpccoll_world), intent(in) :: cart
      type(hpccoll_plan), intent(out) :: plan
      type(*), intent(in), optional :: corners(..)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! The same once, without a plan.
    subroutine hpccoll_halo_exchange(u, width, cart, corners, ierror) bind(c, name="hpccoll_f_halo_exchange")
      import
      type(*), asynchronous :: u(..)
      integer(c_int), intent(in) :: width(..)
      type(hpccoll_world), intent(in) :: cart
      type(*), intent(in), optional :: corners(..)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
  end interface

  ! ---- collectives and messages: with `request` they return at once, and it is to be waited for -------------

  interface
    ! generated: procedures (make bindings)
    ! Without `out` the result replaces x.
    subroutine hpccoll_allreduce(x, op, world, out, name, prescale, postscale, compression, request, ierror) &
        bind(c, name="hpccoll_f_allreduce")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: op
      type(hpccoll_world), intent(in) :: world
      type(*), optional, asynchronous :: out(..)
      character(len=*), intent(in), optional :: name
      real(c_double), intent(in), optional :: prescale, postscale
      integer(c_int), intent(in), optional :: compression
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! Only `root` (from 0) has a result.
    subroutine hpccoll_reduce(x, op, root, world, out, name, prescale, postscale, request, ierror) &
        bind(c, name="hpccoll_f_reduce")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: op, root
      type(hpccoll_world), intent(in) :: world
      type(*), optional, asynchronous :: out(..)
      character(len=*), intent(in), optional :: name
      real(c_double), intent(in), optional :: prescale, postscale
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! The reduction over ranks 0 to this one.
    subroutine hpccoll_scan(x, op, world, out, name, prescale, postscale, request, ierror) &
        bind(c, name="hpccoll_f_scan")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: op
      type(hpccoll_world), intent(in) :: world
      type(*), optional, asynchronous :: out(..)
      character(len=*), intent(in), optional :: name
      real(c_double), intent(in), optional :: prescale, postscale
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! The reduction over the ranks before this one; on rank 0 the neutral element.
    subroutine hpccoll_exscan(x, op, world, out, name, prescale, postscale, request, ierror) &
        bind(c, name="hpccoll_f_exscan")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: op
      type(hpccoll_world), intent(in) :: world
      type(*), optional, asynchronous :: out(..)
      character(len=*), intent(in), optional :: name
      real(c_double), intent(in), optional :: prescale, postscale
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_broadcast(x, root, world, name, request, ierror) bind(c, name="hpccoll_f_broadcast")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: root
      type(hpccoll_world), intent(in) :: world
      character(len=*), intent(in), optional :: name
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! out: this rank's share of the sum along the last dimension (hpccoll_share).
    subroutine hpccoll_reducescatter(x, out, op, world, name, prescale, postscale, request, ierror) &
        bind(c, name="hpccoll_f_reducescatter")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      integer(c_int), intent(in) :: op
      type(hpccoll_world), intent(in) :: world
      character(len=*), intent(in), optional :: name
      real(c_double), intent(in), optional :: prescale, postscale
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! out: all ranks' x, one behind the other along the last dimension. counts: of each rank.
    subroutine hpccoll_allgather(x, out, world, counts, name, request, ierror) bind(c, name="hpccoll_f_allgather")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      type(hpccoll_world), intent(in) :: world
      integer(c_int64_t), intent(out), optional, asynchronous :: counts(*)
      character(len=*), intent(in), optional :: name
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! As allgather, on `root` alone; out of the others is not read.
    subroutine hpccoll_gather(x, out, root, world, counts, name, request, ierror) bind(c, name="hpccoll_f_gather")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      integer(c_int), intent(in) :: root
      type(hpccoll_world), intent(in) :: world
      integer(c_int64_t), intent(out), optional, asynchronous :: counts(*)
      character(len=*), intent(in), optional :: name
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! splits: rows for each rank, on the root; without it as hpccoll_share says.
    subroutine hpccoll_scatter(x, out, root, world, splits, name, request, ierror) bind(c, name="hpccoll_f_scatter")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      integer(c_int), intent(in) :: root
      type(hpccoll_world), intent(in) :: world
      integer(c_int64_t), intent(in), optional :: splits(*)
      character(len=*), intent(in), optional :: name
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! splits: rows for each rank; without it as many for each.
    subroutine hpccoll_alltoall(x, out, world, splits, recv_counts, name, request, ierror) &
        bind(c, name="hpccoll_f_alltoall")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      type(hpccoll_world), intent(in) :: world
      integer(c_int64_t), intent(in), optional :: splits(*)
      integer(c_int64_t), intent(out), optional, asynchronous :: recv_counts(*)
      character(len=*), intent(in), optional :: name
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_barrier(world, name, request, ierror) bind(c, name="hpccoll_f_barrier")
      import
      type(hpccoll_world), intent(in) :: world
      character(len=*), intent(in), optional :: name
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! This rank has no more collectives: takes part in those of the others with neutral elements until all have joined.
    ! last: the rank that joined last.
    subroutine hpccoll_join(world, last, ierror) bind(c, name="hpccoll_f_join")
      import
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(out), optional :: last, ierror
    end subroutine
    subroutine hpccoll_send(x, dest, tag, world, request, ierror) bind(c, name="hpccoll_f_send")
      import
      type(*), intent(in), asynchronous :: x(..)
      integer(c_int), intent(in) :: dest, tag
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! from: the rank that has sent it; received: how many elements came, which may be fewer than x has.
    subroutine hpccoll_recv(x, source, tag, world, from, received, request, ierror) bind(c, name="hpccoll_f_recv")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: source, tag
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(out), optional, asynchronous :: from
      integer(c_int64_t), intent(out), optional, asynchronous :: received
      type(hpccoll_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! Sends x and receives into `out` at once: rings and shifts cannot deadlock. x and `out` have one type.
    subroutine hpccoll_sendrecv(x, out, dest, source, sendtag, recvtag, world, from, received, ierror) &
        bind(c, name="hpccoll_f_sendrecv")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      integer(c_int), intent(in) :: dest, source, sendtag, recvtag
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(out), optional, asynchronous :: from
      integer(c_int64_t), intent(out), optional, asynchronous :: received
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! Waits for a message that no receive has taken, and describes it. It stays: the next receive that matches takes it.
    subroutine hpccoll_probe(source, tag, world, from, found_tag, bytes, ierror) bind(c, name="hpccoll_f_probe")
      import
      integer(c_int), intent(in) :: source, tag
      type(hpccoll_world), intent(in) :: world
      integer(c_int), intent(out), optional, asynchronous :: from
      integer(c_int), intent(out), optional :: found_tag
      integer(c_int64_t), intent(out), optional :: bytes
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! end of generated
  end interface

  ! ---- plans: as the procedures without _init, which see; every start uses these arrays again. Give them the attribute
  ! asynchronous, and wait for the last start before they end. ---------------------------------------------------------

  interface
    ! generated: plans (make bindings)
    subroutine hpccoll_allreduce_init(x, op, world, plan, out, prescale, postscale, compression, ierror) &
        bind(c, name="hpccoll_f_allreduce_init")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: op
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      type(*), optional, asynchronous :: out(..)
      real(c_double), intent(in), optional :: prescale, postscale
      integer(c_int), intent(in), optional :: compression
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_reduce_init(x, op, root, world, plan, out, prescale, postscale, ierror) &
        bind(c, name="hpccoll_f_reduce_init")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: op, root
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      type(*), optional, asynchronous :: out(..)
      real(c_double), intent(in), optional :: prescale, postscale
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_scan_init(x, op, world, plan, out, prescale, postscale, ierror) &
        bind(c, name="hpccoll_f_scan_init")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: op
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      type(*), optional, asynchronous :: out(..)
      real(c_double), intent(in), optional :: prescale, postscale
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_exscan_init(x, op, world, plan, out, prescale, postscale, ierror) &
        bind(c, name="hpccoll_f_exscan_init")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: op
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      type(*), optional, asynchronous :: out(..)
      real(c_double), intent(in), optional :: prescale, postscale
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_broadcast_init(x, root, world, plan, ierror) bind(c, name="hpccoll_f_broadcast_init")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: root
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_reducescatter_init(x, out, op, world, plan, prescale, postscale, ierror) &
        bind(c, name="hpccoll_f_reducescatter_init")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      integer(c_int), intent(in) :: op
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      real(c_double), intent(in), optional :: prescale, postscale
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_allgather_init(x, out, world, plan, counts, ierror) bind(c, name="hpccoll_f_allgather_init")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      integer(c_int64_t), intent(out), optional, asynchronous :: counts(*)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_gather_init(x, out, root, world, plan, counts, ierror) bind(c, name="hpccoll_f_gather_init")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      integer(c_int), intent(in) :: root
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      integer(c_int64_t), intent(out), optional, asynchronous :: counts(*)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_scatter_init(x, out, root, world, plan, splits, ierror) bind(c, name="hpccoll_f_scatter_init")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      integer(c_int), intent(in) :: root
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      integer(c_int64_t), intent(in), optional :: splits(*)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_alltoall_init(x, out, world, plan, splits, recv_counts, ierror) &
        bind(c, name="hpccoll_f_alltoall_init")
      import
      type(*), intent(in), asynchronous :: x(..)
      type(*), asynchronous :: out(..)
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      integer(c_int64_t), intent(in), optional :: splits(*)
      integer(c_int64_t), intent(out), optional, asynchronous :: recv_counts(*)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_barrier_init(world, plan, ierror) bind(c, name="hpccoll_f_barrier_init")
      import
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_send_init(x, dest, tag, world, plan, ierror) bind(c, name="hpccoll_f_send_init")
      import
      type(*), intent(in), asynchronous :: x(..)
      integer(c_int), intent(in) :: dest, tag
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! from, received: written when each start is waited for; they live as long as the plan.
    subroutine hpccoll_recv_init(x, source, tag, world, plan, from, received, ierror) &
        bind(c, name="hpccoll_f_recv_init")
      import
      type(*), asynchronous :: x(..)
      integer(c_int), intent(in) :: source, tag
      type(hpccoll_world), intent(in) :: world
      type(hpccoll_plan), intent(out) :: plan
      integer(c_int), intent(out), optional, asynchronous :: from
      integer(c_int64_t), intent(out), optional, asynchronous :: received
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    ! end of generated
    subroutine list_n(n, plans, list, ierror) bind(c, name="hpccoll_f_plan_list")
      import
      integer(c_int), intent(in) :: n
      type(hpccoll_plan), intent(inout) :: plans(*)
      type(hpccoll_plan), intent(out) :: list
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_start(plan, ierror) bind(c, name="hpccoll_f_start")
      import
      type(hpccoll_plan), intent(in) :: plan
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine start_n(n, plans, ierror) bind(c, name="hpccoll_f_startall")
      import
      integer(c_int), intent(in) :: n
      type(hpccoll_plan), intent(in) :: plans(*)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine wait_plan(plan, ierror) bind(c, name="hpccoll_f_plan_wait")
      import
      type(hpccoll_plan), intent(in) :: plan
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine wait_for_n_plans(n, plans, ierror) bind(c, name="hpccoll_f_plan_waitall")
      import
      integer(c_int), intent(in) :: n
      type(hpccoll_plan), intent(in) :: plans(*)
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine test_one_plan(plan, done, ierror) bind(c, name="hpccoll_f_plan_test")
      import
      type(hpccoll_plan), intent(in) :: plan
      integer(c_int), intent(out) :: done
      integer(c_int), intent(out), optional :: ierror
    end subroutine
    subroutine hpccoll_plan_free(plan, ierror) bind(c, name="hpccoll_f_plan_free")
      import
      type(hpccoll_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: ierror
    end subroutine
  end interface

contains

  ! Whether this rank is in what split or subset have made.
  pure logical function hpccoll_is_member(world)
    type(hpccoll_world), intent(in) :: world
    hpccoll_is_member = c_associated(world%handle)
  end function

  ! The ranks that were lost: the first size(ranks) of them. count: how many there are.
  subroutine hpccoll_lost_ranks(world, ranks, count, ierror)
    type(hpccoll_world), intent(in) :: world
    integer(c_int), intent(inout), contiguous :: ranks(:)
    integer(c_int), intent(out) :: count
    integer(c_int), intent(out), optional :: ierror
    count = 0
    call lost_n(world, size(ranks, kind=c_int), ranks, count, ierror)
  end subroutine

  ! Whether the ranks of an elastic job are about to change: the same on all ranks. See hpccoll_world_changes in
  ! hpccoll.h.
  subroutine hpccoll_world_changes(world, changes, ierror)
    type(hpccoll_world), intent(in) :: world
    logical, intent(out) :: changes
    integer(c_int), intent(out), optional :: ierror
    integer(c_int) :: found
    found = 0
    call world_changes(world, found, ierror)
    changes = found /= 0
  end subroutine

  ! Rows of the share of rank r (from 0) of `rows` among `size` ranks, and how many are before them.
  pure integer(c_int64_t) function hpccoll_share(rows, size, r)
    integer, intent(in) :: rows, size, r
    hpccoll_share = rows / size + merge(1, 0, r < mod(rows, size))
  end function

  pure integer(c_int64_t) function hpccoll_share_begin(rows, size, r)
    integer, intent(in) :: rows, size, r
    hpccoll_share_begin = r * (rows / size) + min(r, mod(rows, size))
  end function

  ! A World of the first ranks of `world` on a grid with these extents, in row-major order. A 0 in dims is chosen as by
  ! hpccoll_dims_create. periods: whether the ends of each dimension touch. hpccoll_is_member(cart) is false on ranks
  ! for which there is no place.
  subroutine hpccoll_cart_create(world, dims, periods, cart, ierror)
    type(hpccoll_world), intent(in) :: world
    integer(c_int), intent(in) :: dims(:)
    logical, intent(in) :: periods(:)
    type(hpccoll_world), intent(out) :: cart
    integer(c_int), intent(out), optional :: ierror
    integer(c_int) :: extents(size(dims)), touch(size(dims)), n
    n = size(dims, kind=c_int)
    if (size(periods) /= size(dims)) n = 0
    extents = dims
    touch = 0
    if (n > 0) touch = merge(1_c_int, 0_c_int, periods)
    call create_cart(world, n, extents, touch, cart, ierror)
  end subroutine

  subroutine wait_requests(requests, ierror)
    type(hpccoll_request), intent(inout), contiguous :: requests(:)
    integer(c_int), intent(out), optional :: ierror
    call wait_for_n(size(requests, kind=c_int), requests, ierror)
  end subroutine

  ! One plan of several, which it takes over.
  subroutine hpccoll_plan_list(plans, list, ierror)
    type(hpccoll_plan), intent(inout), contiguous :: plans(:)
    type(hpccoll_plan), intent(out) :: list
    integer(c_int), intent(out), optional :: ierror
    call list_n(size(plans, kind=c_int), plans, list, ierror)
  end subroutine

  subroutine hpccoll_startall(plans, ierror)
    type(hpccoll_plan), intent(in), contiguous :: plans(:)
    integer(c_int), intent(out), optional :: ierror
    call start_n(size(plans, kind=c_int), plans, ierror)
  end subroutine

  subroutine wait_plans(plans, ierror)
    type(hpccoll_plan), intent(in), contiguous :: plans(:)
    integer(c_int), intent(out), optional :: ierror
    call wait_for_n_plans(size(plans, kind=c_int), plans, ierror)
  end subroutine

  subroutine test_plan(plan, done, ierror)
    type(hpccoll_plan), intent(in) :: plan
    logical, intent(out) :: done
    integer(c_int), intent(out), optional :: ierror
    integer(c_int) :: found
    found = 0
    call test_one_plan(plan, found, ierror)
    done = found /= 0
  end subroutine

  subroutine test_request(request, done, ierror)
    type(hpccoll_request), intent(inout) :: request
    logical, intent(out) :: done
    integer(c_int), intent(out), optional :: ierror
    integer(c_int) :: found
    found = 0
    call test_one(request, found, ierror)
    done = found /= 0
  end subroutine

  ! As hpccoll_probe, without a wait. there: false, and nothing else is written, if no such message has come. One that
  ! was sent is there after some calls at the latest.
  subroutine hpccoll_iprobe(source, tag, world, there, from, found_tag, bytes, ierror)
    integer(c_int), intent(in) :: source, tag
    type(hpccoll_world), intent(in) :: world
    logical, intent(out) :: there
    integer(c_int), intent(out), optional :: from, found_tag
    integer(c_int64_t), intent(out), optional :: bytes
    integer(c_int), intent(out), optional :: ierror
    integer(c_int) :: found
    found = 0
    call probe_now(source, tag, world, found, from, found_tag, bytes, ierror)
    there = found /= 0
  end subroutine
end module
