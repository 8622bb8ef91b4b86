# The page's parts as bytes in a C file: the frame, the styles, the script, and the engines, gzipped.
#
#     cmake -DWEB=web -DOUT=view_files.c [-DENGINE=mha.wasm -DTEXT_ENGINE=mha-text.wasm] -P embed.cmake
#
# Styles and scripts are joined in the order of files.txt.
cmake_minimum_required(VERSION 3.22)

# One array from files, behind each other.
function(embed name)
  set(hex "")
  foreach(file IN LISTS ARGN)
    file(READ ${file} part HEX)
    string(APPEND hex "${part}")
  endforeach()
  string(LENGTH "${hex}" digits)
  math(EXPR size "${digits} / 2")
  # As a string, which compiles ten times faster than a list of numbers. A digit behind an escape is no part of it: all is escaped.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" hex "${hex}")
  file(APPEND ${OUT}.new "const size_t ${name}_size = ${size};\nconst unsigned char ${name}[] = \"${hex}\";\n\n")
endfunction()

file(STRINGS ${WEB}/files.txt styles REGEX "css$")
file(STRINGS ${WEB}/files.txt scripts REGEX "js$")
list(TRANSFORM styles PREPEND ${WEB}/)
list(TRANSFORM scripts PREPEND ${WEB}/)
file(WRITE ${OUT}.new "/* Made of web/ by cmake/embed.cmake. */\n#include \"cli/view/page.h\"\n\n")
embed(view_frame ${WEB}/page.html)
embed(view_style ${styles})
embed(view_script ${scripts})
# The page's policy names its script by this hash.
execute_process(COMMAND ${CMAKE_COMMAND} -E cat ${scripts} OUTPUT_FILE ${OUT}.script COMMAND_ERROR_IS_FATAL ANY)
file(SHA256 ${OUT}.script hash)
file(APPEND ${OUT}.new "const char view_script_hash[] = \"${hash}\";\n\n")
foreach(engine ENGINE TEXT_ENGINE)
  set(packed)
  if(${engine})
    set(packed ${OUT}.${engine}.gz)
    file(ARCHIVE_CREATE OUTPUT ${packed} PATHS ${${engine}} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9 MTIME 0)
  endif()
  string(TOLOWER view_${engine} name)
  embed(${name} ${packed})
endforeach()
file(RENAME ${OUT}.new ${OUT})
