# cmake -DREADELF=... "-DLIBRARIES=a;b" -P one_runtime_test.cmake: every library uses the system's libstdc++.so.6. One with a
# static copy of the C++ runtime beside torch's shared one crashes when it writes a number into a stream.
foreach(library IN LISTS LIBRARIES)
  execute_process(COMMAND "${READELF}" -d "${library}" OUTPUT_VARIABLE dynamic RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${READELF} cannot read ${library}")
  endif()
  if(NOT dynamic MATCHES "NEEDED[^\n]*libstdc\\+\\+\\.so\\.6")
    message(FATAL_ERROR "${library} does not name libstdc++.so.6 among its needed libraries:\n${dynamic}")
  endif()
endforeach()
