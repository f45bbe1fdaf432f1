# SPDX-License-Identifier: Apache-2.0
# The Python package, whole, in <build>/python/einkorn: the .py files, libeinkorn.so.0 and _native.abi3.so. It uses the
# stable ABI of Python 3.11, so that one build serves every later version. A wheel gets the same files.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

set(package_source "${PROJECT_SOURCE_DIR}/bindings/python/einkorn")
set(package_dir "${PROJECT_BINARY_DIR}/python/einkorn")
file(GLOB native_sources CONFIGURE_DEPENDS bindings/python/src/*.cpp)
file(GLOB_RECURSE package_files CONFIGURE_DEPENDS RELATIVE "${package_source}" bindings/python/einkorn/*.py
     bindings/python/einkorn/*.pyi bindings/python/einkorn/py.typed)

add_library(einkorn_native MODULE ${native_sources})
target_compile_definitions(einkorn_native PRIVATE Py_LIMITED_API=0x030B0000)
target_include_directories(einkorn_native SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
target_link_libraries(einkorn_native PRIVATE einkorn_options einkorn::einkorn)
target_link_options(einkorn_native PRIVATE ${EINKORN_RUNTIME_FLAGS} LINKER:--exclude-libs,ALL)
set_target_properties(
  einkorn_native
  PROPERTIES PREFIX ""
             OUTPUT_NAME _native
             SUFFIX .abi3.so
             LIBRARY_OUTPUT_DIRECTORY "${package_dir}"
             BUILD_WITH_INSTALL_RPATH ON
             INSTALL_RPATH "$ORIGIN")

# One copy of the library under its SONAME: a wheel can't hold symbolic links.
set(library_copy "${package_dir}/libeinkorn.so.${PROJECT_VERSION_MAJOR}")
add_custom_command(
  OUTPUT "${library_copy}"
  COMMAND ${CMAKE_COMMAND} -E make_directory "${package_dir}"
  COMMAND ${CMAKE_COMMAND} -E copy "$<TARGET_FILE:einkorn>" "${library_copy}"
  DEPENDS einkorn
  VERBATIM)

set(package_inputs ${package_files})
list(TRANSFORM package_inputs PREPEND "${package_source}/")
add_custom_command(
  OUTPUT "${PROJECT_BINARY_DIR}/python.stamp"
  COMMAND ${CMAKE_COMMAND} "-DSOURCE=${package_source}" "-DDESTINATION=${package_dir}" "-DFILES=${package_files}" -P
          "${PROJECT_SOURCE_DIR}/cmake/sync_python.cmake"
  COMMAND ${CMAKE_COMMAND} -E touch "${PROJECT_BINARY_DIR}/python.stamp"
  DEPENDS ${package_inputs} "${PROJECT_SOURCE_DIR}/cmake/sync_python.cmake"
  VERBATIM)
add_custom_target(einkorn_python ALL DEPENDS "${library_copy}" "${PROJECT_BINARY_DIR}/python.stamp")
add_dependencies(einkorn_python einkorn_native)

# For wheels: scikit-build-core installs this component and adds the .py files itself.
install(TARGETS einkorn_native LIBRARY DESTINATION einkorn COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS "${library_copy}" DESTINATION einkorn COMPONENT python EXCLUDE_FROM_ALL)
