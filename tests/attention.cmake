# Attention, rotary embedding and the matrix product against float64. What the programs share is one library: cases,
# memory with guards, bounds, contexts that watch.
add_library(mha_cases STATIC arguments.c bounds.c cases.c contexts.c gradient_bounds.c gradients.c layers.c numbers.c oracle.c problem.c
  statistics.c verify.c views.c)
target_include_directories(mha_cases PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(mha_cases PUBLIC mha::mha mha_ref Threads::Threads PRIVATE mha_flags m)

foreach(name oracle arguments extremes matmul context tensor memory explain rotary rotary_errors attention_random attention_pairs
    layer_oracle layer layer_cache layer_errors layer_heads
    attention_sizes attention_properties attention_hidden attention_huge attention_bits attention_paths attention_batches
    attention_errors attention_overlap attention_stream backward_oracle backward backward_bits backward_exact backward_hidden
    backward_errors
    stats stats_bits stats_errors pool pool_system processors)
  mha_test(${name})
  target_link_libraries(test_${name} PRIVATE mha_cases)
endforeach()
target_compile_definitions(test_pool_system PRIVATE LIBRARY="$<TARGET_FILE:mha_shared>")
target_link_libraries(test_pool_system PRIVATE ${CMAKE_DL_LIBS})
target_link_options(test_pool_system PRIVATE -Wl,--wrap=pthread_create,--wrap=pthread_join)
add_dependencies(test_pool_system mha_shared)
# It sets the affinity of its process, which has no name in POSIX.
set_source_files_properties(test_processors.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)

# The layer of GPT-3 has 2.4 GB of parameters: once, on the machine itself and without a sanitizer's shadow of them.
if(NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_C_FLAGS MATCHES "-fsanitize")
  mha_test(layer_gpt3)
  target_link_libraries(test_layer_gpt3 PRIVATE mha_cases)
endif()
