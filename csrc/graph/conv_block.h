#pragma once

#include <cstdint>

namespace oxibonsai::graph {

// Output channels that lie side by side in the weights of a convolution.
constexpr int64_t kConvBlock = 32;

}  // namespace oxibonsai::graph
