#pragma once

#include "gpu/backend.h"

namespace oxibonsai::opencl {

// Runs the kernel `probe` (opencl/probe.h). UnsupportedError names what the device does in another
// way than the kernels need: lanes of a subgroup, shuffles, the rounding of fma, of separate
// products and sums, of quotients and roots.
void check_device(gpu::Backend& backend);

}  // namespace oxibonsai::opencl
