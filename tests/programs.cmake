# What single test programs need beside what all have: wrapped functions, definitions, sources. And the fuzz target.
function(mha_wrap name)
  list(TRANSFORM ARGN PREPEND "-Wl,--wrap=" OUTPUT_VARIABLE options)
  target_link_options(test_${name} PRIVATE ${options})
endfunction()
mha_wrap(safetensors malloc calloc realloc)
mha_wrap(safetensors_write malloc realloc)
mha_wrap(replace openat fchmod write fsync close renameat unlinkat flock)
mha_wrap(data malloc calloc)
mha_wrap(image malloc)
mha_wrap(pool_system pthread_create pthread_join)
target_compile_definitions(test_pool_system PRIVATE LIBRARY="$<TARGET_FILE:mha_shared>")
target_link_libraries(test_pool_system PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(test_pool_system mha_shared)
# Neither qemu nor the runtime of the thread sanitizer can start threads in a child of a process that had some.
if(NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_C_FLAGS MATCHES "-fsanitize=thread")
  mha_test(core/pool_fork host)
endif()
# It sets the affinity of its process, which has no name in POSIX.
set_source_files_properties(core/test_processors.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)

# Tests pack some files themselves, where the library is there.
if(MHA_ZLIB AND MHA_ZLIB_LINKS)
  target_compile_definitions(test_data PRIVATE MHA_HAS_ZLIB)
  target_link_libraries(test_data PRIVATE ZLIB::ZLIB)
endif()
if(MHA_PNG AND MHA_PNG_LINKS)
  target_compile_definitions(test_image PRIVATE MHA_HAS_PNG)
  target_link_libraries(test_image PRIVATE PNG::PNG)
endif()

if(MHA_COMMAND)
  # They open a terminal, which is in POSIX's extension alone.
  set_source_files_properties(cli/test_train_command.c cli/test_prune_command.c PROPERTIES COMPILE_DEFINITIONS _XOPEN_SOURCE=700)
  # What draws is compiled into its test.
  set(draw chart flow flow_svg heads_draw heads_view markup picture scale term width)
  list(TRANSFORM draw REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/cli/draw/\\1.c")
  mha_test(cli/draw host)
  target_sources(test_draw PRIVATE ${draw})
  target_include_directories(test_draw PRIVATE ${PROJECT_SOURCE_DIR})
  # Allocations and writes that fail, by a library that is preloaded (LD_PRELOAD) and calls the C library's allocator by
  # the names that glibc has for it. Not with a sanitizer, whose own allocator has to come first; nor in a cross build,
  # where the emulator would load the library and nothing of it depends on the instruction set.
  set(CMAKE_REQUIRED_LIBRARIES)
  check_c_source_compiles("void *__libc_malloc(unsigned long);\nint main(void) { return !__libc_malloc(1); }" MHA_GLIBC)
  if(MHA_GLIBC AND as_shipped)
    add_library(mha_faults MODULE cli/faults.c)
    target_compile_definitions(mha_faults PRIVATE _DEFAULT_SOURCE)
    target_compile_options(mha_faults PRIVATE -fno-builtin)
    target_link_libraries(mha_faults PRIVATE mha_flags)
    mha_test(cli/faults host)
    target_compile_definitions(test_faults PRIVATE "COMMAND=\"'$<TARGET_FILE:mha_command>'\""
      "FAULTS=\"$<TARGET_FILE:mha_faults>\"")
    add_dependencies(test_faults mha_command mha_faults)
  endif()
endif()

# The fuzz target. With MHA_FUZZ it is libFuzzer's, and the reader is compiled into it so that it is instrumented, too:
#     cmake -B build/fuzz -DMHA_FUZZ=ON -DCMAKE_C_COMPILER=clang
#     cmake --build build/fuzz --target fuzz_safetensors && build/fuzz/tests/fuzz_safetensors -max_total_time=60
# Without, it is an ordinary test that shakes its own seeds.
option(MHA_FUZZ "Build fuzz_safetensors for libFuzzer (clang only)" OFF)
add_executable(fuzz_safetensors nn/io/fuzz_safetensors.c)
if(MHA_FUZZ)
  set(sanitizers -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
  target_sources(fuzz_safetensors PRIVATE ${PROJECT_SOURCE_DIR}/nn/io/failure.c ${PROJECT_SOURCE_DIR}/nn/io/safetensors.c
    ${PROJECT_SOURCE_DIR}/nn/io/safetensors_header.c ${PROJECT_SOURCE_DIR}/nn/io/json.c
    ${PROJECT_SOURCE_DIR}/nn/io/printable.c)
  target_include_directories(fuzz_safetensors PRIVATE ${PROJECT_SOURCE_DIR}/nn ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(fuzz_safetensors PRIVATE MHA_FUZZ)
  target_compile_options(fuzz_safetensors PRIVATE ${sanitizers} -g)
  target_link_options(fuzz_safetensors PRIVATE ${sanitizers})
  target_link_libraries(fuzz_safetensors PRIVATE mha_flags)
else()
  target_link_libraries(fuzz_safetensors PRIVATE mha_nn mha_flags)
  add_test(NAME fuzz_replay COMMAND fuzz_safetensors)
  mha_label(fuzz_replay isa)
  add_dependencies(tests_isa fuzz_safetensors)
endif()

# What needs no GPU of the plug-in is compiled into its test.
target_sources(test_cuda_plan PRIVATE ${PROJECT_SOURCE_DIR}/src/cuda/plan.c)
if(TARGET mha_cuda)
  # The plug-in on a GPU. It uses no more than it needs, so that this target alone is built quickly.
  foreach(program test_cuda test_cuda_finite)
    add_executable(${program} cuda/${program}.c cuda/calls.c cuda/gpu.c support/numbers.c)
    target_include_directories(${program} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_include_directories(${program} SYSTEM PRIVATE ${MHA_CUDA_INCLUDE})
    target_link_libraries(${program} PRIVATE mha::mha mha_ref mha_flags m ${CMAKE_DL_LIBS})
    set_target_properties(${program} PROPERTIES BUILD_RPATH $<TARGET_FILE_DIR:mha_cuda>)
    add_dependencies(${program} mha_cuda)
  endforeach()
  add_executable(test_cuda_options cuda/test_cuda_options.c)
  target_link_libraries(test_cuda_options PRIVATE mha_cases mha_ref mha_flags m)
  set_target_properties(test_cuda_options PROPERTIES BUILD_RPATH $<TARGET_FILE_DIR:mha_cuda>)
  add_dependencies(test_cuda_options mha_cuda)
  # The same program over a driver without a GPU: the host side alone.
  add_library(mha_fake_driver SHARED cuda/fake_driver.c cuda/fake_general.c cuda/fake_kernels.c support/numbers.c)
  set_target_properties(mha_fake_driver PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake)
  target_include_directories(mha_fake_driver PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(mha_fake_driver SYSTEM PRIVATE ${MHA_CUDA_INCLUDE})
  target_link_libraries(mha_fake_driver PRIVATE mha_flags m)
  if(as_shipped AND MHA_COMMAND)
    add_test(NAME cuda_host COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/host.sh $<TARGET_FILE:test_cuda>
      $<TARGET_FILE_DIR:mha_fake_driver> $<TARGET_FILE:mha_command>)
    mha_label(cuda_host host)
    foreach(name attention_random attention_pairs attention_batches) # the host side of the general and decode kernels
      add_test(NAME cuda_host_${name} COMMAND test_${name})
      mha_label(cuda_host_${name} host)
      set_tests_properties(cuda_host_${name} PROPERTIES ENVIRONMENT
        "MHA_BACKEND=cuda;MHA_FAKE_GPU=new;MHA_SAMPLE=20;LD_LIBRARY_PATH=$<TARGET_FILE_DIR:mha_fake_driver>")
    endforeach()
  endif()
  # The example is linked with the driver, which a machine without a GPU does not have.
  add_library(example_cuda OBJECT ${PROJECT_SOURCE_DIR}/examples/cuda_attention.c)
  target_include_directories(example_cuda SYSTEM PRIVATE ${MHA_CUDA_INCLUDE})
  target_link_libraries(example_cuda PRIVATE mha::mha mha_flags)
  file(GLOB gpus /dev/nvidia[0-9]*)
  if(gpus AND as_shipped)
    foreach(program cuda cuda_finite cuda_options)
      add_test(NAME ${program} COMMAND test_${program})
      mha_label(${program} cuda)
    endforeach()
    # The tests of the CPU's attention, with the general kernels and, where they can, those of Hopper.
    foreach(name attention_batches attention_hidden attention_huge attention_pairs attention_properties attention_random
        attention_sizes backward backward_exact backward_hidden)
      add_test(NAME cuda_${name} COMMAND test_${name})
      mha_label(cuda_${name} cuda)
      set_tests_properties(cuda_${name} PROPERTIES ENVIRONMENT MHA_BACKEND=cuda)
    endforeach()
  endif()
endif()
