// Linear layers that share their input: items are runs of rows of all their weights, one after the
// other. A weight's inner axis is never cut.

#include <algorithm>

#include "program/op_runners.h"
#include "quant/split.h"

namespace oxibonsai::program {
namespace {

using cpu::kItemRows;

int64_t pieces_of(const ops::Weight& w) { return (w.rows() + kItemRows - 1) / kItemRows; }

int64_t pieces_of(const Op& op) {
  int64_t count = 0;
  for (const auto& w : op.weights) count += pieces_of(*w);
  return count;
}

// For one panel of tokens after the other, all rows.
int64_t linear_items(const Step&, const Op& op, int64_t rows, int) {
  return (rows + cpu::kPanelTokens - 1) / cpu::kPanelTokens * pieces_of(op);
}

void linear(const Step& s, const Op& op, int64_t rows, int, int64_t item) {
  const int64_t pieces = pieces_of(op);
  const int64_t panel = item / pieces;
  int64_t piece = item % pieces;
  size_t i = 0;
  for (; piece >= pieces_of(*op.weights[i]); ++i) piece -= pieces_of(*op.weights[i]);
  const ops::Weight& w = *op.weights[i];
  cpu::LinearArgs a{};
  const cpu::LinearKernel& kernel = w.bind(*s.kernels, &a);
  a.first = piece * kItemRows;
  a.last = std::min(w.rows(), a.first + kItemRows);
  if (quant::is_integer(w.type())) {
    a.x = s.quantized(op.in[0]);
  } else {
    a.xf = s.floats(op.in[0]);
  }
  a.first_token = panel * cpu::kPanelTokens;
  a.last_token = std::min(rows, a.first_token + cpu::kPanelTokens);
  a.bias = op.vectors.size() > i && op.vectors[i] != nullptr ? op.vectors[i]->data() : nullptr;
  a.add = op.in.size() > 1 ? s.floats(op.in[1]) : nullptr;
  a.y = s.floats(op.out[i]);
  a.stride = w.rows();
  kernel.run(a);
}

}  // namespace

const OpRunner kLinearRunner{1, linear_items, linear};

}  // namespace oxibonsai::program
