! SPDX-License-Identifier: Apache-2.0
!
! heat_mpi.f90 - heat.f90 on bare MPI.
!
!     heat_mpi POINTS STEPS
program heat_mpi
  use mpi_f08
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  type(MPI_Request) :: requests(4)
  real(real64), allocatable :: u(:, :), next(:, :)
  real(real64) :: change, total
  integer :: points, steps, step, left, right, rank, ranks, mine, first, j
  integer(int64) :: begun, ended, rate
  character(len=16) :: word

  call get_command_argument(1, word)
  read (word, *) points
  call get_command_argument(2, word)
  read (word, *) steps
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  mine = points/ranks + merge(1, 0, rank < mod(points, ranks))
  first = rank*(points/ranks) + min(rank, mod(points, ranks))
  left = rank - 1
  right = rank + 1

  allocate (u(points, 0:mine + 1), next(points, 0:mine + 1))
  u = 0
  do j = 1, mine
    if (abs(2*(first + j) - points) < points/2) u(points/4:3*points/4, j) = 100
  end do
  next = u
  call system_clock(begun, rate)
  do step = 1, steps
    call exchange()
    call advance(u, next)
    if (mod(step, 10) == 0) &
      call MPI_Allreduce(MPI_IN_PLACE, change, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD)
  end do
  call system_clock(ended)
  total = sum(u(:, 1:mine))
  call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0) print "(i0, a, i0, a, es22.15, a, es22.15)", &
    points, "^2 points, ", steps, " steps: heat ", total, ", last change ", change
  if (rank == 0) print "(f0.1, a)", 1e6_real64*real(ended - begun, real64)/real(rate, real64)/steps, " us a step"
  call MPI_Finalize()

contains

  ! The columns at the borders go to the neighbours. They are contiguous: no copies.
  subroutine exchange()
    requests = MPI_REQUEST_NULL
    if (left >= 0) then
      call MPI_Irecv(u(1, 0), points, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, requests(1))
      call MPI_Isend(u(1, 1), points, MPI_DOUBLE_PRECISION, left, 2, MPI_COMM_WORLD, requests(2))
    end if
    if (right < ranks) then
      call MPI_Irecv(u(1, mine + 1), points, MPI_DOUBLE_PRECISION, right, 2, MPI_COMM_WORLD, requests(3))
      call MPI_Isend(u(1, mine), points, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, requests(4))
    end if
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
  end subroutine

  subroutine advance(u, next)
    real(real64), intent(inout) :: u(points, 0:mine + 1), next(points, 0:mine + 1)
    integer :: i, k
    do k = 1, mine
      do i = 2, points - 1
        if (first + k == 1 .or. first + k == points) cycle
        next(i, k) = u(i, k) + 0.2_real64*(u(i - 1, k) + u(i + 1, k) + u(i, k - 1) + u(i, k + 1) - 4*u(i, k))
      end do
    end do
    change = maxval(abs(next(:, 1:mine) - u(:, 1:mine)))
    u(:, 1:mine) = next(:, 1:mine)
  end subroutine
end program
