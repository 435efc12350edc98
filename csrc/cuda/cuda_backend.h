#pragma once

#include <string>
#include <vector>

#include "cuda/kernel_image.h"
#include "gpu/backend.h"

namespace oxibonsai::cuda {

struct CardInfo {
  std::string name;
  int generation;  // compute capability: 75, 80, 90, 120
  int64_t total;   // bytes of memory; how many are free needs a context to say
};

// Oldest card whose instructions the kernels may use.
constexpr int kOldestGeneration = 75;

// The machine's cards. UnsupportedError where the driver can't be used; it says why.
std::vector<CardInfo> cards();

// Opens a card: its context, a stream, and the kernels. UnsupportedError where there is no such
// card, it is too old, or no kernels can be had for it; DeviceError where the driver fails.
gpu::BackendPtr open_card(int index, const ImageSources& sources);

}  // namespace oxibonsai::cuda
