#pragma once

// Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"):
// a counter-based generator, so that a draw is a function of (seed, counter) and of nothing else.

#include <cstdint>

namespace oxibonsai {

struct Words2 {
  uint32_t a, b;
};

inline Words2 threefry2x32(Words2 key, Words2 counter) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t schedule[3] = {key.a, key.b, key.a ^ key.b ^ 0x1BD11BDAu};
  uint32_t a = counter.a + schedule[0];
  uint32_t b = counter.b + schedule[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (const int rotation : kRotations[group % 2]) {
      a += b;
      b = (b << rotation) | (b >> (32 - rotation));
      b ^= a;
    }
    a += schedule[(group + 1) % 3];
    b += schedule[(group + 2) % 3] + group + 1;
  }
  return {a, b};
}

// The key of a 64-bit seed: high word, low word.
inline Words2 threefry_key(uint64_t seed) {
  return {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
}

}  // namespace oxibonsai
