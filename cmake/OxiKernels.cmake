# oxi_embed_kernels(TARGET): adds the kernels for GPUs to a target as text: their source, which NVRTC
# compiles on the machine that runs them, on request PTX, which the driver assembles for its card, and
# SPIR-V for OpenCL, where its compilers are found. Nothing of CUDA or OpenCL is linked.
option(OXIBONSAI_PTX "Embed PTX of the kernels for GPUs; takes nvcc and a minute" OFF)
if(OXIBONSAI_PTX)
  find_program(OXIBONSAI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin)
  if(NOT OXIBONSAI_NVCC)
    message(FATAL_ERROR "OXIBONSAI_PTX needs nvcc, on PATH or in the folder of CUDA_HOME")
  endif()
endif()

set(OXIBONSAI_SPIRV AUTO CACHE STRING
    "Embed SPIR-V of the kernels: ON, which takes clang-15 and llvm-spirv-15, OFF, or AUTO (where found)")
if(OXIBONSAI_SPIRV)
  find_program(OXIBONSAI_CLANG clang-15)
  find_program(OXIBONSAI_LLVM_SPIRV llvm-spirv-15)
  if(OXIBONSAI_CLANG AND OXIBONSAI_LLVM_SPIRV)
    set(spirv_tools --clang "${OXIBONSAI_CLANG}" --llvm-spirv "${OXIBONSAI_LLVM_SPIRV}")
  elseif(NOT OXIBONSAI_SPIRV STREQUAL "AUTO")
    message(FATAL_ERROR "OXIBONSAI_SPIRV needs clang-15 and llvm-spirv-15 on PATH")
  endif()
endif()

function(oxi_embed_kernels target)
  set(script "${PROJECT_SOURCE_DIR}/cmake/embed_kernels.py")
  set(csrc "${PROJECT_SOURCE_DIR}/csrc")
  set(output "${OXIBONSAI_GENERATED}/gpu/embedded_kernels.cc")
  file(MAKE_DIRECTORY "${OXIBONSAI_GENERATED}/gpu")
  file(GLOB kernels CONFIGURE_DEPENDS "${csrc}/gpu/kernels/*.h" "${csrc}/gpu/dialect*.h")
  if(OXIBONSAI_PTX)
    set(tools --nvcc "${OXIBONSAI_NVCC}")
  endif()
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${Python_EXECUTABLE}" "${script}" "${csrc}" "${output}" ${tools} ${spirv_tools}
    DEPENDS "${script}" "${PROJECT_SOURCE_DIR}/cmake/split_spirv.py" "${csrc}/gpu/rounded.h"
            "${csrc}/opencl/kernels.h" "${csrc}/opencl/probe.h" ${kernels}
    COMMENT "Embedding the kernels for GPUs"
    VERBATIM)
  target_sources(${target} PRIVATE "${output}")
endfunction()
