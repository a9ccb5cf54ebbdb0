! SPDX-License-Identifier: Apache-2.0
!
! heat.f90 - the heat equation on a square, its columns spread over the ranks. heat_mpi.f90 is the same on bare MPI.
!
!     heat POINTS STEPS
program heat
  use mpi_f08
  use hpccoll
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  type(hpccoll_world) :: world
  type(hpccoll_request) :: requests(4)
  real(real64), allocatable :: u(:, :), next(:, :)
  real(real64) :: change, total
  integer :: points, steps, step, left, right, rank, ranks, mine, first, j
  character(len=16) :: word

  call get_command_argument(1, word)
  read (word, *) points
  call get_command_argument(2, word)
  read (word, *) steps
  call MPI_Init()
  call hpccoll_world_create(MPI_COMM_WORLD, world, options="verbose=0")
  rank = hpccoll_rank(world)
  ranks = hpccoll_size(world)
  mine = int(hpccoll_share(points, ranks, rank))
  first = int(hpccoll_share_begin(points, ranks, rank))
  left = rank - 1
  right = rank + 1

  allocate (u(points, 0:mine + 1), next(points, 0:mine + 1))
  u = 0
  do j = 1, mine
    if (abs(2*(first + j) - points) < points/2) u(points/4:3*points/4, j) = 100
  end do
  next = u
  do step = 1, steps
    call exchange()
    call advance()
    if (mod(step, 10) == 0) call hpccoll_allreduce(change, HPCCOLL_MAX, world)
  end do
  total = sum(u(:, 1:mine))
  call hpccoll_allreduce(total, HPCCOLL_SUM, world)
  if (rank == 0) print "(i0, a, i0, a, es22.15, a, es22.15)", &
    points, "^2 points, ", steps, " steps: heat ", total, ", last change ", change
  call hpccoll_world_free(world)
  call MPI_Finalize()

contains

  ! The columns at the borders go to the neighbours. They are contiguous: no copies.
  subroutine exchange()
    requests = hpccoll_request()
    if (left >= 0) then
      call hpccoll_recv(u(:, 0), left, 1, world, request=requests(1))
      call hpccoll_send(u(:, 1), left, 2, world, request=requests(2))
    end if
    if (right < ranks) then
      call hpccoll_recv(u(:, mine + 1), right, 2, world, request=requests(3))
      call hpccoll_send(u(:, mine), right, 1, world, request=requests(4))
    end if
    call hpccoll_waitall(requests)
  end subroutine

  subroutine advance()
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
