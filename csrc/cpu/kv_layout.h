#pragma once

#include "cpu/kernel_table.h"
#include "graph/kv_layout.h"

namespace oxibonsai::cpu {

using graph::kKvTypeNames;
using graph::kv_layout;
using graph::kv_page_bytes;

// Writes key[key_dim] and value[value_dim] to a position of the page, rotated where the type is,
// and rounded by the tier. `value` is null where keys hold the values.
void write_kv_position(const KernelTable& table, const KvLayout& layout, int position,
                       const float* key, const float* value, uint8_t* keys, uint8_t* values);

}  // namespace oxibonsai::cpu
