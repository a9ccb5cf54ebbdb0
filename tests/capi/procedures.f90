! SPDX-License-Identifier: Apache-2.0
!
! procedures.f90 - the procedures of the module hpccoll: results, types, shapes, and errors.
program procedures
  use mpi_f08
  use hpccoll
  use, intrinsic :: iso_c_binding
  implicit none
  type(hpccoll_world) :: world, part
  integer :: rank, ranks

  call MPI_Init()
  call hpccoll_world_create(MPI_COMM_WORLD, world, "verbose=0")
  rank = hpccoll_rank(world)
  ranks = hpccoll_size(world)
  call check(hpccoll_local_size(world) >= 1 .and. hpccoll_local_rank(world) >= 0, "local ranks")
  call reductions()
  call own_reductions()
  call rows()
  call requests()
  call plans()
  call rooted_and_prefix_plans()
  call sections()
  call errors()
  call refused_by_one()
  call joined()
  call hpccoll_split(world, mod(rank, 2), 0, part)
  call check(hpccoll_size(part) == (ranks + 1 - mod(rank, 2))/2, "split")
  call hpccoll_world_free(part)
  call hpccoll_subset(world, [0], part)
  call check(hpccoll_is_member(part) .eqv. rank == 0, "subset")
  call hpccoll_world_free(part)
  call hpccoll_world_free(world)
  call MPI_Finalize()
  if (rank == 0) print "(a)", "fine"

contains

  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    character(len=500) :: text
    if (good) return
    call hpccoll_last_error(text)
    print "(a, i0, 4a)", "rank ", rank, ": ", what, ": ", trim(text)
    error stop 1
  end subroutine

  subroutine reductions()
    real(c_double) :: x, matrix(3, 4), y(3, 4), triple
    real(c_float) :: f(5)
    integer(c_int) :: i
    integer(c_int64_t) :: long(2)
    complex(c_double_complex) :: z
    character(len=:), allocatable :: no_name
    triple = ranks*(ranks - 1)/2
    x = rank
    call hpccoll_allreduce(x, HPCCOLL_SUM, world)
    call check(x == triple, "sum of a scalar")
    matrix = rank
    call hpccoll_allreduce(matrix, HPCCOLL_AVERAGE, world, out=y)
    call check(all(y == triple/ranks) .and. all(matrix == rank), "mean of a matrix")
    f = real(rank, c_float)
    call hpccoll_allreduce(f, HPCCOLL_MAX, world, name="a name   ")
    call check(all(f == ranks - 1), "real32")
    call hpccoll_allreduce(f, HPCCOLL_MIN, world, name=no_name) ! not allocated: an argument that is absent
    call check(all(f == ranks - 1), "a name that is not allocated")
    i = rank
    call hpccoll_scan(i, HPCCOLL_SUM, world)
    call check(i == rank*(rank + 1)/2, "scan")
    i = rank
    call hpccoll_exscan(i, HPCCOLL_SUM, world)
    call check(i == rank*(rank - 1)/2 .or. rank == 0, "exscan")
    long = rank
    call hpccoll_reduce(long, HPCCOLL_MIN, 0, world)
    call check(all(long == rank), "reduce")
    z = cmplx(rank, 1, c_double_complex)
    call hpccoll_allreduce(z, HPCCOLL_SUM, world, prescale=2.0_c_double)
    call check(z == cmplx(2*triple, 2*ranks, c_double_complex), "complex, prescaled")
    x = rank
    call hpccoll_broadcast(x, ranks - 1, world)
    call check(x == ranks - 1, "broadcast")
    call hpccoll_barrier(world)
  end subroutine

  ! Columns are what is cut and concatenated.
  subroutine rows()
    real(c_double), allocatable :: x(:, :), y(:, :), z(:, :)
    integer(c_int64_t) :: counts(ranks), each(ranks)
    integer :: r, at
    allocate (x(2, rank + 1), y(2, ranks*(ranks + 1)/2), z(2, ranks))
    x = rank
    call hpccoll_allgather(x, y, world, counts)
    at = 0
    do r = 0, ranks - 1
      call check(counts(r + 1) == r + 1 .and. all(y(:, at + 1:at + r + 1) == r), "allgather")
      at = at + r + 1
    end do
    if (rank == 0) then
      call hpccoll_gather(x, y, 0, world, counts)
      call check(counts(ranks) == ranks .and. all(y(:, at) == ranks - 1), "gather")
    else
      deallocate (y)
      call hpccoll_gather(x, y, 0, world)
    end if
    deallocate (x)
    allocate (x(2, 1))
    z = reshape([(real(r, c_double), r=0, 2*ranks - 1)], [2, ranks])
    call hpccoll_scatter(z, x, 0, world)
    call check(all(x(:, 1) == [2*rank, 2*rank + 1]), "scatter")
    z = rank
    each = 1
    call hpccoll_alltoall(z, z, world, splits=each, ierror=at)
    call expect(at, HPCCOLL_INVALID, "out overlaps the input")
    deallocate (x)
    allocate (x(2, ranks))
    call hpccoll_alltoall(z, x, world, each, counts)
    call check(all(counts == 1) .and. all(x(1, :) == [(real(r, c_double), r=0, ranks - 1)]), "alltoall")
    deallocate (x)
    allocate (x(2, 1))
    call hpccoll_reducescatter(z, x, HPCCOLL_SUM, world)
    call check(all(x == ranks*(ranks - 1)/2), "reducescatter")
  end subroutine

  subroutine rooted_and_prefix_plans()
    type(hpccoll_plan) :: some(4)
    real(c_double), asynchronous :: mine(2, 1), given(2, ranks), taken(2, 1), prefix(2)
    real(c_double), asynchronous, allocatable :: everybody(:, :)
    integer, asynchronous :: before
    integer(c_int64_t) :: each(ranks), counts(ranks)
    integer :: step, i
    each = 1
    if (rank == 0) allocate (everybody(2, ranks)) ! the others' is not read
    call hpccoll_gather_init(mine, everybody, 0, world, some(1), counts)
    call check(rank /= 0 .or. all(counts == 1), "counts of a plan of a gather")
    call hpccoll_scatter_init(given, taken, ranks - 1, world, some(2), each)
    call hpccoll_scan_init(prefix, HPCCOLL_SUM, world, some(3))
    call hpccoll_exscan_init(before, HPCCOLL_SUM, world, some(4))
    do step = 1, 3
      mine = rank*step
      given = reshape([(real(i*step, c_double), i=0, 2*ranks - 1)], [2, ranks])
      prefix = step
      before = step
      call hpccoll_startall(some)
      call hpccoll_waitall(some)
      if (rank == 0) call check(all(everybody(1, :) == [(i*step*1.0_c_double, i=0, ranks - 1)]), "a plan of a gather")
      call check(all(taken(:, 1) == [2*rank*step, (2*rank + 1)*step]), "a plan of a scatter")
      call check(all(prefix == (rank + 1)*step), "a plan of a scan")
      call check(before == rank*step, "a plan of an exscan")
    end do
    do i = 1, 4
      call hpccoll_plan_free(some(i))
    end do
  end subroutine

  subroutine plans()
    type(hpccoll_plan) :: some(6), ring(2), both
    real(c_double), asynchronous :: x(3), y(3), sums(1), everybody(2, ranks), mine(2, 1), given(ranks), taken(ranks)
    integer(c_int), asynchronous :: from, i
    integer(c_int64_t), asynchronous :: received
    integer(c_int64_t) :: counts(ranks)
    integer :: step, status
    logical :: done
    call hpccoll_allreduce_init(x, HPCCOLL_SUM, world, some(1), out=y, prescale=2.0_c_double)
    call hpccoll_reduce_init(i, HPCCOLL_MAX, ranks - 1, world, some(2))
    call hpccoll_allgather_init(mine, everybody, world, some(3), counts)
    call check(all(counts == 1), "counts of a plan")
    call hpccoll_alltoall_init(given, taken, world, some(4))
    call hpccoll_reducescatter_init(everybody, mine, HPCCOLL_SUM, world, some(5), ierror=status)
    call check(status == HPCCOLL_OK, "a plan of a reducescatter")
    call hpccoll_plan_free(some(5))
    call hpccoll_broadcast_init(sums, 0, world, some(5))
    call hpccoll_barrier_init(world, some(6))
    call hpccoll_recv_init(given, HPCCOLL_ANY_SOURCE, 3, world, ring(1), from, received)
    call hpccoll_send_init(x(1:1), mod(rank + 1, ranks), 3, world, ring(2))
    call hpccoll_plan_list(ring, both)
    do step = 1, 3
      x = step
      i = rank + step
      mine = rank*step
      sums = merge(step, 0, rank == 0)
      given = [(real(rank + status*step, c_double), status=0, ranks - 1)]
      call hpccoll_startall(some)
      call hpccoll_waitall(some)
      call check(all(y == 2*step*ranks), "a plan of an allreduce")
      call check(i == ranks - 1 + step .or. rank /= ranks - 1, "a plan of a reduce")
      call check(all(everybody(1, :) == [(real(status*step, c_double), status=0, ranks - 1)]), "a plan of an allgather")
      call check(all(taken == [(real(status + rank*step, c_double), status=0, ranks - 1)]), "a plan of an alltoall")
      call check(sums(1) == step, "a plan of a broadcast")
      call hpccoll_start(both)
      done = .false.
      do while (.not. done)
        call hpccoll_test(both, done)
      end do
      call check(given(1) == step .and. received == 1 .and. from == mod(rank + ranks - 1, ranks), "plans of messages")
    end do
    call hpccoll_allreduce_init(x(::2), HPCCOLL_SUM, world, ring(1), ierror=status)
    call expect(status, HPCCOLL_INVALID, "hpccoll_allreduce_init: x is not contiguous")
    do step = 1, 6
      call hpccoll_plan_free(some(step))
    end do
    call hpccoll_plan_free(both)
    call hpccoll_start(both, status)
    call expect(status, HPCCOLL_INVALID, "the plan is NULL")
  end subroutine

  subroutine requests()
    type(hpccoll_request) :: both(2), one
    real(c_double), asynchronous :: mine(10), theirs(10), sum(3)
    integer(c_int), asynchronous :: from
    logical :: done
    mine = rank
    call hpccoll_recv(theirs, HPCCOLL_ANY_SOURCE, HPCCOLL_ANY_TAG, world, from, request=both(1))
    call hpccoll_send(mine, mod(rank + 1, ranks), 4, world, request=both(2))
    call hpccoll_waitall(both)
    call check(from == mod(rank + ranks - 1, ranks) .and. all(theirs == from), "messages")
    call shifts()
    sum = 1
    call hpccoll_allreduce(sum, HPCCOLL_SUM, world, name="asynchronous", request=one)
    done = .false.
    do while (.not. done)
      call hpccoll_test(one, done)
    end do
    call check(all(sum == ranks), "asynchronous sum")
  end subroutine

  subroutine shifts()
    real(c_double), asynchronous :: mine(2, 3), theirs(8)
    integer(c_int), asynchronous :: from
    integer(c_int64_t), asynchronous :: received
    integer(c_int) :: right, left, tag
    integer(c_int64_t) :: bytes
    logical :: there
    right = mod(rank + 1, ranks)
    left = mod(rank + ranks - 1, ranks)
    mine = rank
    theirs = -1
    call hpccoll_sendrecv(mine, theirs, right, left, 6, HPCCOLL_ANY_TAG, world, from, received)
    call check(from == left .and. received == 6 .and. all(theirs(:6) == left) .and. all(theirs(7:) == -1), &
      "a shift in a ring")
    if (rank == 0) left = HPCCOLL_PROC_NULL
    if (rank == ranks - 1) right = HPCCOLL_PROC_NULL
    call hpccoll_sendrecv(mine, theirs, right, left, 6, 6, world, from)
    call check(from == left, "a shift in a line")
    left = mod(rank + ranks - 1, ranks)
    call hpccoll_iprobe(HPCCOLL_ANY_SOURCE, 18, world, there)
    call check(.not. there, "no message")
    call hpccoll_send(mine, mod(rank + 1, ranks), 17, world)
    call hpccoll_probe(HPCCOLL_ANY_SOURCE, HPCCOLL_ANY_TAG, world, from, tag, bytes)
    call check(from == left .and. tag == 17 .and. bytes == 48, "a probe")
    call hpccoll_iprobe(left, 17, world, there, from, tag, bytes)
    call check(there .and. from == left .and. tag == 17 .and. bytes == 48, "a probe without a wait")
    call hpccoll_recv(theirs, from, tag, world)
  end subroutine

  ! The others have joined when rank 0 sums, and count as zeros.
  subroutine joined()
    real(c_double) :: x
    integer(c_int) :: last
    x = 5
    if (rank == 0) call hpccoll_allreduce(x, HPCCOLL_SUM, world, name="of rank 0 alone")
    call check(x == 5, "a sum of one rank")
    call hpccoll_join(world, last)
    call check(last == 0, "join")
  end subroutine

  subroutine expect(status, wanted, words)
    integer(c_int), intent(in) :: status, wanted
    character(len=*), intent(in) :: words
    character(len=500) :: text
    call hpccoll_last_error(text)
    call check(status == wanted .and. index(text, words) > 0, words)
  end subroutine

  ! The larger part of each complex number, as real and imaginary parts: an op of the program's own.
  subroutine larger_parts(in, inout, count, dtype, context) bind(c)
    type(c_ptr), value :: in, inout, context
    integer(c_int64_t), value :: count
    integer(c_int), value :: dtype
    complex(c_double_complex), pointer :: a(:), b(:)
    call c_f_pointer(in, a, [count])
    call c_f_pointer(inout, b, [count])
    b = cmplx(max(real(a), real(b)), max(aimag(a), aimag(b)), c_double_complex)
    call check(dtype == HPCCOLL_COMPLEX128 .and. .not. c_associated(context), "arguments of an op")
  end subroutine

  subroutine own_reductions()
    integer(c_int) :: op, whole, pairs(2, 3), status
    complex(c_double_complex) :: z(4)
    type(hpccoll_plan) :: plan
    pairs = reshape([rank, rank, -rank, rank, 5, rank], [2, 3])
    call hpccoll_allreduce(pairs, HPCCOLL_MAXLOC, world)
    call check(all(pairs == reshape([ranks - 1, ranks - 1, 0, 0, 5, 0], [2, 3])), "MAXLOC")
    call hpccoll_op_create(larger_parts, op, name="larger parts  ")
    z = cmplx(rank, -rank, c_double_complex)
    call hpccoll_allreduce(z, op, world)
    call check(all(z == cmplx(ranks - 1, 0, c_double_complex)), "an op of the program's own")
    z = cmplx(rank, -rank, c_double_complex)
    call hpccoll_allreduce_init(z, op, world, plan)
    call hpccoll_start(plan)
    call hpccoll_wait(plan)
    call check(all(z == cmplx(ranks - 1, 0, c_double_complex)), "a plan of it")
    z = cmplx(rank, -rank, c_double_complex)
    call hpccoll_exscan(z, op, world)
    call check(all(z == cmplx(max(rank - 1, 0), 0, c_double_complex)), "an exscan with it")
    call hpccoll_op_create(larger_parts, whole, block=0)
    z = cmplx(rank, -rank, c_double_complex)
    call hpccoll_scan(z, whole, world)
    call check(all(z == cmplx(rank, 0, c_double_complex)), "a scan of whole arrays")
    call hpccoll_op_free(whole)
    call hpccoll_plan_free(plan)
    call hpccoll_op_free(op)
    call check(op == HPCCOLL_OP_NULL, "an op that was freed")
    call hpccoll_allreduce(z, op, world, ierror=status)
    call expect(status, HPCCOLL_INVALID, "no hpccoll_reduction, or was freed")
  end subroutine

  ! A section is contiguous if no element of the array lies between two of its own (Fortran 2018, 8.5.7).
  subroutine sections()
    real(c_double) :: y(4, 4), cube(3, 4, 2), line(6)
    integer(c_int) :: n
    n = 2
    y = rank
    cube = rank
    line = rank
    call accepted(y(:, 2:3), "columns")
    call accepted(y(2:3, 2:2), "a part of a column")
    call accepted(y(2:3, n:n), "a part of a column that is known when the program runs")
    call accepted(y(:, 4:1:-3*n), "a column, and a step")
    call accepted(y(n:n, n:n), "one element")
    call accepted(y(4:4, 3), "one element of a column")
    call accepted(y(3:2, 1:3), "no element, in several columns")
    call accepted(y(1:4:2, 3:2), "no element, by steps")
    call accepted(cube(:, 2:3, 1:1), "rows of a plane")
    call accepted(cube(2:3, 2:2, 2:2), "a part of a row")
    call accepted(cube(:, :, 2:), "a plane")
    call accepted(cube(n:n, n:n, n:n), "one element of three dimensions")
    call accepted(line(6:6:-1), "one element, backwards")
    call accepted(line(2:3:5), "one element, by a step")
    call refused(y(2:3, 2:3), "a block")
    call refused(y(2:2, :), "a row")
    call refused(y(:, 1:4:2), "every second column")
    call refused(y(4:1:-1, 2), "backwards")
    call refused(y(:, 4:3:-1), "columns backwards")
    call refused(cube(:, 2:2, :), "a plane across")
    call refused(cube(2:2, 2:2, :), "a line across")
    call refused(cube(:, 1:3, :), "a part of each plane")
    call refused(line(1:5:2), "by steps")
  end subroutine

  subroutine accepted(x, what)
    real(c_double), intent(inout), asynchronous :: x(..)
    character(len=*), intent(in) :: what
    type(hpccoll_request) :: request
    real(c_double) :: copy(16)
    integer(c_int) :: status(3), from
    call hpccoll_allreduce(x, HPCCOLL_MAX, world, ierror=status(1))
    call hpccoll_broadcast(x, 0, world, ierror=status(2))
    call hpccoll_send(x, rank, 5, world, request=request, ierror=status(3))
    call check(all(status == HPCCOLL_OK), what // " is refused")
    call hpccoll_recv(copy(:size(x)), rank, 5, world, from)
    call hpccoll_wait(request)
  end subroutine

  subroutine refused(x, what)
    real(c_double), intent(inout), asynchronous :: x(..)
    character(len=*), intent(in) :: what
    type(hpccoll_plan) :: plan
    integer(c_int) :: status
    call hpccoll_allreduce(x, HPCCOLL_MAX, world, ierror=status)
    call expect(status, HPCCOLL_INVALID, "hpccoll_allreduce: x is not contiguous")
    call hpccoll_broadcast(x, 0, world, ierror=status)
    call expect(status, HPCCOLL_INVALID, "is not contiguous")
    call hpccoll_send(x, rank, 5, world, ierror=status)
    call expect(status, HPCCOLL_INVALID, "is not contiguous")
    call hpccoll_scan_init(x, HPCCOLL_SUM, world, plan, ierror=status)
    call expect(status, HPCCOLL_INVALID, "is not contiguous")
    call check(status == HPCCOLL_INVALID, what // " is taken")
  end subroutine

  ! The last rank refuses a call, which the other ranks hear; the next calls of all ranks belong together.
  subroutine refused_by_one()
    real(c_double) :: x(4), y(4), few(3)
    type(hpccoll_plan) :: plan
    type(hpccoll_world) :: one
    integer(c_int) :: status, members(3)
    integer :: form
    logical :: refuses
    refuses = rank == ranks - 1
    do form = 1, 2
      x = 1
      if (form == 1 .and. refuses) call hpccoll_allreduce(x, HPCCOLL_SUM, world, out=few, ierror=status)
      if (form == 1 .and. .not. refuses) call hpccoll_allreduce(x, HPCCOLL_SUM, world, out=y, ierror=status)
      if (form == 2 .and. refuses) call hpccoll_scan_init(x, HPCCOLL_SUM, world, plan, out=few, ierror=status)
      if (form == 2 .and. .not. refuses) call hpccoll_scan_init(x, HPCCOLL_SUM, world, plan, out=y, ierror=status)
      if (refuses) call expect(status, HPCCOLL_INVALID, "out has not the type and size of x")
      if (.not. refuses) call expect(status, HPCCOLL_MISMATCH, "has refused this call")
      x = form + 1
      call hpccoll_allreduce(x, HPCCOLL_SUM, world, out=y)
      call check(all(y == ranks*(form + 1)), "a sum after a call that one rank has refused")
    end do
    members = [0, 0, ranks - 1]
    call hpccoll_subset(world, members(::merge(2, 1, refuses)), one, ierror=status)
    if (refuses) call expect(status, HPCCOLL_INVALID, "hpccoll_subset: ranks is not contiguous")
    if (.not. refuses) call expect(status, HPCCOLL_MISMATCH, "subset: rank 0 says 3 ranks")
    x = 1
    call hpccoll_allreduce(x, HPCCOLL_SUM, world, out=y)
    call check(all(y == ranks), "a sum after a set that one rank has refused")
  end subroutine

  subroutine errors()
    real(c_double) :: matrix(4, 4), vector(6)
    real(c_double), allocatable :: nothing(:)
    real(c_double), pointer, asynchronous :: none(:)
    type(hpccoll_request) :: request
    character(len=3) :: text
    integer(c_int) :: status
    matrix = 1
    vector = 1
    call hpccoll_allreduce(matrix(2, :), HPCCOLL_SUM, world, ierror=status)
    call expect(status, HPCCOLL_INVALID, "hpccoll_allreduce: x is not contiguous")
    call hpccoll_allreduce(vector(::2), HPCCOLL_SUM, world, ierror=status)
    call expect(status, HPCCOLL_INVALID, "x is not contiguous")
    call hpccoll_allreduce(vector, HPCCOLL_SUM, world, out=matrix, ierror=status)
    call expect(status, HPCCOLL_INVALID, "out has not the type and size of x")
    call hpccoll_allreduce(text, HPCCOLL_SUM, world, ierror=status)
    call expect(status, HPCCOLL_INVALID, "x is of no type that moves")
    call hpccoll_allgather(vector, matrix, world, ierror=status)
    call expect(status, HPCCOLL_INVALID, "out has not the shape of x in all dimensions but the last")
    call hpccoll_allreduce(nothing, HPCCOLL_SUM, world, ierror=status)
    if (status /= HPCCOLL_OK) call expect(status, HPCCOLL_INVALID, "hpccoll_allreduce: x is not allocated")
    call hpccoll_allreduce(vector, HPCCOLL_BAND, world, ierror=status)
    call expect(status, HPCCOLL_UNSUPPORTED, "BAND of float64 is not defined")
    call c_f_pointer(c_null_ptr, none, [0])
    call hpccoll_allgather(vector, none, world, ierror=status)
    call expect(status, HPCCOLL_RESULT_SIZE, "an out of 0 rows")
    call hpccoll_allgather(vector, none, world, request=request)
    call hpccoll_wait(request, ierror=status)
    call expect(status, HPCCOLL_RESULT_SIZE, "an out of 0 rows")
    if (ranks > 1) then
      call hpccoll_allreduce(vector(1:rank + 1), HPCCOLL_SUM, world, ierror=status)
      call expect(status, HPCCOLL_MISMATCH, "rank")
    end if
    call hpccoll_allreduce(matrix(:, 2:3), HPCCOLL_SUM, world)
    call check(matrix(1, 2) == ranks .and. matrix(1, 1) == 1, "columns are contiguous")
  end subroutine
end program
