# Installs the build tree and uses it as a stranger would, and compiles the programs that the documents show.
# Not in a cross build (it compiles with the host's C++ compiler and pkg-config, which know nothing of the other
# architecture) nor in a sanitizer build (a stranger's program is linked without the sanitizer's runtime).
if(NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_C_FLAGS MATCHES "-fsanitize")
  add_test(NAME install
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/run.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(install PROPERTIES ENVIRONMENT
    "CC=${CMAKE_C_COMPILER};CMAKE=${CMAKE_COMMAND};CMAKE_GENERATOR=${CMAKE_GENERATOR};VERSION=${PROJECT_VERSION}")
endif()
