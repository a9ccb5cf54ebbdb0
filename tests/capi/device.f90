! SPDX-License-Identifier: Apache-2.0
!
! device.f90 - device memory as an array of Fortran, by c_f_pointer: what type(c_ptr) stands for is the array's address.
program device
    use, intrinsic :: iso_c_binding
    use hpccoll
    implicit none
    interface
        integer(c_int) function driver_init(flags) bind(c, name="cuInit")
            import c_int
            integer(c_int), value :: flags
        end function
        integer(c_int) function context_retain(context, number) bind(c, name="cuDevicePrimaryCtxRetain")
            import c_int, c_ptr
            type(c_ptr) :: context
            integer(c_int), value :: number
        end function
        integer(c_int) function context_use(context) bind(c, name="cuCtxSetCurrent")
            import c_int, c_ptr
            type(c_ptr), value :: context
        end function
        integer(c_int) function memory_new(memory, bytes) bind(c, name="cuMemAlloc_v2")
            import c_int, c_ptr, c_size_t
            type(c_ptr) :: memory
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function to_device(memory, from, bytes, stream) bind(c, name="cuMemcpyHtoDAsync_v2")
            import c_int, c_ptr, c_size_t
            type(c_ptr), value :: memory, from, stream
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function to_host(to, memory, bytes, stream) bind(c, name="cuMemcpyDtoHAsync_v2")
            import c_int, c_ptr, c_size_t
            type(c_ptr), value :: to, memory, stream
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function stream_wait(stream) bind(c, name="cuStreamSynchronize")
            import c_int, c_ptr
            type(c_ptr), value :: stream
        end function
    end interface
    integer, parameter :: n = 6
    integer(c_size_t), parameter :: bytes = 8*n
    type(hpccoll_world) :: world
    type(hpccoll_request) :: request
    type(c_ptr) :: context, x_memory, all_memory
    real(c_double), pointer :: x(:, :), all(:, :)
    real(c_double), allocatable, target :: given(:, :), found(:, :)
    integer :: status, rank, ranks

    if (driver_init(0) /= 0) error stop 1
    if (context_retain(context, 0) /= 0) error stop 2
    if (context_use(context) /= 0) error stop 3
    call hpccoll_world_launched(world)
    rank = hpccoll_rank(world)
    ranks = hpccoll_size(world)
    allocate (given(2, 3), found(2, 3*ranks))
    given = rank + 1
    if (memory_new(x_memory, bytes) /= 0) error stop 4
    if (memory_new(all_memory, bytes*ranks) /= 0) error stop 5
    if (to_device(x_memory, c_loc(given), bytes, c_null_ptr) /= 0) error stop 6
    if (stream_wait(c_null_ptr) /= 0) error stop 7
    call c_f_pointer(x_memory, x, [2, 3])
    call c_f_pointer(all_memory, all, [2, 3*ranks])

    call hpccoll_allreduce(x, HPCCOLL_SUM, world)
    call hpccoll_allgather(x, all, world, request=request)
    call hpccoll_wait(request)
    if (to_host(c_loc(found), all_memory, bytes*ranks, c_null_ptr) /= 0) error stop 8
    if (stream_wait(c_null_ptr) /= 0) error stop 9
    if (any(found /= ranks*(ranks + 1)/2)) error stop 10
    call hpccoll_allreduce(x, HPCCOLL_SUM, world, out=given, ierror=status)
    if (status /= HPCCOLL_INVALID) error stop 11
    call hpccoll_world_free(world)
    if (rank == 0) print '(a)', "fine"
end program
