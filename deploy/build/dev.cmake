# Initial cache for a build by hand: cmake -C deploy/build/dev.cmake -B build
set(CMAKE_GENERATOR Ninja CACHE STRING "")
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
# -g1 keeps back traces and halves the size of LibTorch's objects; -O2 is what the figures are taken with.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1" CACHE STRING "")
# Paths below the checkout are hashed as relative ones, so that all checkouts on a machine share their objects.
find_program(DEX_CCACHE ccache)
if(DEX_CCACHE)
  get_filename_component(_root "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;CCACHE_NOHASHDIR=1;CCACHE_BASEDIR=${_root};${DEX_CCACHE}"
      CACHE STRING "")
endif()
find_program(DEX_MOLD mold)
if(DEX_MOLD)
  set(CMAKE_EXE_LINKER_FLAGS_INIT "-fuse-ld=mold" CACHE STRING "")
  set(CMAKE_SHARED_LINKER_FLAGS_INIT "-fuse-ld=mold" CACHE STRING "")
endif()
