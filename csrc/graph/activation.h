#pragma once

#include <cstdint>

namespace oxibonsai::graph {

// Functions of one number between two linear layers.
enum class Activation : uint8_t {
  kSilu,      // x / (1 + e^-x)
  kGelu,      // x (1 + erf(x / sqrt(2))) / 2
  kGeluTanh,  // its tanh form
  kRelu,      // max(x, 0)
  kRelu2,     // max(x, 0)^2
  kSigmoid,   // 1 / (1 + e^-x)
  kIdentity,  // x
  // Of gpt-oss, only as a gate: with g = min(gate, 7), act(gate) * up is
  // g / (1 + e^(-1.702 g)) * (clamp(up, -7, 7) + 1).
  kSwigluOai,
  kCount,
};
constexpr int kActivations = static_cast<int>(Activation::kCount);

}  // namespace oxibonsai::graph
