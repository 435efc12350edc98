#include <algorithm>

#include "base/trig.h"
#include "program/op_runners.h"

namespace oxibonsai::program {
namespace {

// Heads in one item.
constexpr int kHeads = 8;

int64_t items_in_row(const Op& op) { return (op.groups + kHeads - 1) / kHeads; }

int64_t rope_table_items(const Step&, const Op&, int64_t rows, int) { return rows; }

int64_t rope_items(const Step&, const Op& op, int64_t rows, int) { return rows * items_in_row(op); }

// A row of the table: cos of every pair, then sin. The angle is one float32 product.
void rope_table(const Step& s, const Op& op, int64_t, int, int64_t r) {
  const std::vector<float>& frequency = *op.vectors[0];
  const size_t pairs = frequency.size();
  const auto position = static_cast<float>(s.batch->positions[r]);
  float* table = s.row(op.out[0], r);
  for (size_t i = 0; i < pairs; ++i) {
    const SinCos v = sin_cos(position * frequency[i]);
    table[i] = v.cos * op.scale;
    table[pairs + i] = v.sin * op.scale;
  }
}

void rope(const Step& s, const Op& op, int64_t, int, int64_t item) {
  const int64_t r = item / items_in_row(op);
  const auto first = static_cast<int>(item % items_in_row(op)) * kHeads;
  const auto pairs = static_cast<int>((*s.slots)[op.in[1]].width / 2);
  const float* table = s.row(op.in[1], r);
  const cpu::RopeArgs a{s.row(op.in[0], r) + static_cast<int64_t>(first) * op.head_dim,
                        table,
                        table + pairs,
                        std::min(kHeads, op.groups - first),
                        op.head_dim,
                        pairs};
  (op.interleaved ? s.kernels->rope_pairs : s.kernels->rope_halves)(a);
}

}  // namespace

const OpRunner kRopeTableRunner{1, rope_table_items, rope_table};
const OpRunner kRopeRunner{1, rope_items, rope};

}  // namespace oxibonsai::program
