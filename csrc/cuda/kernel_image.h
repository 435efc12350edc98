#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/driver.h"

namespace oxibonsai::cuda {

// Where a device gets the machine code of its kernels.
struct ImageSources {
  std::string folder;              // keeps cubins between starts; empty: nothing is kept
  std::vector<std::string> nvrtc;  // libraries of the run-time compiler, which is the last of them
  // Unpacks xz; UnsupportedError where that is not possible.
  std::function<std::string(std::string_view)> unpack;
};

// Gives `load` a cubin for a card of compute capability `generation` (90): the one that was kept
// for this card's generation, driver and kernels, else one made of the embedded PTX, else one that
// NVRTC makes of the embedded source. `load` throws where the driver refuses it; a kept cubin that
// it refuses is made anew. What was made is kept. UnsupportedError where there is no way.
void load_kernel_image(const Driver& driver, int generation, const ImageSources& sources,
                       const std::function<void(const std::vector<uint8_t>&)>& load);

}  // namespace oxibonsai::cuda
