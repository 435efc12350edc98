#pragma once

// The constants of kernels, for the host.

#include <cstdint>

namespace oxibonsai::gpu::args {

#include "gpu/kernels/args.h"

}  // namespace oxibonsai::gpu::args
