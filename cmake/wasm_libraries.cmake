# PCRE2 and utf8proc for WebAssembly, which no package has: compiled from the source archives that `./dev setup` puts into
# MHA_SOURCES. They take the place of what mha_look_for_library finds on other targets.

# mha_unpack(FOLDER NAME): unpacks the archive of a source package once; FOLDER is empty if there is none.
function(mha_unpack folder name)
  set(to ${PROJECT_BINARY_DIR}/sources/${name})
  file(GLOB archives CONFIGURE_DEPENDS ${MHA_SOURCES}/${name}_*.orig.tar.*)
  file(GLOB unpacked ${to}/${name}-*)
  if(archives AND NOT unpacked)
    list(GET archives -1 archive)
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${to})
    file(GLOB unpacked ${to}/${name}-*)
  endif()
  set(${folder} "${unpacked}" PARENT_SCOPE)
endfunction()

# mha_compile_library(NAME FOLDER FILE...): small rather than quick, since pages carry them.
function(mha_compile_library name folder)
  add_library(MHA_${name} STATIC ${ARGN})
  target_include_directories(MHA_${name} SYSTEM PUBLIC ${folder})
  target_compile_options(MHA_${name} PRIVATE -w -Os)
  set(MHA_${name}_LINKS ON PARENT_SCOPE)
endfunction()

mha_unpack(folder pcre2)
if(folder)
  foreach(pair config.h.generic=config.h pcre2.h.generic=pcre2.h pcre2_chartables.c.dist=pcre2_chartables.c)
    string(REGEX MATCH "(.*)=(.*)" pair ${pair})
    configure_file(${folder}/src/${CMAKE_MATCH_1} ${folder}/src/${CMAKE_MATCH_2} COPYONLY)
  endforeach()
  set(files)
  foreach(part auto_possess chartables chkdint compile config context error extuni find_bracket jit_compile match match_data
      newline ord2utf pattern_info script_run string_utils study tables ucd valid_utf xclass)
    if(EXISTS ${folder}/src/pcre2_${part}.c) # not every version has them all
      list(APPEND files ${folder}/src/pcre2_${part}.c)
    endif()
  endforeach()
  mha_compile_library(PCRE2 ${folder}/src ${files})
  target_compile_definitions(MHA_PCRE2 PRIVATE HAVE_CONFIG_H PCRE2_CODE_UNIT_WIDTH=8 SUPPORT_UNICODE PUBLIC PCRE2_STATIC)
else()
  message(STATUS "No sources of PCRE2: pages will not open tokenizers with regular expressions")
endif()

mha_unpack(folder utf8proc)
if(folder)
  mha_compile_library(UTF8PROC ${folder} ${folder}/utf8proc.c)
  target_compile_definitions(MHA_UTF8PROC PUBLIC UTF8PROC_STATIC)
else()
  message(STATUS "No sources of utf8proc: pages will not open tokenizers that need properties of Unicode")
endif()
