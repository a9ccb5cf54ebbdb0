# find_package(hpccoll): the target hpccoll::hpccoll for C and C++; and hpccoll::fortran, where the project has the
# languages Fortran and C: the module hpccoll, which each compiler builds for itself.
get_filename_component(hpccoll_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET hpccoll::hpccoll)
  add_library(hpccoll::hpccoll SHARED IMPORTED)
  set_target_properties(hpccoll::hpccoll PROPERTIES
    IMPORTED_LOCATION "${hpccoll_PREFIX}/lib/libhpccoll.so.1"
    IMPORTED_SONAME "libhpccoll.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${hpccoll_PREFIX}/include")
endif()
get_property(hpccoll_LANGUAGES GLOBAL PROPERTY ENABLED_LANGUAGES)
if("Fortran" IN_LIST hpccoll_LANGUAGES AND "C" IN_LIST hpccoll_LANGUAGES AND NOT TARGET hpccoll_fortran)
  add_library(hpccoll_fortran STATIC "${hpccoll_PREFIX}/include/hpccoll.f90"
    "${hpccoll_PREFIX}/include/hpccoll_fortran.c")
  set_target_properties(hpccoll_fortran PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    Fortran_MODULE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/hpccoll_modules")
  target_include_directories(hpccoll_fortran PUBLIC "${CMAKE_CURRENT_BINARY_DIR}/hpccoll_modules")
  target_link_libraries(hpccoll_fortran PUBLIC hpccoll::hpccoll)
  add_library(hpccoll::fortran ALIAS hpccoll_fortran)
endif()
