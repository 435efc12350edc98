#pragma once

// Four floats at once on every baseline processor (SSE2, NEON), by the compilers' vector extension:
// each lane is rounded as a float is, so the bytes don't depend on the machine.

#include <cstring>

namespace oxibonsai::quant {

using Lanes = float __attribute__((vector_size(16)));
constexpr int kLanes = 4;

inline Lanes load(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void store(float* p, Lanes v) { std::memcpy(p, &v, sizeof v); }

inline Lanes all(float v) { return Lanes{v, v, v, v}; }

inline Lanes smaller(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes larger(Lanes a, Lanes b) { return a > b ? a : b; }

// 1 / d, or 0 where that is not finite.
inline Lanes inverse(Lanes d) {
  const Lanes result = 1.0f / d;
  return result - result == 0.0f ? result : all(0.0f);
}

inline float sum(Lanes v) { return (v[0] + v[2]) + (v[1] + v[3]); }

}  // namespace oxibonsai::quant
