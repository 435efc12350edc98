#pragma once

#include "cpu/kernel_table.h"
#include "graph/kv_layout.h"

namespace oxibonsai::cpu {

using graph::is_rotated;

// A head's x[n], in place, times the orthonormal Hadamard matrix, in blocks of
// graph::rotation_block() dims.
void rotate_head(const KernelTable& table, const KvLayout& layout, float* x, int n);

}  // namespace oxibonsai::cpu
