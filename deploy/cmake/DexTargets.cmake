# The few shapes of target that this repository has. A room is one static library, dex_<room>, with the
# alias dex::<room>; its folder's CMakeLists.txt lists sources and what it may use, publicly or privately.

add_library(dex_options INTERFACE)
target_include_directories(dex_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(dex_options INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wnon-virtual-dtor
                                             -Woverloaded-virtual -Werror=return-type -Werror=unused-result)
if(DEX_SANITIZE)
  target_compile_options(dex_options INTERFACE -fsanitize=${DEX_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(dex_options INTERFACE -fsanitize=${DEX_SANITIZE})
endif()

# With DEX_UNITY the compiler reads a room's files eight at a time, and the headers of gRPC and LibTorch once for all
# eight. A file that can't share a name space or macros with its neighbours says so in its folder's CMakeLists.txt
# (SKIP_UNITY_BUILD_INCLUSION).
function(_dex_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${DEX_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# dex_library(NAME base SOURCES a.cc … [PUBLIC lib …] [PRIVATE lib …])
function(dex_library)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(dex_${ARG_NAME} STATIC ${ARG_SOURCES})
  add_library(dex::${ARG_NAME} ALIAS dex_${ARG_NAME})
  target_link_libraries(dex_${ARG_NAME} PUBLIC dex_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  _dex_unity(dex_${ARG_NAME})
endfunction()

# dex_program(NAME dex-gateway SOURCES main.cc LIBS lib …): lands in build/bin.
function(dex_program)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;LIBS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE dex_options ${ARG_LIBS})
  _dex_unity(${ARG_NAME})
endfunction()

# dex_test(NAME base_test SOURCES a_test.cc … LIBS lib … [LABEL unit] [TIMEOUT 60] [ENV K=V …] [PROGRAMS target …])
# One binary a room, run as one ctest entry. PROGRAMS are built with it (integration and e2e tests start them).
function(dex_test)
  cmake_parse_arguments(ARG "" "NAME;LABEL;TIMEOUT" "SOURCES;LIBS;ENV;PROGRAMS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${ARG_NAME} PRIVATE dex_options ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  # A test's own code is not what takes time when it runs: -O0 compiles faster.
  target_compile_options(${ARG_NAME} PRIVATE -O0)
  _dex_unity(${ARG_NAME})
  target_compile_definitions(${ARG_NAME} PRIVATE DEX_SOURCE_DIR="${CMAKE_SOURCE_DIR}" DEX_BINARY_DIR="${CMAKE_BINARY_DIR}"
                                                 DEX_DEPS_DIR="${DEX_DEPS_DIR}")
  if(ARG_PROGRAMS)
    add_dependencies(${ARG_NAME} ${ARG_PROGRAMS})
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} --gtest_brief=1)
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${ARG_ENV}")
endfunction()

# LibTorch by hand: smaller than find_package(Torch), and a CUDA wheel then needs no toolkit (architecture.md §7).
if(DEX_WORKER)
  set(_torch ${DEX_DEPS_DIR}/libtorch)
  if(NOT EXISTS ${_torch}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "LibTorch is missing in ${_torch}: run deploy/setup/all, or configure with -DDEX_WORKER=OFF")
  endif()
  foreach(_lib c10 torch_cpu)
    add_library(dex_${_lib} SHARED IMPORTED GLOBAL)
    set_target_properties(dex_${_lib} PROPERTIES IMPORTED_LOCATION ${_torch}/lib/lib${_lib}.so)
  endforeach()
  add_library(dex_libtorch INTERFACE)
  add_library(dex::libtorch ALIAS dex_libtorch)
  target_include_directories(dex_libtorch SYSTEM INTERFACE ${_torch}/include ${_torch}/include/torch/csrc/api/include)
  target_link_libraries(dex_libtorch INTERFACE dex_torch_cpu dex_c10)
endif()
