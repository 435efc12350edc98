#include "cpu/kv_rotation.h"

#include <algorithm>

namespace oxibonsai::cpu {

bool is_rotated(KvType type) { return type == KvType::kQ4_0; }

void rotate_head(const KernelTable& table, const KvLayout& layout, float* x, int n) {
  const int dims = layout.value_in_key ? layout.key_dim | layout.value_dim : n;
  table.hadamard({x, nullptr, nullptr, n, std::min(dims & -dims, kKvGroup), x});
}

}  // namespace oxibonsai::cpu
