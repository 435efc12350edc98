# oxi_embed_kernels(TARGET): adds the kernels for GPUs to a target as text: their source, which NVRTC
# compiles on the machine that runs them, and on request PTX, which the driver assembles for its card.
# Nothing of CUDA is linked.
option(OXIBONSAI_PTX "Embed PTX of the kernels for GPUs; takes nvcc and a minute" OFF)
if(OXIBONSAI_PTX)
  find_program(OXIBONSAI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin)
  if(NOT OXIBONSAI_NVCC)
    message(FATAL_ERROR "OXIBONSAI_PTX needs nvcc, on PATH or in the folder of CUDA_HOME")
  endif()
endif()

function(oxi_embed_kernels target)
  set(script "${PROJECT_SOURCE_DIR}/cmake/embed_kernels.py")
  set(csrc "${PROJECT_SOURCE_DIR}/csrc")
  set(output "${OXIBONSAI_GENERATED}/gpu/embedded_kernels.cc")
  file(MAKE_DIRECTORY "${OXIBONSAI_GENERATED}/gpu")
  file(GLOB kernels CONFIGURE_DEPENDS "${csrc}/gpu/kernels/*.h" "${csrc}/gpu/dialect*.h")
  if(OXIBONSAI_PTX)
    set(nvcc "${OXIBONSAI_NVCC}")
  endif()
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${Python_EXECUTABLE}" "${script}" "${csrc}" "${output}" ${nvcc}
    DEPENDS "${script}" ${kernels}
    COMMENT "Embedding the kernels for GPUs"
    VERBATIM)
  target_sources(${target} PRIVATE "${output}")
endfunction()
