# The modules and styles of the page, joined to one file each:
#
#     cmake -DWEB=web -DOUT=bundle [-DESBUILD=esbuild] -P bundle.cmake        bundle/main.js, bundle/page.css
#
# esbuild also leaves out comments and shortens names. Without it, files are put behind those that they import, and share one scope. This takes
# modules of a simple style: their imports are `import {a, b} from './file.js';`, exports stand before declarations, and a name is declared at
# the top of one module only. `./dev check house` and tests/web/modules.mjs see to it.
cmake_minimum_required(VERSION 3.22)

# Appends a file to the bundle, behind what it imports.
function(join_file file)
  get_filename_component(file ${file} ABSOLUTE)
  get_filename_component(folder ${file} DIRECTORY)
  get_property(joined GLOBAL PROPERTY joined)
  if(file IN_LIST joined)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY joined ${file})
  file(READ ${file} text)
  set(import "\n(import {[^}]*} from|@import) '([^']*)';")
  string(REGEX MATCHALL "${import}" imports "\n${text}")
  foreach(statement IN LISTS imports) # the semicolon at the end of a statement ends a list's item, too
    if(statement MATCHES "'(.*)'")
      join_file(${folder}/${CMAKE_MATCH_1})
    endif()
  endforeach()
  string(REGEX REPLACE "${import}" "" text "\n${text}")
  string(REGEX REPLACE "\nexport " "\n" text "${text}")
  if(text MATCHES "\n((import|export|@import)[^A-Za-z0-9_$][^\n]*)")
    message(FATAL_ERROR "${file}: only esbuild can bundle this: ${CMAKE_MATCH_1}")
  endif()
  get_filename_component(type ${file} LAST_EXT)
  file(APPEND ${OUT}/joined${type} "${text}")
endfunction()

file(MAKE_DIRECTORY ${OUT})
if(ESBUILD)
  execute_process(COMMAND ${ESBUILD} ${WEB}/main.js ${WEB}/page.css --bundle --minify --format=esm --target=es2022
    --log-level=warning --outdir=${OUT} COMMAND_ERROR_IS_FATAL ANY)
else()
  file(REMOVE ${OUT}/joined.js ${OUT}/joined.css)
  join_file(${WEB}/main.js)
  join_file(${WEB}/page.css)
  file(RENAME ${OUT}/joined.js ${OUT}/main.js)
  file(RENAME ${OUT}/joined.css ${OUT}/page.css)
endif()
