# libmha-cuda.so, the plug-in for NVIDIA GPUs (src/cuda): plain C over the driver, which it opens at run time, and kernels
# that nvcc compiles and the plug-in embeds. Nothing is linked with CUDA, so that it also builds for another architecture.
set(MHA_CUDA AUTO CACHE STRING
  "Build the plug-in for NVIDIA GPUs: AUTO (where nvcc and a GPU are found), NVCC (where nvcc is found), ON or OFF")
set_property(CACHE MHA_CUDA PROPERTY STRINGS AUTO NVCC ON OFF)
set(MHA_CUDA_SPILL_BYTES 0 CACHE STRING "Bytes of registers that a kernel may spill before the build fails")
# Without it, what an earlier configuration of this folder built is not left to be loaded.
function(mha_without_cuda why)
  message(STATUS "${why}: libmha-cuda.so will not be built")
  file(REMOVE ${PROJECT_BINARY_DIR}/src/libmha-cuda.so)
endfunction()
if(NOT MHA_CUDA)
  mha_without_cuda("MHA_CUDA is ${MHA_CUDA}")
  return()
endif()

# The kernels take minutes to compile, so nvcc alone is no reason to: it is part of many machines without a GPU.
file(GLOB mha_gpus /dev/nvidia[0-9]* /dev/dxg)
if(MHA_CUDA STREQUAL AUTO AND NOT mha_gpus)
  mha_without_cuda("No NVIDIA GPU on this machine (MHA_CUDA=NVCC builds for others)")
  return()
endif()
find_program(MHA_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin NO_CMAKE_FIND_ROOT_PATH)
if(MHA_NVCC)
  # What nvcc itself includes: its program may be a script somewhere else.
  execute_process(COMMAND ${MHA_NVCC} -dryrun -E -x cu /dev/null OUTPUT_QUIET ERROR_VARIABLE dryrun)
  string(REGEX MATCH "_HERE_=([^\n\r]*)" found "${dryrun}")
  get_filename_component(root "${CMAKE_MATCH_1}/.." REALPATH)
  find_path(MHA_CUDA_INCLUDE cuda.h HINTS ${root}/include ${root}/targets/x86_64-linux/include
    ${root}/targets/sbsa-linux/include NO_CMAKE_FIND_ROOT_PATH)
  execute_process(COMMAND ${MHA_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
  string(REGEX MATCH "V[0-9.]+" nvcc_version "${nvcc_version}")
endif()
if(NOT MHA_NVCC OR NOT MHA_CUDA_INCLUDE)
  if(MHA_CUDA MATCHES "^(AUTO|NVCC)$")
    mha_without_cuda("No nvcc")
    return()
  endif()
  message(FATAL_ERROR "MHA_CUDA is ${MHA_CUDA}, but nvcc or its cuda.h was not found; MHA_NVCC names the program")
endif()

set(cuda ${PROJECT_SOURCE_DIR}/src/cuda)
# Several builds of one checkout can share them: the presets do.
set(MHA_CUBINS ${PROJECT_BINARY_DIR}/src/cubins CACHE PATH "Folder of the compiled kernels")
set(cubins ${MHA_CUBINS})
file(MAKE_DIRECTORY ${cubins})
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${cuda}/kernels/*.cuh ${cuda}/kernels/*.h)
# The table of kernels lists their files.
file(STRINGS ${cuda}/kernels/kernels.def modules REGEX "^MODULE")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cuda}/kernels/kernels.def)
list(TRANSFORM modules REPLACE "MODULE.([^,]*), ([^)]*).*" "${cuda}/kernels/\\1/\\2.cu" OUTPUT_VARIABLE mha_cuda_kernels)
list(TRANSFORM mha_cuda_kernels REPLACE "/[.]/" "/")
foreach(source IN LISTS mha_cuda_kernels)
  get_filename_component(name ${source} NAME_WE)
  add_custom_command(OUTPUT ${cubins}/${name}.cubin
    COMMAND ${CMAKE_COMMAND} -DNVCC=${MHA_NVCC} -DVERSION=${nvcc_version} -DSOURCE=${source} -DOUT=${cubins}/${name}.cubin
      -DSPILL_BYTES=${MHA_CUDA_SPILL_BYTES} -DFOLDERS=${cuda}/kernels
      -P ${PROJECT_SOURCE_DIR}/cmake/cubin.cmake
    DEPENDS ${source} ${headers} ${PROJECT_SOURCE_DIR}/cmake/cubin.cmake VERBATIM)
  list(APPEND cubin_files ${cubins}/${name}.cubin)
endforeach()

# It has its own copy of the few functions of core and attention that it needs, all hidden.
set(sources plugin.c device/cubins.c device/device.c device/driver.c device/kernels.c
  attention/call.c attention/choose.c attention/decode.c attention/explain.c attention/float32.c attention/general.c attention/layout.c
  attention/plan.c attention/small.c attention/stats.c attention/table.c attention/tiles.c
  ops/heads.c ops/ops.c ops/product.c ops/rows.c)
list(TRANSFORM sources PREPEND ${cuda}/)
add_library(mha_cuda MODULE ${sources} ${PROJECT_SOURCE_DIR}/src/core/status.c ${PROJECT_SOURCE_DIR}/src/core/tensor.c
  ${PROJECT_SOURCE_DIR}/src/core/arena.c ${PROJECT_SOURCE_DIR}/src/attention/angles.c ${PROJECT_SOURCE_DIR}/src/attention/problem.c)
set_target_properties(mha_cuda PROPERTIES OUTPUT_NAME mha-cuda C_VISIBILITY_PRESET hidden
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/src LINK_DEPENDS ${cuda}/exports.map)
set_source_files_properties(${cuda}/device/cubins.c PROPERTIES OBJECT_DEPENDS "${cubin_files}"
  COMPILE_DEFINITIONS MHA_CUBINS="${cubins}")
target_include_directories(mha_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_include_directories(mha_cuda SYSTEM PRIVATE ${MHA_CUDA_INCLUDE})
target_link_libraries(mha_cuda PRIVATE mha_flags m ${CMAKE_DL_LIBS})
target_link_options(mha_cuda PRIVATE -Wl,--version-script=${cuda}/exports.map -Wl,-z,nodelete)
if(NOT CMAKE_C_FLAGS MATCHES "-fsanitize") # whose functions are in the program
  target_link_options(mha_cuda PRIVATE -Wl,-z,defs)
endif()
