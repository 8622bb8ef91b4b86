# What `mha view` writes, in a browser. It fetches what drives one into build/view, and leaves pictures there. Not in a
# cross build (a browser is slow enough without qemu) nor in a sanitizer build (what the sanitizer sees is in
# test_view_command).
if(TARGET mha_command AND NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_C_FLAGS MATCHES "-fsanitize")
  add_test(NAME view_browser COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/view/run.sh $<TARGET_FILE:mha_command>
    ${PROJECT_BINARY_DIR}/view)
  set_tests_properties(view_browser PROPERTIES SKIP_REGULAR_EXPRESSION "0 passed, 0 failed, 1 skipped")
endif()
