# The page's parts as bytes in a C file: the frame, the styles, the script, and the engines, gzipped.
#
#     cmake -DFRAME=page.html -DBUNDLE=bundle -DOUT=view_files.c [-DENGINE=mha.wasm -DTEXT_ENGINE=mha-text.wasm] -P embed.cmake
#
# The bundle is what bundle.cmake has made.
cmake_minimum_required(VERSION 3.22)

# An array of a file; without one, of size 0.
function(embed name file)
  set(hex "")
  if(file)
    file(READ ${file} hex HEX)
  endif()
  string(LENGTH "${hex}" digits)
  math(EXPR size "${digits} / 2")
  # As a string, which compiles ten times faster than a list of numbers. A digit behind an escape is no part of it: all is escaped.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" hex "${hex}")
  file(APPEND ${OUT}.new "const size_t ${name}_size = ${size};\nconst unsigned char ${name}[] = \"${hex}\";\n\n")
endfunction()

file(WRITE ${OUT}.new "/* Made of web/ by cmake/embed.cmake. */\n#include \"cli/view/page.h\"\n\n")
embed(view_frame ${FRAME})
embed(view_style ${BUNDLE}/page.css)
embed(view_script ${BUNDLE}/main.js)
file(SHA256 ${BUNDLE}/main.js hash) # the page's policy names its script by this hash
file(APPEND ${OUT}.new "const char view_script_hash[] = \"${hash}\";\n\n")
foreach(engine ENGINE TEXT_ENGINE)
  set(packed)
  if(${engine})
    set(packed ${OUT}.${engine}.gz)
    file(ARCHIVE_CREATE OUTPUT ${packed} PATHS ${${engine}} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9 MTIME 0)
  endif()
  string(TOLOWER view_${engine} name)
  embed(${name} "${packed}")
endforeach()
file(RENAME ${OUT}.new ${OUT})
