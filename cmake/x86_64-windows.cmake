# Builds for 64-bit Windows on another machine, with Zig's Clang (PyPI: ziglang); programs run under wine.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
find_program(OXIBONSAI_ZIG NAMES zig python-zig)
find_program(OXIBONSAI_WINE NAMES wine64 wine HINTS /usr/lib/wine)
if(NOT OXIBONSAI_ZIG)
  message(FATAL_ERROR "no zig and no python-zig on PATH: pip install ziglang")
endif()
set(CMAKE_CXX_COMPILER "${OXIBONSAI_ZIG}" c++ -target x86_64-windows-gnu)
# Zig's archiver takes a word before its arguments, for which CMAKE_AR has no place.
set(CMAKE_AR "${OXIBONSAI_ZIG}")
set(CMAKE_CXX_ARCHIVE_CREATE "<CMAKE_AR> ar qcs <TARGET> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_APPEND "<CMAKE_AR> ar qs <TARGET> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_FINISH "")
set(CMAKE_RC_COMPILER "${OXIBONSAI_ZIG}")  # CMake wants one; there are no resources
# -O3 also where CMake only tries the compiler: for each mode Zig compiles a C++ library of its own.
set(CMAKE_CXX_FLAGS_INIT "-O3 -g0 -fno-sanitize=all")
if(OXIBONSAI_WINE)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${OXIBONSAI_WINE}")
endif()
