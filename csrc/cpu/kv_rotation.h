#pragma once

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu {

// Whether keys, values and queries of a type are rotated.
bool is_rotated(KvType type);

// A head's x[n], in place, times the orthonormal Hadamard matrix, block by block; blocks have the
// largest power of two that divides n, at most a group. Where values lie in keys, it is the largest
// that divides the dims of both, so that a rotated key begins with the rotated value. Its own
// inverse. A few dims of keys are far larger than the others, and 4-bit codes would leave nothing
// of the rest of their group; rotated, the dims of a group are of one size, and no score changes
// but for rounding. Larger blocks would spread the error of such a group to others.
void rotate_head(const KernelTable& table, const KvLayout& layout, float* x, int n);

}  // namespace oxibonsai::cpu
