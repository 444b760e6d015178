# What other projects get by find_package(dex_client): one shared library with the client, the messages and the stubs in it,
# and the headers that client.h includes, so that its users need gRPC and protobuf and nothing of this repository.
#   cmake --install build --component dex_client --prefix PREFIX
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
find_package(gRPC CONFIG REQUIRED)
find_package(Protobuf REQUIRED)

# All of these archives, since users call any message and stub; what they use of other rooms comes along by need.
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/dex_client.cc CONTENT "// libdex_client.so is made of archives: package.cmake.\n")
add_library(dex_client_package SHARED ${CMAKE_CURRENT_BINARY_DIR}/dex_client.cc)
target_link_libraries(dex_client_package PRIVATE dex_client dex_proto dex_proto_grpc)
target_link_options(dex_client_package PRIVATE
  "SHELL:-Wl,--whole-archive $<TARGET_FILE:dex_client> $<TARGET_FILE:dex_proto> $<TARGET_FILE:dex_proto_grpc> -Wl,--no-whole-archive"
  LINKER:--as-needed)
target_link_libraries(dex_client_package INTERFACE gRPC::grpc++ protobuf::libprotobuf)
target_compile_features(dex_client_package INTERFACE cxx_std_20)
set_target_properties(dex_client_package PROPERTIES
  OUTPUT_NAME dex_client EXPORT_NAME client VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

set(_headers ${CMAKE_INSTALL_INCLUDEDIR}/dex_client)
set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/dex_client)
install(TARGETS dex_client_package EXPORT dex_client-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dex_client NAMELINK_COMPONENT dex_client
  INCLUDES DESTINATION ${_headers})
install(FILES ${CMAKE_SOURCE_DIR}/client/cpp/client.h DESTINATION ${_headers}/client/cpp COMPONENT dex_client)
install(FILES ${CMAKE_SOURCE_DIR}/services/base/status.h DESTINATION ${_headers}/services/base COMPONENT dex_client)
install(DIRECTORY ${CMAKE_BINARY_DIR}/proto/dex/v1 DESTINATION ${_headers}/dex COMPONENT dex_client
  FILES_MATCHING PATTERN "*.pb.h")
install(EXPORT dex_client-targets NAMESPACE dex:: DESTINATION ${_package} COMPONENT dex_client)
configure_package_config_file(cmake/dex_client-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/dex_client-config.cmake
  INSTALL_DESTINATION ${_package})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/dex_client-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/dex_client-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/dex_client-config-version.cmake
  DESTINATION ${_package} COMPONENT dex_client)
