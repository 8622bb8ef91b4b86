# What `mha explain` draws. The script runs the command itself, so it is told of the emulator that a cross build needs.
if(TARGET mha_command)
  add_test(NAME explain_command COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/explain.sh
    ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:mha_command>)
endif()
