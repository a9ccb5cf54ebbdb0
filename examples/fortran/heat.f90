! SPDX-License-Identifier: Apache-2.0
!
! heat.f90 - the heat equation on a square, its columns spread over the ranks. The exchange of the halos and the largest
! change are plans: made once, started in every step, without a control message. heat_mpi.f90 is the same on bare MPI.
!
!     heat POINTS STEPS
program heat
  use mpi_f08
  use hpccoll
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  type(hpccoll_world) :: world, cart
  type(hpccoll_plan) :: halo, largest
  real(real64), allocatable, asynchronous :: u(:, :)
  real(real64), allocatable :: next(:, :)
  real(real64), asynchronous :: change
  real(real64) :: total
  integer :: points, steps, step, rank, ranks, mine, first, j
  integer(int64) :: begun, ended, rate
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

  allocate (u(points, 0:mine + 1), next(points, 0:mine + 1))
  u = 0
  do j = 1, mine
    if (abs(2*(first + j) - points) < points/2) u(points/4:3*points/4, j) = 100
  end do
  next = u
  ! A grid of one row of ranks: the second dimension is divided, and its halos, columns, go to the neighbours.
  call hpccoll_cart_create(world, [1, ranks], [.false., .false.], cart)
  call hpccoll_halo_exchange_init(u, [0, 1], cart, halo, corners=.false.)
  call hpccoll_allreduce_init(change, HPCCOLL_MAX, world, largest)
  call system_clock(begun, rate)
  do step = 1, steps
    call hpccoll_start(halo)
    call hpccoll_wait(halo)
    call advance(u, next)
    if (mod(step, 10) /= 0) cycle
    call hpccoll_start(largest)
    call hpccoll_wait(largest)
  end do
  call system_clock(ended)
  call hpccoll_plan_free(halo)
  call hpccoll_plan_free(largest)
  total = sum(u(:, 1:mine))
  call hpccoll_allreduce(total, HPCCOLL_SUM, world)
  if (rank == 0) print "(i0, a, i0, a, es22.15, a, es22.15)", &
    points, "^2 points, ", steps, " steps: heat ", total, ", last change ", change
  if (rank == 0) print "(f0.1, a)", 1e6_real64*real(ended - begun, real64)/real(rate, real64)/steps, " us a step"
  call hpccoll_world_free(cart)
  call hpccoll_world_free(world)
  call MPI_Finalize()

contains

  ! Dummy arguments without the attribute asynchronous: the compiler may keep their values in registers.
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
