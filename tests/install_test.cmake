# Installs the build tree into an empty prefix, then configures, builds and runs the example projects against it.
# Needs BUILD_DIR, SOURCE_DIR, WORK_DIR, BUILD_TYPE, GENERATOR and FLAGS (of both compilers).
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    string(JOIN " " line ${ARGN})
    message(FATAL_ERROR "failed with ${result}: ${line}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/prefix")
foreach(example cpp c)
  run("${CMAKE_COMMAND}" -S "${SOURCE_DIR}/examples/${example}" -B "${WORK_DIR}/${example}" -G "${GENERATOR}"
      "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_CXX_FLAGS=${FLAGS}" "-DCMAKE_C_FLAGS=${FLAGS}")
  run("${CMAKE_COMMAND}" --build "${WORK_DIR}/${example}")
  run("${WORK_DIR}/${example}/example")
endforeach()
