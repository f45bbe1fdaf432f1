# SPDX-License-Identifier: Apache-2.0
# cmake --install: library, headers, find_package(einkorn) and pkg-config.
include(CMakePackageConfigHelpers)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/einkorn)
install(TARGETS einkorn EXPORT einkornTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/einkorn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT einkornTargets NAMESPACE einkorn:: DESTINATION ${config_dir})

configure_package_config_file(cmake/einkornConfig.cmake.in "${PROJECT_BINARY_DIR}/einkornConfig.cmake"
                              INSTALL_DESTINATION ${config_dir})
# Before 1.0 a minor version may change the ABI.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/einkornConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/einkornConfig.cmake" "${PROJECT_BINARY_DIR}/einkornConfigVersion.cmake"
        DESTINATION ${config_dir})

# The .pc file finds its prefix from its own place, so that an installed tree can be moved.
file(RELATIVE_PATH pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
configure_file(cmake/einkorn.pc.in "${PROJECT_BINARY_DIR}/einkorn.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/einkorn.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
