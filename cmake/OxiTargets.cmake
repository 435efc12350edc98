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

# oxi_add_tier(NAME flags...): the files of csrc/cpu/NAME and those of csrc/cpu/body whose header the
# tier has, compiled with the tier's own flags: body/X.cc includes "simd.h", "dot.h" or "bytes.h" of the
# tier, and its namespace is OXI_TIER. Only these files get the flags, so that the rest of the package
# runs on the baseline processor.
set(oxi_bodies_simd attention elementwise fma_peak linear_float norm picture recurrence)
set(oxi_bodies_dot int8_peak linear_4to8bit linear_k linear_codebook linear_ternary)
set(oxi_bodies_bytes linear_1bit)

function(oxi_add_tier name)
  set(cpu "${PROJECT_SOURCE_DIR}/csrc/cpu")
  file(GLOB sources CONFIGURE_DEPENDS "${cpu}/${name}/*.cc")
  foreach(header simd dot bytes)
    if(EXISTS "${cpu}/${name}/${header}.h")
      list(TRANSFORM oxi_bodies_${header} REPLACE "(.+)" "${cpu}/body/\\1.cc" OUTPUT_VARIABLE bodies)
      list(APPEND sources ${bodies})
    endif()
  endforeach()
  add_library(oxi_tier_${name} OBJECT ${sources})
  target_link_libraries(oxi_tier_${name} PRIVATE oxi_flags)
  target_include_directories(oxi_tier_${name} PRIVATE "${cpu}/${name}")
  target_compile_definitions(oxi_tier_${name} PRIVATE OXI_TIER=${name})
  target_compile_options(oxi_tier_${name} PRIVATE ${ARGN})
  string(TOUPPER ${name} upper)
  target_compile_definitions(oxi_cpu PRIVATE OXIBONSAI_TIER_${upper})
  target_sources(oxi_core PRIVATE $<TARGET_OBJECTS:oxi_tier_${name}>)
endfunction()
