! SPDX-License-Identifier: Apache-2.0
!
! driver.f90 - a call of a differential program, in Fortran: its arguments are numbers and addresses (modes_fortran.py).
module driver
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use hpccoll
  implicit none
contains
  ! what: the call (drivers.py), -1: a shift around a ring; kind: the dtype. x has nx(1) columns and nx(2) rows, y
  ! likewise.
  ! letters: of the name; none: the call has no name.
  subroutine run_call(what, kind, x, nx, y, ny, op, root, factors, splits, peers, text, letters, world, status) &
    bind(c, name="run_call")
    integer(c_int), value :: what, kind, op, root, letters
    type(c_ptr), value :: x, y
    integer(c_int), intent(in) :: nx(2), ny(2), peers(2)
    integer(c_int64_t), intent(in) :: splits(*)
    real(c_double), intent(in) :: factors(2)
    character(kind=c_char), intent(in) :: text(*)
    type(hpccoll_world), intent(in) :: world
    integer(c_int), intent(out) :: status
    integer(int32), pointer :: i4(:, :), j4(:, :)
    integer(int64), pointer :: i8(:, :), j8(:, :)
    real(real32), pointer :: r4(:, :), s4(:, :)
    real(real64), pointer :: r8(:, :), s8(:, :)
    character(len=:), allocatable :: name ! what is not allocated is an argument that is not there
    integer :: i
    if (letters > 0) then
      allocate (character(len=letters) :: name)
      do i = 1, letters
        name(i:i) = text(i)
      end do
    end if
    select case (kind)
    case (1)
      call c_f_pointer(x, i4, around(nx)); call c_f_pointer(y, j4, around(ny))
      call chosen(i4(1:nx(1), :), j4(1:ny(1), :))
    case (2)
      call c_f_pointer(x, i8, around(nx)); call c_f_pointer(y, j8, around(ny))
      call chosen(i8(1:nx(1), :), j8(1:ny(1), :))
    case (3)
      call c_f_pointer(x, r4, around(nx)); call c_f_pointer(y, s4, around(ny))
      call chosen(r4(1:nx(1), :), s4(1:ny(1), :))
    case (4)
      call c_f_pointer(x, r8, around(nx)); call c_f_pointer(y, s8, around(ny))
      call chosen(r8(1:nx(1), :), s8(1:ny(1), :))
    end select
  contains
    ! The shape of an array of which the rows and columns are a part. One row is then a part of one column of it, which
    ! is contiguous; several rows are the whole array. What lies around is not touched.
    function around(n) result(shape)
      integer(c_int), intent(in) :: n(2)
      integer(c_int) :: shape(2)
      shape = [n(1) + merge(1, 0, n(2) == 1), n(2)]
    end function

    subroutine chosen(a, b)
      type(*), intent(in), asynchronous :: a(..)
      type(*), intent(inout), asynchronous :: b(..)
      type(hpccoll_request) :: request
      type(hpccoll_plan) :: plan
      integer(c_int) :: ended
      ended = HPCCOLL_OK
      select case (what)
      ! the calls
      case default
        call hpccoll_recv(b, peers(2), 7_c_int, world, request=request, ierror=status)
        call hpccoll_send(a, peers(1), 7_c_int, world, ierror=ended)
        call hpccoll_wait(request, status)
      end select
      if (status == HPCCOLL_OK) status = ended
    end subroutine

    subroutine finish(plan, ended)
      type(hpccoll_plan), intent(inout) :: plan
      integer(c_int), intent(out) :: ended
      ended = HPCCOLL_OK
      if (status /= HPCCOLL_OK) return
      call hpccoll_start(plan, ended)
      if (ended == HPCCOLL_OK) call hpccoll_wait(plan, ended)
      call hpccoll_plan_free(plan)
    end subroutine
  end subroutine
end module
