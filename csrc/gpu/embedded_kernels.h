#pragma once

// The kernels as the build embeds them (cmake/embed_kernels.py): their source, which NVRTC and
// Metal compile on the machine that runs them, PTX on request, and SPIR-V where the build finds its
// compilers.

#include <cstddef>
#include <string_view>
#include <vector>

namespace oxibonsai::gpu {

struct EmbeddedPtx {
  int generation;               // compute capability that it needs at least: 75, 80
  std::string_view compressed;  // xz: PTX is long, and most machines never need it
};

struct EmbeddedSpirv {
  struct Kernel {
    std::string_view name;
    size_t bytes;  // of its module
  };

  std::string_view compressed;  // xz of the modules, one after the other
  std::vector<Kernel> kernels;  // in their order
};

// All kernels and the dialect in one piece, without further includes of ours.
std::string_view kernel_source();
// Of the source, the PTX and the SPIR-V: names what was made of them.
std::string_view kernel_digest();
// By generation, ascending; empty where nobody requested any.
const std::vector<EmbeddedPtx>& embedded_ptx();
// Without kernels where the build found no compilers for it.
const EmbeddedSpirv& embedded_spirv();

}  // namespace oxibonsai::gpu
