# find_package(hpccoll): the target hpccoll::hpccoll for C and C++, and hpccoll_FORTRAN_SOURCE, the file of the Fortran
# module, which each compiler builds for itself.
get_filename_component(hpccoll_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(hpccoll_FORTRAN_SOURCE "${hpccoll_PREFIX}/include/hpccoll.f90")
if(NOT TARGET hpccoll::hpccoll)
  add_library(hpccoll::hpccoll SHARED IMPORTED)
  set_target_properties(hpccoll::hpccoll PROPERTIES
    IMPORTED_LOCATION "${hpccoll_PREFIX}/lib/libhpccoll.so.1"
    IMPORTED_SONAME "libhpccoll.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${hpccoll_PREFIX}/include")
endif()
