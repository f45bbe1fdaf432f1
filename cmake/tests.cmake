# SPDX-License-Identifier: Apache-2.0
# CTest: one executable per file of tests/core (against the objects, since the library hides its inner symbols) and of
# tests/abi (against the library, as a user has it). A test is a main that prints what failed and returns non-zero.
# Warnings in tests are always errors: that the public headers are clean C11 and C++17 is part of what is tested.

add_library(einkorn_testable STATIC EXCLUDE_FROM_ALL ${objects})
set_target_properties(einkorn_testable PROPERTIES LINKER_LANGUAGE CXX)
target_link_libraries(einkorn_testable PUBLIC einkorn_options Threads::Threads ${CMAKE_DL_LIBS} rt)

# What else a program that is not built here has to link with the archive.
set(testable_link -pthread -ldl -lrt)
if(EINKORN_HAS_CUDA)
  find_library(cudart_static cudart_static PATHS ${CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES} NO_CACHE REQUIRED)
  list(PREPEND testable_link "${cudart_static}")
endif()
file(WRITE "${PROJECT_BINARY_DIR}/testable_link.txt" "${testable_link}\n")

# qemu-user keeps a thread of its own in every process that it runs.
set(emulator_threads 0)
if(CMAKE_CROSSCOMPILING_EMULATOR MATCHES "qemu")
  set(emulator_threads 1)
endif()

function(einkorn_test group source library)
  get_filename_component(stem "${source}" NAME_WE)
  string(REGEX REPLACE "^test_" "" stem "${stem}")
  set(target test_${group}_${stem})
  add_executable(${target} "${source}")
  target_compile_options(${target} PRIVATE -UNDEBUG -Wall -Wextra -Werror)
  target_compile_definitions(${target} PRIVATE EMULATOR_THREADS=${emulator_threads})
  target_link_libraries(${target} PRIVATE ${library} Threads::Threads ${CMAKE_DL_LIBS})
  if(EINKORN_HAS_CUDA)
    target_compile_definitions(${target} PRIVATE EINKORN_CUDA=1)
    target_include_directories(${target} SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  endif()
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  add_test(NAME ${group}.${stem} COMMAND ${target})
  set_tests_properties(${group}.${stem} PROPERTIES TIMEOUT 120)
endfunction()

file(GLOB core_tests CONFIGURE_DEPENDS tests/core/*.cpp)
foreach(source IN LISTS core_tests)
  einkorn_test(core "${source}" einkorn_testable)
endforeach()

file(GLOB abi_tests CONFIGURE_DEPENDS tests/abi/*.c tests/abi/*.cpp)
foreach(source IN LISTS abi_tests)
  einkorn_test(abi "${source}" einkorn::einkorn)
endforeach()

# An installed tree serves a C program through find_package and through pkg-config.
add_test(NAME abi.install COMMAND "${PROJECT_SOURCE_DIR}/tests/abi/install/run" "${PROJECT_BINARY_DIR}"
                                  "${CMAKE_COMMAND}" "${CMAKE_C_COMPILER}" ${CMAKE_CROSSCOMPILING_EMULATOR})
set_tests_properties(abi.install PROPERTIES TIMEOUT 300)

# An inline function compiled for x86-64-v4 must not become the one copy that every CPU runs.
if(TARGET einkorn_cpu_v2)
  add_test(
    NAME core.cpu_levels
    COMMAND ${CMAKE_COMMAND} "-DNM=${CMAKE_NM}"
            "-DOBJECTS=$<TARGET_OBJECTS:einkorn_cpu_v3>;$<TARGET_OBJECTS:einkorn_cpu_v4>" -P "${PROJECT_SOURCE_DIR}/cmake/check_cpu_levels.cmake")
endif()
