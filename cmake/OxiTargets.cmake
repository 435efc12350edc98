# Flags that every C++ file of the project is compiled with. The arithmetic of docs/arithmetic.md
# rests on -ffp-contract=off: a fused multiply-add happens where the source says so and nowhere else.
find_package(Threads REQUIRED)

add_library(oxi_flags INTERFACE)
target_include_directories(oxi_flags INTERFACE "${PROJECT_SOURCE_DIR}/csrc")
target_compile_options(oxi_flags INTERFACE -Wall -Wextra -ffp-contract=off -fno-math-errno)
target_link_libraries(oxi_flags INTERFACE Threads::Threads)
if(OXIBONSAI_SANITIZE)
  # -g1: a report names lines and no variables, and these cost half of the compile time of large files.
  target_compile_options(oxi_flags INTERFACE -fsanitize=${OXIBONSAI_SANITIZE}
                                             -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(oxi_flags INTERFACE -fsanitize=${OXIBONSAI_SANITIZE})
endif()

# oxi_add_tier(NAME flags...): the files of csrc/cpu/NAME, compiled with the tier's own flags.
# Only these files get them, so that the rest of the package runs on the baseline processor.
function(oxi_add_tier name)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/csrc/cpu/${name}/*.cc")
  add_library(oxi_tier_${name} OBJECT ${sources})
  target_link_libraries(oxi_tier_${name} PRIVATE oxi_flags)
  target_compile_options(oxi_tier_${name} PRIVATE ${ARGN})
  string(TOUPPER ${name} upper)
  target_compile_definitions(oxi_cpu PRIVATE OXIBONSAI_TIER_${upper})
  target_sources(oxi_core PRIVATE $<TARGET_OBJECTS:oxi_tier_${name}>)
endfunction()
