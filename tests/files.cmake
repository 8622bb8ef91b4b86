# Files of tensors, and the command.
mha_test(safetensors)
target_link_options(test_safetensors PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc)

mha_test(safetensors_write)
target_link_options(test_safetensors_write PRIVATE -Wl,--wrap=malloc,--wrap=realloc)
mha_test(replace)
target_link_options(test_replace PRIVATE
  -Wl,--wrap=openat,--wrap=fchmod,--wrap=write,--wrap=fsync,--wrap=close,--wrap=renameat,--wrap=unlinkat,--wrap=flock)
mha_test(layer_file)
mha_test(layer_file_errors)

# Data sets: their files (the test packs some with zlib, where there is one), the digits, how they are fetched.
mha_test(data)
target_link_options(test_data PRIVATE -Wl,--wrap=malloc,--wrap=calloc)
if(MHA_ZLIB AND MHA_ZLIB_LINKS)
  target_compile_definitions(test_data PRIVATE MHA_HAS_ZLIB)
  target_link_libraries(test_data PRIVATE ZLIB::ZLIB)
endif()
mha_test(digits)
mha_test(image)
target_link_libraries(test_image PRIVATE mha_cases)
target_link_options(test_image PRIVATE -Wl,--wrap=malloc)
if(MHA_PNG AND MHA_PNG_LINKS)
  target_compile_definitions(test_image PRIVATE MHA_HAS_PNG)
  target_link_libraries(test_image PRIVATE PNG::PNG)
endif()
# It fetches from a server on this machine, with curl and python3, which ./dev sees to; whoever builds by hand may go without.
add_test(NAME data_fetch COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/data.sh ${PROJECT_SOURCE_DIR}/nn/fetch_mnist.sh)
set_tests_properties(data_fetch PROPERTIES SKIP_REGULAR_EXPRESSION "0 passed, 0 failed, 1 skipped")

# ./dev in a folder that was moved.
add_test(NAME dev COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/dev.sh ${PROJECT_SOURCE_DIR}/dev)
set_tests_properties(dev PROPERTIES SKIP_REGULAR_EXPRESSION "0 passed, 0 failed, 1 skipped")

# Operations, optimiser, models and their training.
set_source_files_properties(test_nn_ops_activation.c PROPERTIES COMPILE_OPTIONS -Wno-psabi) # it includes functions.h
foreach(name nn_ops nn_ops_norm nn_ops_activation nn_ops_drop nn_ops_embedding nn_optimizer vit vit_file trainer checkpoint prune survey)
  mha_test(${name})
  target_link_libraries(test_${name} PRIVATE mha_cases)
endforeach()

# The fuzz target. With MHA_FUZZ it is libFuzzer's, and the reader is compiled into it so that it is instrumented, too:
#     cmake -B build/fuzz -DMHA_FUZZ=ON -DCMAKE_C_COMPILER=clang
#     cmake --build build/fuzz --target fuzz_safetensors && build/fuzz/tests/fuzz_safetensors -max_total_time=60
# Without, it is an ordinary test that shakes its own seeds.
option(MHA_FUZZ "Build fuzz_safetensors for libFuzzer (clang only)" OFF)
add_executable(fuzz_safetensors fuzz_safetensors.c)
if(MHA_FUZZ)
  set(sanitizers -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
  target_sources(fuzz_safetensors PRIVATE ${PROJECT_SOURCE_DIR}/nn/safetensors.c
    ${PROJECT_SOURCE_DIR}/nn/safetensors_header.c ${PROJECT_SOURCE_DIR}/nn/json.c
    ${PROJECT_SOURCE_DIR}/nn/printable.c)
  target_include_directories(fuzz_safetensors PRIVATE ${PROJECT_SOURCE_DIR}/nn ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(fuzz_safetensors PRIVATE MHA_FUZZ)
  target_compile_options(fuzz_safetensors PRIVATE ${sanitizers} -g)
  target_link_options(fuzz_safetensors PRIVATE ${sanitizers})
  target_link_libraries(fuzz_safetensors PRIVATE mha_flags)
else()
  target_link_libraries(fuzz_safetensors PRIVATE mha_nn mha_flags)
  add_test(NAME fuzz_replay COMMAND fuzz_safetensors)
endif()

# What runs the command types it as a person would, after the emulator of a cross build.
if(MHA_COMMAND)
  string(REPLACE ";" " " emulator "${CMAKE_CROSSCOMPILING_EMULATOR}")
  # They open a terminal, which is in POSIX's extension alone.
  set_source_files_properties(test_train_command.c test_prune_command.c PROPERTIES COMPILE_DEFINITIONS _XOPEN_SOURCE=700)
  foreach(name cli bench layer_command layer_command_errors layer_config train_command train_command_errors conformance
    hostile_names eval_command prune_command classify_command heads_command demo_command view_command view_command_errors
    view_command_weights)
    mha_test(${name})
    target_compile_definitions(test_${name} PRIVATE "COMMAND=\"${emulator} '$<TARGET_FILE:mha_command>'\"")
    add_dependencies(test_${name} mha_command)
  endforeach()
  target_link_libraries(test_train_command PRIVATE mha_cases)
  # What only the demo calls is compiled into its test.
  set(sheet sheet sheet_curves sheet_digit sheet_style heads_draw picture scale term)
  list(TRANSFORM sheet REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/cli/\\1.c")
  mha_test(sheet ${sheet})
  target_include_directories(test_sheet PRIVATE ${PROJECT_SOURCE_DIR}/cli)
  # Allocations and writes that fail, by a library that is preloaded (LD_PRELOAD) and calls the C library's allocator by
  # the names that glibc has for it. Not with a sanitizer, whose own allocator has to come first; nor in a cross build,
  # where the emulator would load the library and nothing of it depends on the instruction set.
  set(CMAKE_REQUIRED_LIBRARIES)
  check_c_source_compiles("void *__libc_malloc(unsigned long);\nint main(void) { return !__libc_malloc(1); }" MHA_GLIBC)
  if(MHA_GLIBC AND NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_C_FLAGS MATCHES "-fsanitize")
    add_library(mha_faults MODULE faults.c)
    target_compile_definitions(mha_faults PRIVATE _DEFAULT_SOURCE)
    target_compile_options(mha_faults PRIVATE -fno-builtin)
    target_link_libraries(mha_faults PRIVATE mha_flags)
    mha_test(faults)
    target_compile_definitions(test_faults PRIVATE "COMMAND=\"'$<TARGET_FILE:mha_command>'\""
      "FAULTS=\"$<TARGET_FILE:mha_faults>\"")
    target_link_libraries(test_faults PRIVATE mha_cases)
    add_dependencies(test_faults mha_command mha_faults)
  endif()
  # Without MHA_VECTORS in the environment there is nothing to run, which is not a success.
  set_tests_properties(conformance PROPERTIES SKIP_REGULAR_EXPRESSION "0 passed, 0 failed, 1 skipped")
  # The script runs the command itself, so it is told of the emulator. It wants python3, which ./dev sees to; whoever
  # builds by hand may go without it, as without ./dev bench.
  add_test(NAME report COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/report.sh ${PROJECT_SOURCE_DIR}/bench/report.py
    ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:mha_command>)
  set_tests_properties(report PROPERTIES SKIP_REGULAR_EXPRESSION "0 passed, 0 failed, 1 skipped")
endif()
