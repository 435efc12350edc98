#include "cpu/kv_rotation.h"

#include <algorithm>
#include <cmath>

namespace oxibonsai::cpu {

bool is_rotated(KvType type) { return type == KvType::kQ4_0; }

void rotate_head(float* x, int n) {
  const int block = std::min(n & -n, kKvGroup);
  for (int half = 1; half < block; half *= 2)
    for (int begin = 0; begin < n; begin += 2 * half)
      for (int i = begin; i < begin + half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
  const auto scale = static_cast<float>(std::sqrt(1.0 / block));
  for (int i = 0; i < n; ++i) x[i] *= scale;
}

}  // namespace oxibonsai::cpu
