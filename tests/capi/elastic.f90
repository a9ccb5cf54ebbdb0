! SPDX-License-Identifier: Apache-2.0
!
! elastic.f90 - an elastic job in Fortran: worker 1 of three is killed, and worker 3, which comes in for it, leaves.
program elastic
  use, intrinsic :: iso_c_binding, only: c_int, c_int64_t, c_double
  use hpccoll
  implicit none
  interface
    integer(c_int) function raise(number) bind(c)
      import
      integer(c_int), value :: number
    end function
    integer(c_int) function usleep(microseconds) bind(c)
      import
      integer(c_int), value :: microseconds
    end function
  end interface
  integer(c_int64_t), parameter :: steps = 30
  integer(c_int), parameter :: sigkill = 9
  type(hpccoll_world) :: world
  integer(c_int64_t) :: step = 0
  real(c_double) :: total = 0
  integer(c_int) :: status, broken, ranks(3), count, ignored
  logical :: over = .false.
  character(len=4) :: worker
  character(len=200) :: text

  call get_environment_variable("_HPCCOLL_WORKER", worker)
  do while (.not. over)
    call hpccoll_world_launched(world, "verbose=0", ierror=status)
    if (status == HPCCOLL_SHUT_DOWN) then
      call hpccoll_last_error(text)
      print "(a)", trim(text)
      stop
    end if
    if (status == HPCCOLL_OK) call make_steps(status)
    if (status /= HPCCOLL_OK) call hpccoll_last_error(text)
    count = 0
    if (hpccoll_is_member(world)) call hpccoll_lost_ranks(world, ranks, count)
    if (count == 1) print "(a, i0, a, i0)", "lost rank ", ranks(1), " of ", hpccoll_size(world)
    call hpccoll_world_free(world, ierror=broken)
    if (status /= HPCCOLL_OK .and. status /= HPCCOLL_PEER_LOST .and. broken == HPCCOLL_OK) then
      print "(a)", trim(text) ! the World was sound, so another one would not help
      error stop 1
    end if
  end do
  if (total /= steps * (steps - 1) / 2) error stop "the sum is wrong"
  print "(a)", "fine"

contains

  subroutine take_newest(status)
    integer(c_int), intent(out) :: status
    integer(c_int64_t) :: newest(2)
    newest = [step, int(hpccoll_rank(world), c_int64_t)]
    call hpccoll_allreduce(newest, HPCCOLL_MAXLOC, world, ierror=status)
    if (status == HPCCOLL_OK) call hpccoll_broadcast(step, int(newest(2), c_int), world, ierror=status)
    if (status == HPCCOLL_OK) call hpccoll_broadcast(total, int(newest(2), c_int), world, ierror=status)
  end subroutine

  ! At step 10 all wait for the third rank, at step 15 for its end.
  subroutine make_step(status)
    integer(c_int), intent(out) :: status
    real(c_double) :: mean
    mean = real(step, c_double)
    call hpccoll_allreduce(mean, HPCCOLL_AVERAGE, world, ierror=status)
    if (step == merge(10, 15, hpccoll_size(world) < 3)) then
      ignored = usleep(5000)
    else if (status == HPCCOLL_OK) then
      total = total + mean
      step = step + 1
    end if
  end subroutine

  subroutine make_steps(status)
    integer(c_int), intent(out) :: status
    logical :: changes, leaves
    changes = .false.
    leaves = worker == "3"
    call take_newest(status)
    do while (status == HPCCOLL_OK .and. step < steps .and. .not. changes)
      if (worker == "1" .and. step == 5) ignored = raise(sigkill)
      if (leaves .and. step == 15) then
        call hpccoll_leave(world)
        leaves = .false.
      end if
      call make_step(status)
      if (status == HPCCOLL_OK) call hpccoll_world_changes(world, changes, ierror=status)
    end do
    over = status == HPCCOLL_OK .and. .not. changes
  end subroutine
end program
