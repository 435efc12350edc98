#pragma once

#include "gpu/backend.h"

namespace oxibonsai::metal {

// The machine's GPU and the kernels compiled for it. UnsupportedError where there is none, or where
// Metal refuses the kernels; it says why.
gpu::BackendPtr open_metal();

}  // namespace oxibonsai::metal
