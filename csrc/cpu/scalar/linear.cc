// The definition of a quantized linear layer (docs/arithmetic.md, rule 4), read from the file's own
// blocks: obviously right, never fast. Every other tier must give these bytes.

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/f16.h"
#include "cpu/body/fill.h"
#include "quant/unpack.h"

namespace oxibonsai::cpu::scalar {
namespace {

using quant::BlockParts;
using quant::CodeForm;
using quant::QuantType;

// Exact: sum over weights first .. first + count of one block times int8 activations.
int32_t integer_sum(const BlockParts& block, const CodeForm& form, int first, int count,
                    const int8_t* x) {
  int32_t sum = 0;
  for (int i = 0; i < count; ++i) sum += form.value(block.code[first + i]) * x[i];
  return sum;
}

// A group of 32 weights: of its sum with its group scales, and of its minima with theirs.
struct GroupSums {
  int32_t weights, minima;
};

GroupSums scaled_sums(const BlockParts& block, const CodeForm& form, int g, const int8_t* q) {
  const int step = form.scale_group == 0 ? 32 : form.scale_group;
  GroupSums sums{0, 0};
  for (int i = 32 * g; i < 32 * g + 32; i += step) {
    const int32_t sum = integer_sum(block, form, i, step, q + i - 32 * g);
    if (form.scale_group == 0) return {sum, 0};
    sums.weights += block.scale[i / step] * sum;
    for (int k = 0; k < step; ++k)
      if (form.has_min) sums.minima += block.min[i / step] * q[i - 32 * g + k];
  }
  return sums;
}

// One block of one row against one token: row = fma(d, inner, row), then the minimum's part.
float add_block(const BlockParts& block, const CodeForm& form, int group, const QuantizedRows& x,
                int64_t token, int64_t col, float row) {
  float inner = 0.0f;
  float low = 0.0f;
  for (int g = 0; g < group / 32; ++g) {
    const int64_t x_group = token * (x.cols / 32) + col / 32 + g;
    const int8_t* q = x.q + token * x.cols + col + 32 * g;
    const GroupSums sums = scaled_sums(block, form, g, q);
    inner = std::fma(x.scale[x_group], static_cast<float>(sums.weights), inner);
    if (form.scale_group == 32) {
      low = std::fma(static_cast<float>(block.min[g]), x.offset[x_group], low);
    } else if (form.scale_group == 16) {
      low = std::fma(x.scale[x_group], static_cast<float>(-sums.minima), low);
    } else {
      low = x.offset[x_group];  // types with a minimum for each group of 32
    }
  }
  const float d = form.wide_group != 0 ? block.wide[0] : half_to_float(block.d);
  row = std::fma(d, inner, row);
  if (!form.has_min) return row;
  const float m = half_to_float(block.m);
  return std::fma(form.scale_group == 32 ? -m : m, low, row);
}

// A block of groups of 16 that have a scale each, as if each were a block.
float add_half_blocks(const BlockParts& block, const CodeForm& form, int group,
                      const QuantizedRows& x, int64_t token, int64_t col, float row) {
  for (int i = 0; i < group; i += 16) {
    const int8_t* q = x.q + token * x.cols + col + i;
    const float scale_x = x.scale[token * (x.cols / 32) + (col + i) / 32];
    const auto isum = static_cast<float>(integer_sum(block, form, i, 16, q));
    row = std::fma(block.wide[i / 16], std::fma(scale_x, isum, 0.0f), row);
  }
  return row;
}

template <QuantType kType>
void linear_blocks(const LinearArgs& a) {
  const quant::QuantTraits& t = quant::traits(kType);
  const CodeForm form = quant::code_form(kType);
  const auto add = form.wide_group == 16 ? add_half_blocks : add_block;
  BlockParts block;
  std::vector<float> row(static_cast<size_t>(a.last_token));
  for (int64_t r = a.first; r < a.last; ++r) {
    row.assign(row.size(), 0.0f);
    const uint8_t* bytes = a.weight + r * a.row_bytes;
    for (int64_t col = 0; col < a.cols; col += t.group, bytes += t.bytes) {
      quant::unpack_block(kType, bytes, &block);
      for (int64_t token = a.first_token; token < a.last_token; ++token)
        row[token] = add(block, form, t.group, a.x, token, col, row[token]);
    }
    for (int64_t token = a.first_token; token < a.last_token; ++token) {
      float value = row[token];
      if (a.bias != nullptr) value = value + a.bias[r];
      if (a.add != nullptr) value = value + a.add[token * a.stride + r];
      a.y[token * a.stride + r] = std::fabs(value) < kTiny ? 0.0f : value;
    }
  }
}

template <QuantType kType>
void set(KernelTable& table) {
  table.linear[static_cast<int>(kType)] = {&linear_blocks<kType>, 0};
}

}  // namespace

void fill_linear(KernelTable& table) {
  set<QuantType::kQ8_0>(table);
  set<QuantType::kQ4_0>(table);
  set<QuantType::kQ4_1>(table);
  set<QuantType::kQ5_0>(table);
  set<QuantType::kQ5_1>(table);
  set<QuantType::kQ4_K>(table);
  set<QuantType::kQ5_K>(table);
  set<QuantType::kQ6_K>(table);
  set<QuantType::kQ1_0>(table);
  set<QuantType::kQ2_0_g64>(table);
  set<QuantType::kQ2_0_g128>(table);
  set<QuantType::kPTQ1_0>(table);
  set<QuantType::kTQ2_0_g128>(table);
  set<QuantType::kTQ1_0>(table);
  set<QuantType::kTQ2_0>(table);
  set<QuantType::kQ8_1>(table);
  set<QuantType::kQ8_K>(table);
  set<QuantType::kQ2_K>(table);
  set<QuantType::kQ3_K>(table);
  set<QuantType::kIQ4_NL>(table);
  set<QuantType::kIQ4_XS>(table);
  set<QuantType::kMXFP4>(table);
  set<QuantType::kNVFP4>(table);
  set<QuantType::kIQ2_XXS>(table);
  set<QuantType::kIQ2_XS>(table);
  set<QuantType::kIQ2_S>(table);
  set<QuantType::kIQ3_XXS>(table);
  set<QuantType::kIQ3_S>(table);
  set<QuantType::kIQ1_S>(table);
  set<QuantType::kIQ1_M>(table);
}

}  // namespace oxibonsai::cpu::scalar
