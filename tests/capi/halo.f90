! SPDX-License-Identifier: Apache-2.0
!
! halo.f90 - grids and halo exchanges of the module hpccoll: dimension d of an array lies along dimension d of the grid.
program halo
  use mpi_f08
  use hpccoll
  use, intrinsic :: iso_c_binding
  implicit none
  integer, parameter :: nx = 4, ny = 3
  type(hpccoll_world) :: world, cart
  integer(c_int) :: dims(2), here(2), there(2), left, right, found, status
  integer :: rank, ranks

  call MPI_Init()
  call hpccoll_world_create(MPI_COMM_WORLD, world, "verbose=0")
  rank = hpccoll_rank(world)
  ranks = hpccoll_size(world)
  dims = 0
  call hpccoll_dims_create(ranks, dims)
  call hpccoll_cart_create(world, dims, [.true., .false.], cart)
  call check(hpccoll_is_member(cart), "every rank has a place")
  call hpccoll_cart_dims(cart, there)
  call check(all(there == dims), "cart_dims")
  call hpccoll_cart_coords(cart, rank, here)
  call hpccoll_cart_rank(cart, here, found)
  call check(found == rank, "cart_rank")
  there = [here(1) + dims(1), here(2) + dims(2)]
  call hpccoll_cart_rank(cart, there, found)
  call check(found == HPCCOLL_PROC_NULL, "beyond the end")
  call hpccoll_cart_shift(cart, 1, 1, left, right)
  call check((left == HPCCOLL_PROC_NULL) .eqv. (here(2) == 0), "the left neighbour")
  call check((right == HPCCOLL_PROC_NULL) .eqv. (here(2) == dims(2) - 1), "the right neighbour")
  call matrices()
  call components()
  call sections()
  call one_component()
  call errors()
  call hpccoll_world_free(cart)
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

  ! The value of a cell of the whole field, whose first dimension is a ring; -1 beyond the ends of the second one.
  integer function cell(i, j)
    integer, intent(in) :: i, j
    integer :: x, y
    x = modulo(here(1)*nx + i - 1, dims(1)*nx)
    y = here(2)*ny + j - 1
    cell = merge(-1, x + 1000*y, y < 0 .or. y >= dims(2)*ny)
  end function

  subroutine matrices()
    real(c_double), asynchronous :: u(0:nx + 1, -1:ny + 2)
    integer(c_int), asynchronous :: k(0:nx + 1, 0:ny + 1)
    type(hpccoll_plan) :: plans(2)
    integer :: i, j, step
    call hpccoll_halo_exchange_init(u, [1, 2], cart, plans(1))
    call hpccoll_halo_exchange_init(k, 1, cart, plans(2), corners=.false.)
    do step = 1, 3
      u = -1
      k = -1
      do j = 1, ny
        do i = 1, nx
          u(i, j) = cell(i, j) + 0.5*step
          k(i, j) = cell(i, j) + step
        end do
      end do
      call hpccoll_startall(plans)
      call hpccoll_waitall(plans)
      do j = -1, ny + 2
        do i = 0, nx + 1
          call check(u(i, j) == merge(-1d0, cell(i, j) + 0.5d0*step, cell(i, j) < 0), "a matrix")
          if (j < 0 .or. j > ny + 1) cycle
          if ((i == 0 .or. i > nx) .and. (j == 0 .or. j > ny)) then
            call check(k(i, j) == -1, "a corner")
          else
            call check(k(i, j) == merge(-1, cell(i, j) + step, cell(i, j) < 0), "a matrix of integers")
          end if
        end do
      end do
    end do
    call hpccoll_plan_free(plans(1))
    call hpccoll_plan_free(plans(2))
  end subroutine

  ! A last dimension that is whole on each rank, without a plan.
  subroutine components()
    complex(c_float_complex) :: z(0:nx + 1, 0:ny + 1, 2)
    integer :: i, j, c
    z = -1
    do c = 1, 2
      do j = 1, ny
        do i = 1, nx
          z(i, j, c) = cmplx(cell(i, j), c)
        end do
      end do
    end do
    call hpccoll_halo_exchange(z, [1, 1], cart)
    do c = 1, 2
      do j = 0, ny + 1
        do i = 0, nx + 1
          call check(z(i, j, c) == merge(cmplx(-1, 0), cmplx(cell(i, j), c), cell(i, j) < 0), "components")
        end do
      end do
    end do
  end subroutine

  subroutine sections()
    integer(c_int16_t), asynchronous :: wide(3, 0:2*nx + 3, 0:ny + 1)
    type(hpccoll_plan) :: plan
    integer :: i, j
    wide = -1
    do j = 1, ny
      do i = 1, nx
        wide(2, 2*i, j) = int(cell(i, j), c_int16_t)
      end do
    end do
    call hpccoll_halo_exchange_init(wide(2, 0:2*nx + 2:2, :), [1, 1], cart, plan)
    call hpccoll_start(plan)
    call hpccoll_wait(plan)
    do j = 0, ny + 1
      do i = 0, nx + 1
        call check(wide(2, 2*i, j) == cell(i, j), "a section")
        call check(all(wide(:, 2*i + 1, j) == -1) .and. wide(1, 2*i, j) == -1, "beside a section")
      end do
    end do
    call hpccoll_plan_free(plan)
  end subroutine

  ! The plan needs the array itself: gfortran makes a copy of a component for procedures of Fortran.
  subroutine one_component()
    type pair
      real(c_double) :: left
      integer(c_int) :: right
    end type
    type(pair), asynchronous :: pairs(0:nx + 1, 0:ny + 1)
    type(hpccoll_plan) :: plan
    integer :: i, j
    pairs%left = -2
    call hpccoll_halo_exchange_init(pairs%right, 1, cart, plan)
    pairs%right = -1
    do j = 1, ny
      do i = 1, nx
        pairs(i, j)%right = cell(i, j)
      end do
    end do
    call hpccoll_start(plan)
    call hpccoll_wait(plan)
    do j = 0, ny + 1
      do i = 0, nx + 1
        call check(pairs(i, j)%right == cell(i, j) .and. pairs(i, j)%left == -2, "one component")
      end do
    end do
    call hpccoll_plan_free(plan)
  end subroutine

  subroutine errors()
    real(c_double), asynchronous :: u(6, 6)
    character(len=6) :: words(6, 6)
    type(hpccoll_plan) :: plan
    character(len=500) :: text
    call hpccoll_halo_exchange_init(words, 1, cart, plan, ierror=status)
    call hpccoll_last_error(text)
    call check(status == HPCCOLL_INVALID .and. index(text, "is of no type that moves") > 0, "a type")
    call hpccoll_halo_exchange_init(u, [1, 1, 1], cart, plan, ierror=status)
    call hpccoll_last_error(text)
    call check(status == HPCCOLL_INVALID .and. index(text, "width is for each dimension") > 0, "three widths")
    call hpccoll_halo_exchange_init(u, 1, cart, plan, rank, status)
    call hpccoll_last_error(text)
    call check(status == HPCCOLL_INVALID .and. index(text, "corners is no logical") > 0, "an integer for corners")
    call hpccoll_halo_exchange_init(u, 3, cart, plan, ierror=status)
    call hpccoll_last_error(text)
    call check(status == HPCCOLL_INVALID .and. index(text, "shape (6, 6) has no halo of width (3, 3)") > 0, "a width")
    call hpccoll_halo_exchange(u, 1, world, ierror=status)
    call hpccoll_last_error(text)
    call check(status == HPCCOLL_INVALID .and. index(text, "are on no grid") > 0, "no grid")
    call hpccoll_halo_exchange_init(u, 1, world, plan, ierror=status)
    call hpccoll_last_error(text)
    call check(status == HPCCOLL_INVALID .and. index(text, "are on no grid") > 0, "a plan on no grid")
    call hpccoll_halo_exchange(u, 1, cart, .false._c_bool)
    if (ranks == 1) return
    if (rank == 1) then
      call hpccoll_halo_exchange_init(words, 1, cart, plan, ierror=status)
    else
      call hpccoll_halo_exchange_init(u, 1, cart, plan, ierror=status)
      call check(status == HPCCOLL_MISMATCH, "one rank is wrong")
    end if
  end subroutine
end program
