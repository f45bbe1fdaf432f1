# SPDX-License-Identifier: Apache-2.0
# Fails if an object compiled for one x86-64 level defines a symbol outside its level's namespace that the linker may
# share between objects (weak or unique): a std:: template, say, or an inline function of a common header. The linker
# keeps one copy of it for all, and on an older CPU a v4 copy is an illegal instruction.
cmake_minimum_required(VERSION 3.24)
set(bad 0)
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND "${NM}" --defined-only "${object}" OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]*" symbols "${text}")
  foreach(symbol IN LISTS symbols)
    if(NOT symbol MATCHES "cpu_v[234]" AND NOT symbol MATCHES "DW\\.ref\\.")
      get_filename_component(name "${object}" NAME)
      message("${name}: ${symbol}")
      set(bad 1)
    endif()
  endforeach()
endforeach()
if(bad)
  message(FATAL_ERROR "shared symbols in objects of one CPU level; put them into namespace ek::EK_CPU_NS")
endif()
