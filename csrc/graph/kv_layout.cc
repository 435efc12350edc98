#include "graph/kv_layout.h"

#include <algorithm>

#include "base/check.h"

namespace oxibonsai::graph {
namespace {

int round_up(int n, int step) { return (n + step - 1) / step * step; }
int groups_of(int dims) { return round_up(dims, kKvGroup) / kKvGroup; }

// Bytes of a value that is a float of its own; 0 for types of codes and scales.
int float_bytes(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 4;
    case KvType::kF16:
      return 2;
    case KvType::kFp8:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

KvLayout kv_layout(KvType type, const PagedLayer& layer) {
  KvLayout l{};
  l.type = type;
  l.key_dim = layer.key_dim;
  l.value_dim = layer.value_dim;
  l.value_in_key = layer.value_in_key;
  l.value_stride = round_up(l.value_dim, 16);
  const int element = float_bytes(type);
  if (element != 0) {
    l.key_scales = element * l.key_dim * kPagePositions;
    l.value_row = element * l.value_stride;
  } else if (type == KvType::kQ8_0) {
    l.key_scales = l.key_dim * kPagePositions;
    l.value_row = groups_of(l.value_dim) * kKvGroup;
  } else {
    l.key_scales = (l.key_dim + 1) / 2 * kPagePositions;
    l.value_row = groups_of(l.value_dim) * kKvGroup / 2;
  }
  if (l.value_in_key) l.value_row = 0;
  l.value_scales = l.value_row * kPagePositions;
  const int scales = element == 0 ? kPagePositions * 2 : 0;
  l.key_bytes = l.key_scales + scales * groups_of(l.key_dim);
  l.value_bytes = l.value_in_key ? 0 : l.value_scales + scales * groups_of(l.value_dim);
  return l;
}

int64_t kv_page_bytes(const std::vector<PagedLayer>& layers, const std::vector<KvType>& types) {
  constexpr size_t kMost = 1 << 16;
  if (layers.empty() || layers.size() > kMost || types.size() != layers.size())
    throw RequestError("a KV cache needs 1 to 65536 layers, and a type for each");
  int64_t bytes = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const PagedLayer& l = layers[i];
    if (l.kv_heads < 1 || static_cast<size_t>(l.kv_heads) > kMost || l.key_dim < 1 ||
        l.key_dim > 4096 || l.value_dim < 1 || l.value_dim > 4096)
      throw RequestError("a layer of a KV cache needs 1 to 65536 heads of 1 to 4096 dims");
    if (l.value_in_key && l.value_dim > l.key_dim)
      throw RequestError("a value that lies in its key cannot have more dims than the key");
    bytes += head_bytes(kv_layout(types[i], l)) * l.kv_heads;
  }
  return bytes;
}

bool is_rotated(KvType type) { return type == KvType::kQ4_0; }

int rotation_block(const KvLayout& layout, int n) {
  const int dims = layout.value_in_key ? layout.key_dim | layout.value_dim : n;
  return std::min(dims & -dims, kKvGroup);
}

}  // namespace oxibonsai::graph
