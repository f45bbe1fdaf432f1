# SPDX-License-Identifier: Apache-2.0
# Makes the Python files of DESTINATION those of SOURCE: copies FILES that differ and removes what is gone.
cmake_minimum_required(VERSION 3.24)
file(GLOB_RECURSE present RELATIVE "${DESTINATION}" "${DESTINATION}/*.py" "${DESTINATION}/*.pyi"
     "${DESTINATION}/py.typed")
foreach(file IN LISTS present)
  if(NOT file IN_LIST FILES)
    file(REMOVE "${DESTINATION}/${file}")
  endif()
endforeach()
foreach(file IN LISTS FILES)
  get_filename_component(folder "${DESTINATION}/${file}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  file(COPY_FILE "${SOURCE}/${file}" "${DESTINATION}/${file}" ONLY_IF_DIFFERENT)
endforeach()
