# The library as WebAssembly, for the page of `mha view`: this project once more, as a build inside this one, with the
# toolchain of cmake/toolchain-wasm32.cmake. MHA_WASM=AUTO builds it where that toolchain is found; the command is complete
# without it, but writes no pages that run a model.
set(MHA_WASM AUTO CACHE STRING "Build the WebAssembly engine of pages: ON, OFF, or AUTO: where the toolchain is found")
set(MHA_WASM_FOLDER ${PROJECT_BINARY_DIR}/wasm CACHE PATH "Where the WebAssembly engine is built")
if(NOT MHA_WASM OR NOT (MHA_COMMAND OR MHA_TESTS))
  return()
endif()

find_program(MHA_WASM_CC NAMES clang clang-14)
mark_as_advanced(MHA_WASM_CC)
if(MHA_WASM_CC AND NOT DEFINED MHA_WASM_LINKS)
  set(trial ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/wasm_trial)
  file(WRITE ${trial}.c "#include <math.h>\n#include <stdio.h>\nint main(void) { return printf(\"%g\", sin(1)) < 0; }\n")
  execute_process(COMMAND ${MHA_WASM_CC} --target=wasm32-wasi -mexec-model=reactor ${trial}.c -lm -o ${trial}.wasm
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed EQUAL 0)
    set(MHA_WASM_LINKS ON CACHE INTERNAL "")
  endif()
endif()
if(NOT MHA_WASM_LINKS)
  if(NOT MHA_WASM STREQUAL "AUTO")
    message(FATAL_ERROR "MHA_WASM needs clang, lld, wasi-libc and libclang-rt-14-dev-wasm32")
  endif()
  message(STATUS "No clang for WebAssembly: `mha view` will not write pages of models")
  return()
endif()

include(ExternalProject)
# Every preset builds it in the same folder, one at a time.
set(MHA_WASM_LOCKED ${CMAKE_COMMAND} -DFOLDER=${MHA_WASM_FOLDER} -P ${PROJECT_SOURCE_DIR}/cmake/locked.cmake -- ${CMAKE_COMMAND})
ExternalProject_Add(mha_wasm
  SOURCE_DIR ${PROJECT_SOURCE_DIR}
  BINARY_DIR ${MHA_WASM_FOLDER}
  CONFIGURE_COMMAND ${MHA_WASM_LOCKED} -S ${PROJECT_SOURCE_DIR} -B ${MHA_WASM_FOLDER} -G ${CMAKE_GENERATOR}
    -DCMAKE_TOOLCHAIN_FILE=${PROJECT_SOURCE_DIR}/cmake/toolchain-wasm32.cmake -DCMAKE_C_COMPILER=${MHA_WASM_CC}
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER} -DMHA_WERROR=${MHA_WERROR}
    -DMHA_TESTS=${MHA_TESTS} -DMHA_SOURCES=${MHA_SOURCES}
  BUILD_COMMAND ${MHA_WASM_LOCKED} --build ${MHA_WASM_FOLDER} --target mha_engine mha_text_engine
  BUILD_ALWAYS ON
  INSTALL_COMMAND ""
  BUILD_BYPRODUCTS ${MHA_WASM_FOLDER}/web/engine/mha.wasm ${MHA_WASM_FOLDER}/web/engine/mha-text.wasm)
set(MHA_ENGINE ${MHA_WASM_FOLDER}/web/engine/mha.wasm)
set(MHA_TEXT_ENGINE ${MHA_WASM_FOLDER}/web/engine/mha-text.wasm)
