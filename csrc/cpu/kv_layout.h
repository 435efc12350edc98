#pragma once

#include <array>

#include "cpu/kernel_table.h"
#include "graph/state.h"

namespace oxibonsai::cpu {

// Names of the KV types, in the order of KvType.
constexpr std::array<const char*, 4> kKvTypeNames = {"f32", "f16", "q8_0", "q4_0"};

KvLayout kv_layout(KvType type, const graph::PagedLayer& layer);

// Writes key[key_dim] and value[value_dim] to a position of the page, rotated where the type is,
// and rounded by the tier. `value` is null where keys hold the values.
void write_kv_position(const KernelTable& table, const KvLayout& layout, int position,
                       const float* key, const float* value, uint8_t* keys, uint8_t* values);

}  // namespace oxibonsai::cpu
