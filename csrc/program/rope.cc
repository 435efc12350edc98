#include "base/trig.h"
#include "program/op_runners.h"

namespace oxibonsai::program {
namespace {

int64_t one_item_a_row(const Step&, const Op&, int64_t rows, int) { return rows; }

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

void rope(const Step& s, const Op& op, int64_t, int, int64_t r) {
  const auto pairs = static_cast<int>((*s.slots)[op.in[1]].width / 2);
  const float* table = s.row(op.in[1], r);
  const cpu::RopeArgs a{s.row(op.in[0], r), table, table + pairs, op.groups, op.head_dim, pairs};
  (op.interleaved ? s.kernels->rope_pairs : s.kernels->rope_halves)(a);
}

}  // namespace

const OpRunner kRopeTableRunner{1, one_item_a_row, rope_table};
const OpRunner kRopeRunner{1, one_item_a_row, rope};

}  // namespace oxibonsai::program
