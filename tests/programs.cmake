# What single test programs need beside what all have: wrapped functions, definitions, sources. And the fuzz target.
function(mha_wrap name)
  list(TRANSFORM ARGN PREPEND "-Wl,--wrap=" OUTPUT_VARIABLE options)
  target_link_options(test_${name} PRIVATE ${options})
endfunction()
mha_wrap(safetensors malloc calloc realloc)
mha_wrap(safetensors_write malloc realloc)
mha_wrap(replace openat fchmod write fsync close renameat unlinkat flock)
mha_wrap(data malloc calloc)
mha_wrap(mha_prune_text malloc calloc)
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

foreach(name PCRE2 UTF8PROC)
  if(MHA_${name} AND MHA_${name}_LINKS)
    foreach(test tokenizer tokenizer_steps tokenizer_files tokenizer_hostile tokenize_command)
      if(TARGET test_${test})
        target_compile_definitions(test_${test} PRIVATE MHA_HAS_${name})
      endif()
    endforeach()
  endif()
endforeach()

if(MHA_COMMAND)
  add_library(mha_marker MODULE core/marker.c)
  target_link_libraries(mha_marker PRIVATE mha_flags)
  target_compile_definitions(test_cli PRIVATE "MARKER=\"$<TARGET_FILE:mha_marker>\"")
  add_dependencies(test_cli mha_marker)
  # They open a terminal, which is in POSIX's extension alone.
  set_source_files_properties(cli/train/test_train_command.c cli/prune/test_prune_command.c cli/terminal/test_progress.c PROPERTIES COMPILE_DEFINITIONS _XOPEN_SOURCE=700)
  # What draws is compiled into its test.
  set(draw chart flow flow_svg heads_draw heads_view markup picture scale term width)
  list(TRANSFORM draw REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/cli/draw/\\1.c")
  mha_test(cli/draw/draw host)
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
    mha_test(cli/faults host slow)
    target_compile_definitions(test_faults PRIVATE "COMMAND=\"'$<TARGET_FILE:mha_command>'\""
      "CONFORMANCE=\"'$<TARGET_FILE:mha_conformance>'\"" "FAULTS=\"$<TARGET_FILE:mha_faults>\"")
    add_dependencies(test_faults mha_command mha_conformance mha_faults)
  endif()
endif()

# Fuzz targets; support/fuzz.h says how they run. With MHA_FUZZ the reader is compiled into them, so that it is instrumented.
option(MHA_FUZZ "Build the fuzz targets for libFuzzer (clang only)" OFF)
set(sanitizers -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
# mha_fuzz(PATH SOURCE...): the target fuzz_NAME of PATH/fuzz_NAME.c, and the sources of nn/ that it reads with.
function(mha_fuzz path)
  get_filename_component(name ${path} NAME)
  list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/nn/" OUTPUT_VARIABLE sources)
  add_executable(${name} ${path}.c)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/nn ${PROJECT_SOURCE_DIR}/include)
  if(MHA_FUZZ)
    target_sources(${name} PRIVATE ${sources})
    set_source_files_properties(${PROJECT_SOURCE_DIR}/nn/io/file_map.c PROPERTIES COMPILE_DEFINITIONS _DEFAULT_SOURCE)
    target_compile_definitions(${name} PRIVATE MHA_FUZZ)
    target_compile_options(${name} PRIVATE ${sanitizers} -g)
    target_link_options(${name} PRIVATE ${sanitizers})
    target_link_libraries(${name} PRIVATE mha_flags m)
  else()
    target_link_libraries(${name} PRIVATE mha_nn mha_flags mha_leaks)
    add_test(NAME ${name} COMMAND ${name})
    mha_label(${name} isa)
    add_dependencies(tests_isa ${name})
    add_dependencies(tests_quick ${name})
  endif()
endfunction()
mha_fuzz(nn/io/fuzz_safetensors io/failure.c io/file_map.c io/safetensors.c io/safetensors_header.c io/json.c io/printable.c io/source.c)
file(GLOB family_sources RELATIVE ${PROJECT_SOURCE_DIR}/nn ${PROJECT_SOURCE_DIR}/nn/families/*/*.c)
mha_fuzz(nn/families/fuzz_config ${family_sources} families/bare.c families/config.c families/describe.c families/find.c families/pruned_keys.c families/rotary_keys.c families/shards.c
  families/table.c families/window_keys.c families/wrapped.c model/description.c model/parts.c generate/config.c generate/speech.c
  io/failure.c io/file_map.c io/safetensors.c io/safetensors_header.c io/json.c io/printable.c io/source.c
  io/buffer.c io/file_lock.c io/file_place.c io/replace.c)
mha_fuzz(nn/data/fuzz_wav io/failure.c io/printable.c io/source.c data/wav.c)

# The fuzz target of tokenizers, likewise. The library's files are compiled into it, too.
add_executable(fuzz_tokenizer nn/text/fuzz_tokenizer.c)
if(MHA_FUZZ)
  file(GLOB text_sources ${PROJECT_SOURCE_DIR}/nn/text/*.c ${PROJECT_SOURCE_DIR}/nn/text/files/*.c)
  set(io_sources buffer failure file_lock file_place hub/hub json printable replace source)
  list(TRANSFORM io_sources REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/nn/io/\\1.c")
  target_sources(fuzz_tokenizer PRIVATE ${text_sources} ${io_sources})
  set_source_files_properties(${PROJECT_SOURCE_DIR}/nn/io/file_place.c PROPERTIES COMPILE_DEFINITIONS _XOPEN_SOURCE=700)
  target_include_directories(fuzz_tokenizer PRIVATE ${PROJECT_SOURCE_DIR}/nn ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(fuzz_tokenizer PRIVATE MHA_FUZZ)
  target_compile_options(fuzz_tokenizer PRIVATE ${sanitizers} -g)
  target_link_options(fuzz_tokenizer PRIVATE ${sanitizers})
  target_link_libraries(fuzz_tokenizer PRIVATE mha_flags m Threads::Threads)
  foreach(name PCRE2 UTF8PROC)
    if(MHA_${name} AND MHA_${name}_LINKS)
      target_compile_definitions(fuzz_tokenizer PRIVATE MHA_HAS_${name})
      target_link_libraries(fuzz_tokenizer PRIVATE MHA_${name})
    endif()
  endforeach()
else()
  target_link_libraries(fuzz_tokenizer PRIVATE mha_nn mha_flags mha_leaks)
  add_test(NAME fuzz_replay_tokenizer COMMAND fuzz_tokenizer)
  mha_label(fuzz_replay_tokenizer isa)
  add_dependencies(tests_isa fuzz_tokenizer)
  add_dependencies(tests_quick fuzz_tokenizer)
endif()

# What needs no GPU of the plug-in is compiled into its test.
target_sources(test_cuda_table PRIVATE ${PROJECT_SOURCE_DIR}/src/cuda/attention/table.c
  ${PROJECT_SOURCE_DIR}/src/cuda/attention/choose.c ${PROJECT_SOURCE_DIR}/src/cuda/attention/plan.c)
if(TARGET mha_cuda)
  # The plug-in on a GPU. It uses no more than it needs, so that this target alone is built quickly.
  foreach(program test_cuda test_cuda_edges test_cuda_finite test_cuda_layer test_cuda_often test_cuda_product test_cuda_small)
    add_executable(${program} cuda/${program}.c cuda/calls.c cuda/gpu.c support/numbers.c)
    target_include_directories(${program} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_include_directories(${program} SYSTEM PRIVATE ${MHA_CUDA_INCLUDE})
    target_link_libraries(${program} PRIVATE mha::mha mha_ref mha_flags m ${CMAKE_DL_LIBS})
    set_target_properties(${program} PROPERTIES BUILD_RPATH $<TARGET_FILE_DIR:mha_cuda>)
    add_dependencies(${program} mha_cuda)
  endforeach()
  foreach(program test_cuda_options test_cuda_stats)
    add_executable(${program} cuda/${program}.c)
    target_link_libraries(${program} PRIVATE mha_cases mha_ref mha_flags m)
    set_target_properties(${program} PROPERTIES BUILD_RPATH $<TARGET_FILE_DIR:mha_cuda>)
    add_dependencies(${program} mha_cuda)
  endforeach()
  # A driver without a GPU, which runs the kernels on the CPU.
  if(as_shipped AND MHA_COMMAND)
    include(cuda/emulator/library.cmake)
    add_test(NAME cuda_host COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/host.sh $<TARGET_FILE:test_cuda>
      $<TARGET_FILE_DIR:mha_emulator> $<TARGET_FILE:mha_command>)
    mha_label(cuda_host host slow)
    add_test(NAME cuda_host_commands COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/commands.sh $<TARGET_FILE:mha_command>
      $<TARGET_FILE_DIR:mha_emulator>)
    mha_label(cuda_host_commands host slow)
    # The tests of the CPU's attention and layer; of some a part, which takes seconds there.
    set(part_of_attention_sizes strides long_rows)
    set(part_of_backward_exact scores exact)
    set(part_of_layer_cache_ragged equal memories extras steps)
    set(part_of_backward_hidden what_is_not what_is_visible all bad) # all but numbers of any size, of which it has too many
    set(sample_of_attention_hidden 1) # every way to hide a key, with every type
    set(sample_of_backward_hidden 1)
    foreach(name device_memory layer_command attention_random attention_pairs attention_batches attention_sizes attention_hidden attention_huge attention_overlap
        backward backward_exact backward_hidden layer layer_cache layer_cache_projected layer_cache_ragged layer_heads
        layer_intermediates layer_norm layer_padding layer_rotary layer_weights rotary ops_activation ops_dropout
        ops_embedding ops_loss ops_norm nn_linear stats)
      add_test(NAME cuda_host_${name} COMMAND test_${name} ${part_of_${name}})
      mha_label(cuda_host_${name} host slow)
      set(sample ${sample_of_${name}} 20)
      list(GET sample 0 sample)
      set_tests_properties(cuda_host_${name} PROPERTIES ENVIRONMENT
        "MHA_BACKEND=cuda;MHA_EMULATED_GPU=new;MHA_SAMPLE=${sample};LD_LIBRARY_PATH=$<TARGET_FILE_DIR:mha_emulator>")
    endforeach()
    set(words_of_stats any_number softmax)
    set(words_of_options any_combination_of_options any_combination_of_maps any_mask_and_dropout any_bias windows_alone few_rows gradients)
    foreach(name edges layer options product small stats) # in its memory
      add_test(NAME cuda_host_${name}_memory COMMAND test_cuda_${name} ${words_of_${name}})
      mha_label(cuda_host_${name}_memory host slow)
      set_tests_properties(cuda_host_${name}_memory PROPERTIES ENVIRONMENT
        "MHA_EMULATED_GPU=new;MHA_SAMPLE=20;LD_LIBRARY_PATH=$<TARGET_FILE_DIR:mha_emulator>")
    endforeach()
  endif()
  add_executable(example_cuda ${PROJECT_SOURCE_DIR}/examples/cuda_attention.c)
  target_link_libraries(example_cuda PRIVATE mha::mha mha_flags)
  set_target_properties(example_cuda PROPERTIES BUILD_RPATH $<TARGET_FILE_DIR:mha_cuda>)
  add_dependencies(example_cuda mha_cuda)
  if(mha_gpus AND as_shipped)
    foreach(program cuda cuda_edges cuda_finite cuda_layer cuda_often cuda_options cuda_product cuda_small cuda_stats)
      add_test(NAME ${program} COMMAND test_${program})
      mha_label(${program} cuda slow)
    endforeach()
    add_test(NAME cuda_example COMMAND example_cuda)
    set_tests_properties(cuda_example PROPERTIES LABELS "cuda;slow"
      PASS_REGULAR_EXPRESSION "kernel forward_bf16_128_window: 512 pieces of 128 rows\nout.0. = 0.500, dv.0. = 1.000\n")
    if(MHA_COMMAND)
      add_test(NAME cuda_commands COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/commands.sh $<TARGET_FILE:mha_command>)
      mha_label(cuda_commands cuda slow)
    endif()
    # A few calls of each kind under the sanitizer of CUDA, where it is installed.
    get_filename_component(beside_nvcc ${MHA_NVCC} DIRECTORY)
    find_program(MHA_COMPUTE_SANITIZER compute-sanitizer HINTS ${beside_nvcc})
    # racecheck does not follow __syncwarp(): where one lane arrives at a barrier for its warp, which has read what other warps write,
    # as kernels of gradients and of masks do, it reports the loads of the other lanes. And where blocks of the window kernels compute more
    # than two tiles, it reports that all threads load the place of a tile that one of them uses, and gives back, behind a barrier.
    set(words_of_memcheck_options any_combination any_bias any_mask windows_alone few_rows gradients_of)
    set(words_of_memcheck_edges layouts range)
    set(words_of_racecheck_options any_combination_of_options any_bias few_rows_against)
    foreach(check memcheck_edges memcheck_options memcheck_small racecheck_options)
      if(MHA_COMPUTE_SANITIZER)
        string(REPLACE "_" ";" parts ${check})
        list(GET parts 0 tool)
        list(GET parts 1 program)
        add_test(NAME cuda_${check} COMMAND ${MHA_COMPUTE_SANITIZER} --tool ${tool} --error-exitcode 1
          $<TARGET_FILE:test_cuda_${program}> ${words_of_${check}})
        mha_label(cuda_${check} cuda slow)
        set_tests_properties(cuda_${check} PROPERTIES ENVIRONMENT MHA_CASES=2)
      endif()
    endforeach()
    foreach(check memcheck_attention_random memcheck_backward racecheck_attention_random racecheck_backward) # float32
      if(MHA_COMPUTE_SANITIZER)
        string(REGEX MATCH "^([a-z]+)_(.*)" tool ${check})
        add_test(NAME cuda_${check} COMMAND ${MHA_COMPUTE_SANITIZER} --tool ${CMAKE_MATCH_1} --error-exitcode 1
          $<TARGET_FILE:test_${CMAKE_MATCH_2}> any_sight_of_float32)
        mha_label(cuda_${check} cuda slow)
        set_tests_properties(cuda_${check} PROPERTIES ENVIRONMENT "MHA_BACKEND=cuda;MHA_SAMPLE=20")
      endif()
    endforeach()
    # The tests of the CPU's attention, with the general kernels and, where they can, those of Hopper; and of the layer.
    foreach(name device_memory layer_command attention_batches attention_hidden attention_huge attention_overlap attention_pairs
        attention_properties attention_random attention_sizes backward backward_exact backward_hidden layer layer_cache layer_cache_projected layer_cache_ragged
        layer_heads
        layer_intermediates layer_norm layer_padding layer_rotary layer_weights rotary ops_activation ops_dropout
        ops_embedding ops_loss ops_norm nn_linear stats stats_bits)
      add_test(NAME cuda_mirror_${name} COMMAND test_${name})
      mha_label(cuda_mirror_${name} cuda slow)
      set_tests_properties(cuda_mirror_${name} PROPERTIES ENVIRONMENT MHA_BACKEND=cuda)
    endforeach()
    add_test(NAME cuda_mirror_attention_padding COMMAND test_attention_padding)
    add_test(NAME cuda_mirror_backward_bits COMMAND test_backward_bits)
    foreach(name attention_padding backward_bits)
      mha_label(cuda_mirror_${name} cuda slow)
      set_tests_properties(cuda_mirror_${name} PROPERTIES ENVIRONMENT "MHA_BACKEND=cuda;MHA_CASES=200")
    endforeach()
  endif()
endif()
