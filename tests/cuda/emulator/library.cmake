# mha_emulator, the libcuda.so.1 of tests: its driver in C, the machine in C++, and the kernels of src/cuda compiled for this CPU.
enable_language(CXX)
set(emulator ${CMAKE_CURRENT_SOURCE_DIR}/cuda/emulator)
add_library(mha_emulator SHARED ${emulator}/driver.c ${emulator}/engine.cpp ${emulator}/machine.cpp ${mha_cuda_kernels})
set_target_properties(mha_emulator PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
  CXX_STANDARD 17 CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/emulator)
# Warnings about kernels are those of nvcc.
set_source_files_properties(${mha_cuda_kernels} PROPERTIES LANGUAGE CXX OBJECT_DEPENDS ${emulator}/device.h
  COMPILE_OPTIONS "-x;c++;-include;${emulator}/device.h;-w")
set_source_files_properties(${emulator}/engine.cpp PROPERTIES COMPILE_OPTIONS "-O3")
set_source_files_properties(${emulator}/driver.c PROPERTIES COMPILE_OPTIONS "-std=c11")
# A longjmp to another stack is no error here, and products are not fused behind the back of kernels, which round as they are written.
target_compile_options(mha_emulator PRIVATE -O2 -g1 -Wall -Wextra -Werror -Wno-psabi -U_FORTIFY_SOURCE -fno-strict-aliasing -ffp-contract=off)
target_include_directories(mha_emulator PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src
  ${PROJECT_SOURCE_DIR}/src/cuda/kernels ${PROJECT_SOURCE_DIR}/include)
target_include_directories(mha_emulator SYSTEM PRIVATE ${MHA_CUDA_INCLUDE})
target_link_libraries(mha_emulator PRIVATE ${CMAKE_DL_LIBS} m)
target_link_options(mha_emulator PRIVATE -Wl,-z,defs)
