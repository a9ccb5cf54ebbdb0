! SPDX-License-Identifier: Apache-2.0
!
! mpi_f08.f90 - as much of the module mpi_f08 as the examples need, over the C functions of an MPI that was built
! without Fortran, as that from PyPI. A program of a user has the module of its MPI.
module mpi_f08
  use, intrinsic :: iso_c_binding, only: c_int
  implicit none
  type, bind(c) :: MPI_Comm
    integer(c_int) :: MPI_VAL
  end type
  type, bind(c) :: MPI_Request
    integer(c_int) :: MPI_VAL
  end type
  type(MPI_Comm), save :: MPI_COMM_WORLD, MPI_COMM_NULL
  type(MPI_Request), save :: MPI_REQUEST_NULL
  integer(c_int), parameter :: MPI_IN_PLACE = 0, MPI_STATUSES_IGNORE = 0, MPI_DOUBLE_PRECISION = 1, MPI_SUM = 1, &
    MPI_MAX = 2
  interface
    subroutine begin(world, no_comm, no_request) bind(c, name="fortran_begin")
      import
      type(MPI_Comm), intent(out) :: world, no_comm
      type(MPI_Request), intent(out) :: no_request
    end subroutine
    subroutine MPI_Finalize() bind(c, name="fortran_finalize")
    end subroutine
    subroutine MPI_Comm_rank(comm, rank) bind(c, name="fortran_rank")
      import
      type(MPI_Comm), value :: comm
      integer(c_int), intent(out) :: rank
    end subroutine
    subroutine MPI_Comm_size(comm, size) bind(c, name="fortran_size")
      import
      type(MPI_Comm), value :: comm
      integer(c_int), intent(out) :: size
    end subroutine
    subroutine MPI_Allreduce(in_place, x, count, dtype, op, comm) bind(c, name="fortran_allreduce")
      import
      integer(c_int), value :: in_place, count, dtype, op
      type(*) :: x
      type(MPI_Comm), value :: comm
    end subroutine
    subroutine MPI_Isend(x, count, dtype, peer, tag, comm, request) bind(c, name="fortran_isend")
      import
      type(*) :: x
      integer(c_int), value :: count, dtype, peer, tag
      type(MPI_Comm), value :: comm
      type(MPI_Request), intent(out) :: request
    end subroutine
    subroutine MPI_Irecv(x, count, dtype, peer, tag, comm, request) bind(c, name="fortran_irecv")
      import
      type(*) :: x
      integer(c_int), value :: count, dtype, peer, tag
      type(MPI_Comm), value :: comm
      type(MPI_Request), intent(out) :: request
    end subroutine
    subroutine MPI_Waitall(n, requests, statuses) bind(c, name="fortran_waitall")
      import
      integer(c_int), value :: n, statuses
      type(MPI_Request), intent(inout) :: requests(*)
    end subroutine
  end interface
contains
  subroutine MPI_Init()
    call begin(MPI_COMM_WORLD, MPI_COMM_NULL, MPI_REQUEST_NULL)
  end subroutine
end module
