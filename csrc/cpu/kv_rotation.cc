#include "cpu/kv_rotation.h"

namespace oxibonsai::cpu {

void rotate_head(const KernelTable& table, const KvLayout& layout, float* x, int n) {
  const int block = graph::rotation_block(layout, n);
  table.hadamard({x, nullptr, nullptr, n, block, x});
}

}  // namespace oxibonsai::cpu
