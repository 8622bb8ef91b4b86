# Installs the build tree and uses it as a stranger would, and compiles the programs that the documents show and the
# examples; and, where PyTorch is installed, compares the layer with PyTorch's.
# Not in a cross build (it compiles with the host's C++ compiler and pkg-config, which know nothing of the other
# architecture) nor in a sanitizer build (a stranger's program is linked without the sanitizer's runtime).
if(NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_C_FLAGS MATCHES "-fsanitize")
  add_test(NAME install
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/run.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(install PROPERTIES ENVIRONMENT
    "CC=${CMAKE_C_COMPILER};CMAKE=${CMAKE_COMMAND};CMAKE_GENERATOR=${CMAKE_GENERATOR};VERSION=${PROJECT_VERSION}")
  # Not every machine has a PyTorch to be had; ./dev setup all, and so .ci/run, installs Debian's.
  add_test(NAME parity COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/parity/run.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(parity PROPERTIES ENVIRONMENT "CMAKE=${CMAKE_COMMAND}"
    SKIP_REGULAR_EXPRESSION "0 passed, 0 failed, 1 skipped")
endif()
