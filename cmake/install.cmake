# What `cmake --install` gives: the headers, the libraries, the command with its manual page and completions, mha.pc and mha-model.pc, and a CMake package with
# the targets mha::shared, mha::static, mha::mha (the first of the two that is installed) and mha::model, which is shared.
option(MHA_INSTALL "Write the rules of cmake --install" ${PROJECT_IS_TOP_LEVEL})
if(NOT MHA_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(MHA_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/mha)

install(FILES include/mha.h include/mha_ops.h include/mha_model.h include/mha_text.h include/mha_speech.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(MHA_COMMAND)
  install(TARGETS mha_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET mha_pages)
  install(FILES ${PROJECT_BINARY_DIR}/cli/mha.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${PROJECT_BINARY_DIR}/cli/mha.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME mha)
  install(FILES ${PROJECT_BINARY_DIR}/cli/_mha DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()

# One export set a library: only the static one makes its user look for threads.
foreach(kind static shared)
  install(TARGETS mha_${kind} EXPORT mha_${kind}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(EXPORT mha_${kind} FILE mha-${kind}.cmake NAMESPACE mha:: DESTINATION ${MHA_PACKAGE_DIR})
endforeach()

install(TARGETS mha_model EXPORT mha_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET mha_cuda)
  install(TARGETS mha_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(TARGETS mha_nn ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

configure_package_config_file(cmake/mhaConfig.cmake.in mhaConfig.cmake INSTALL_DESTINATION ${MHA_PACKAGE_DIR})
# Before 1.0 a minor version may break its users, so it counts as a major one does later.
write_basic_package_version_file(mhaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/mhaConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/mhaConfigVersion.cmake
  DESTINATION ${MHA_PACKAGE_DIR})

# mha.pc finds its prefix from its own place, so that an installed tree may be moved.
file(RELATIVE_PATH MHA_PC_UP ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" MHA_PC_PREFIX "\${pcfiledir}/${MHA_PC_UP}")
foreach(dir LIBDIR INCLUDEDIR)
  set(MHA_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(MHA_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
    set(MHA_PC_${dir} ${CMAKE_INSTALL_${dir}})
  endif()
endforeach()
set(MHA_PC_PRIVATE "-lm -pthread")
if(CMAKE_DL_LIBS) # part of the C library since glibc 2.34
  string(APPEND MHA_PC_PRIVATE " -l${CMAKE_DL_LIBS}")
endif()
set(MHA_MODEL_PC_PRIVATE "-lm")
if(MHA_ZLIB AND MHA_ZLIB_LINKS)
  string(APPEND MHA_MODEL_PC_PRIVATE " -lz")
endif()
if(MHA_PNG AND MHA_PNG_LINKS)
  string(PREPEND MHA_MODEL_PC_PRIVATE "-lpng ")
endif()
if(MHA_PCRE2 AND MHA_PCRE2_LINKS)
  string(PREPEND MHA_MODEL_PC_PRIVATE "-lpcre2-8 ")
endif()
if(MHA_UTF8PROC AND MHA_UTF8PROC_LINKS)
  string(PREPEND MHA_MODEL_PC_PRIVATE "-lutf8proc ")
endif()
configure_file(cmake/mha.pc.in mha.pc @ONLY)
configure_file(cmake/mha-model.pc.in mha-model.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/mha.pc ${CMAKE_CURRENT_BINARY_DIR}/mha-model.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
