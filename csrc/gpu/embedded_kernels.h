#pragma once

// The kernels as the build embeds them (cmake/embed_kernels.py): their source, which NVRTC and
// Metal compile on the machine that runs them, and PTX on request.

#include <string_view>
#include <vector>

namespace oxibonsai::gpu {

struct EmbeddedPtx {
  int generation;               // compute capability that it needs at least: 75, 80
  std::string_view compressed;  // xz: PTX is long, and most machines never need it
};

// All kernels and the dialect in one piece, without further includes of ours.
std::string_view kernel_source();
// Of the source and the PTX: names what was made of them.
std::string_view kernel_digest();
// By generation, ascending; empty where nobody requested any.
const std::vector<EmbeddedPtx>& embedded_ptx();

}  // namespace oxibonsai::gpu
