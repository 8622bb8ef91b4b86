# Compiles the kernels of one .cu file for Hopper, and fails if one of them spills registers or waits for its products one
# by one (ptxas' advisories C75xx).
#
#     cmake -DNVCC=nvcc -DSOURCE=forward.cu -DOUT=forward.cubin -DSPILL_BYTES=0 -P cubin.cmake
cmake_minimum_required(VERSION 3.22)
execute_process(COMMAND ${NVCC} -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -cubin -Xptxas -v
  -o ${OUT} ${SOURCE} OUTPUT_VARIABLE report ERROR_VARIABLE report RESULT_VARIABLE status)
if(status)
  message(FATAL_ERROR "${report}")
endif()
string(REGEX MATCHALL "Function properties for [^\n]*\n[^\n]*" kernels "${report}")
set(reasons "")
foreach(kernel IN LISTS kernels)
  string(REGEX MATCH "for ([^\n]*)\n.* ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads" found "${kernel}")
  if(NOT found OR CMAKE_MATCH_2 GREATER SPILL_BYTES OR CMAKE_MATCH_3 GREATER SPILL_BYTES)
    string(APPEND reasons "\n  ${kernel}")
  endif()
endforeach()
string(REGEX MATCHALL "[^\n]*C75[0-9][0-9][^\n]*" advisories "${report}")
foreach(line IN LISTS advisories)
  string(APPEND reasons "\n  ${line}")
endforeach()
if(NOT kernels)
  string(APPEND reasons "\n  ptxas reports no kernel:\n${report}")
endif()
if(reasons)
  file(REMOVE ${OUT})
  message(FATAL_ERROR "${SOURCE}:${reasons}")
endif()
