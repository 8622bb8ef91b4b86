# CMake 3.22 does not know WASI: programs and static libraries, nothing shared.
set(WASI 1)
set_property(GLOBAL PROPERTY TARGET_SUPPORTS_SHARED_LIBS FALSE)
set(CMAKE_EXECUTABLE_SUFFIX .wasm)
set(CMAKE_C_COMPILE_OPTIONS_PIC "") # everything is linked into one module
