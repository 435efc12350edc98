#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "graph/state.h"

namespace oxibonsai::graph {

// Names of the KV types, in the order of KvType.
constexpr std::array<const char*, 5> kKvTypeNames = {"f32", "f16", "q8_0", "q4_0", "fp8_e4m3"};

KvLayout kv_layout(KvType type, const PagedLayer& layer);

// Bytes of one head's keys and values in a page.
inline int64_t head_bytes(const KvLayout& layout) { return layout.key_bytes + layout.value_bytes; }

// Bytes of one page, in which every layer keeps its keys and values of 64 positions, each layer of
// a type of its own. RequestError where a shape is out of range.
int64_t kv_page_bytes(const std::vector<PagedLayer>& layers, const std::vector<KvType>& types);

// Whether keys, values and queries of a type are rotated.
bool is_rotated(KvType type);

// Dims of a block of the rotation of n dims of a head: the largest power of two that divides n, at
// most a group. Where values lie in keys, it is the largest that divides the dims of both, so that
// a rotated key begins with the rotated value. A few dims of keys are far larger than the others,
// and 4-bit codes would leave nothing of the rest of their group; rotated, the dims of a group are
// of one size, and no score changes but for rounding. Larger blocks would spread the error of such
// a group to others.
int rotation_block(const KvLayout& layout, int n);

}  // namespace oxibonsai::graph
