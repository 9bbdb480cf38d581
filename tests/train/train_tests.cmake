# Tests of the training engine, some of them with a program of their own to kill and to start several times.
mhla_test_program(test_train train mhla_cli)
mhla_parse_torch_once(test_train)
mhla_link_one_runtime(test_train)
add_executable(train_worker train/worker/worker.cpp)
target_include_directories(train_worker PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(train_worker PRIVATE mhla_cli mhla_settings)
mhla_parse_torch_once(train_worker)
mhla_link_one_runtime(train_worker)
add_dependencies(test_train train_worker mhla_program)
target_compile_definitions(test_train PRIVATE MHLA_TRAIN_WORKER="$<TARGET_FILE:train_worker>"
                                              MHLA_PROGRAM="$<TARGET_FILE:mhla_program>")
if(MPI_CXX_FOUND)
  target_compile_definitions(test_train PRIVATE
    MHLA_MPIRUN="${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe --bind-to none")
endif()
mhla_gpu_test(train_on_cuda test_train --gtest_filter=Gpu.*)
