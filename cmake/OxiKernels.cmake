# oxi_embed_kernels(TARGET): adds the kernels for GPUs to a target as text: their source always, and PTX
# where nvcc is found, which the driver then assembles for its card. Nothing of CUDA is linked.
find_program(OXIBONSAI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
             DOC "nvcc, for embedded PTX; without it cards need NVRTC at run time")
# It takes a minute, and tests run the kernels on the CPU.
if(OXIBONSAI_PYTHON AND NOT OXIBONSAI_TESTS)
  set(embed_ptx ON)
else()
  set(embed_ptx OFF)
endif()
option(OXIBONSAI_PTX "Embed PTX of the kernels for GPUs where nvcc is found" ${embed_ptx})

function(oxi_embed_kernels target)
  set(script "${PROJECT_SOURCE_DIR}/cmake/embed_kernels.py")
  set(csrc "${PROJECT_SOURCE_DIR}/csrc")
  set(output "${OXIBONSAI_GENERATED}/gpu/embedded_kernels.cc")
  file(MAKE_DIRECTORY "${OXIBONSAI_GENERATED}/gpu")
  file(GLOB kernels CONFIGURE_DEPENDS "${csrc}/gpu/kernels/*.h" "${csrc}/gpu/dialect*.h")
  if(OXIBONSAI_PTX AND OXIBONSAI_NVCC)
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
