# Builds WebAssembly with Emscripten (3.1.6 of Debian 12, or later); programs run under node.
execute_process(COMMAND em-config EMSCRIPTEN_ROOT OUTPUT_VARIABLE emscripten_root
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "no em-config on PATH: install Emscripten (apt-get install emscripten)")
endif()
set(EMSCRIPTEN_SYSTEM_PROCESSOR wasm32)
include("${emscripten_root}/cmake/Modules/Platform/Emscripten.cmake")
# Exceptions of WebAssembly itself: the older way makes each call that may throw one of JavaScript's.
set(CMAKE_CXX_FLAGS_INIT -fwasm-exceptions)
# The compiler has optimized already; passes of the linker would take several times as long as the rest.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-O1 -sALLOW_MEMORY_GROWTH -sMAXIMUM_MEMORY=4GB")
# Debian keeps the modules of Emscripten's linker where only Debian's own node finds them.
set(ENV{NODE_PATH} /usr/share/nodejs)
set_property(GLOBAL PROPERTY RULE_LAUNCH_LINK "${CMAKE_COMMAND} -E env NODE_PATH=/usr/share/nodejs")
# Emscripten of those years takes a node that has fetch() for a browser.
set(CMAKE_CROSSCOMPILING_EMULATOR node --no-experimental-fetch)
