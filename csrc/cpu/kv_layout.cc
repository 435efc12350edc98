#include "cpu/kv_layout.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/fp8.h"
#include "cpu/kv_rotation.h"

namespace oxibonsai::cpu {
namespace {

int groups_of(int dims) { return (dims + kKvGroup - 1) / kKvGroup; }

template <class T>
void put_key(uint8_t* keys, int position, const T* key, int rows) {
  for (int i = 0; i < rows; ++i)
    std::memcpy(keys + (static_cast<int64_t>(i) * kPagePositions + position) * sizeof(T), key + i,
                sizeof(T));
}

template <class T>
void put_value(const KvLayout& layout, uint8_t* values, int position, const T* value) {
  uint8_t* row = values + static_cast<int64_t>(position) * layout.value_row;
  const size_t bytes = static_cast<size_t>(layout.value_dim) * sizeof(T);
  std::memcpy(row, value, bytes);
  std::memset(row + bytes, 0, static_cast<size_t>(layout.value_row) - bytes);
}

// Two 4-bit codes in a byte.
uint8_t nibbles(int8_t low, int8_t high) {
  return static_cast<uint8_t>((low + 8) | (high + 8) << 4);
}

// A key or value as whole groups of codes and their scales.
struct Rounded {
  std::vector<int8_t> codes;
  std::vector<uint16_t> scales;
  std::vector<float> rotated;

  void round(const KernelTable& table, const KvLayout& layout, const float* x, int n) {
    if (is_rotated(layout.type)) {
      rotated.assign(x, x + n);
      rotate_head(table, layout, rotated.data(), n);
      x = rotated.data();
    }
    scales.resize(static_cast<size_t>(groups_of(n)));
    codes.resize(scales.size() * kKvGroup);
    table.round_kv(layout.type, x, n, codes.data(), scales.data());
  }
};

void put_rounded_key(const KvLayout& layout, int position, Rounded* key, uint8_t* keys) {
  int rows = layout.key_dim;
  int8_t* codes = key->codes.data();
  if (layout.type == KvType::kQ4_0) {
    rows = (rows + 1) / 2;
    for (int i = 0; i < rows; ++i)
      codes[i] = static_cast<int8_t>(nibbles(codes[2 * i], codes[2 * i + 1]));
  }
  put_key(keys, position, codes, rows);
  put_key(keys + layout.key_scales, position, key->scales.data(),
          static_cast<int>(key->scales.size()));
}

void put_rounded_value(const KvLayout& layout, int position, const Rounded& value,
                       uint8_t* values) {
  uint8_t* row = values + static_cast<int64_t>(position) * layout.value_row;
  const int8_t* codes = value.codes.data();
  if (layout.type == KvType::kQ8_0) {
    std::memcpy(row, codes, static_cast<size_t>(layout.value_row));
  } else {
    for (int i = 0; i < layout.value_row; ++i) {
      const int8_t* low = codes + i / 16 * kKvGroup + i % 16;
      row[i] = nibbles(low[0], low[16]);
    }
  }
  put_key(values + layout.value_scales, position, value.scales.data(),
          static_cast<int>(value.scales.size()));
}

}  // namespace

void write_kv_position(const KernelTable& table, const KvLayout& layout, int position,
                       const float* key, const float* value, uint8_t* keys, uint8_t* values) {
  if (layout.type == KvType::kF32) {
    put_key(keys, position, key, layout.key_dim);
    if (value != nullptr) put_value(layout, values, position, value);
  } else if (layout.type == KvType::kF16) {
    thread_local std::vector<uint16_t> half;
    half.resize(static_cast<size_t>(std::max(layout.key_dim, layout.value_dim)));
    table.to_half(key, layout.key_dim, half.data());
    put_key(keys, position, half.data(), layout.key_dim);
    if (value == nullptr) return;
    table.to_half(value, layout.value_dim, half.data());
    put_value(layout, values, position, half.data());
  } else if (layout.type == KvType::kFp8) {
    thread_local std::vector<uint8_t> codes;
    codes.resize(static_cast<size_t>(std::max(layout.key_dim, layout.value_dim)));
    std::transform(key, key + layout.key_dim, codes.begin(), float_to_fp8);
    put_key(keys, position, codes.data(), layout.key_dim);
    if (value == nullptr) return;
    std::transform(value, value + layout.value_dim, codes.begin(), float_to_fp8);
    put_value(layout, values, position, codes.data());
  } else {
    thread_local Rounded rounded;
    rounded.round(table, layout, key, layout.key_dim);
    put_rounded_key(layout, position, &rounded, keys);
    if (value == nullptr) return;
    rounded.round(table, layout, value, layout.value_dim);
    put_rounded_value(layout, position, rounded, values);
  }
}

}  // namespace oxibonsai::cpu
