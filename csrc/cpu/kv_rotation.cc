#include "cpu/kv_rotation.h"

#include <algorithm>

namespace oxibonsai::cpu {

bool is_rotated(KvType type) { return type == KvType::kQ4_0; }

void rotate_head(const KernelTable& table, float* x, int n) {
  table.hadamard({x, nullptr, nullptr, n, std::min(n & -n, kKvGroup), x});
}

}  // namespace oxibonsai::cpu
