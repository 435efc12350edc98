// Observation of a linear layer's inputs: items are runs of columns, over all rows.

#include <algorithm>

#include "program/input_sums.h"
#include "program/op_runners.h"

namespace oxibonsai::program {
namespace {

constexpr int64_t kItemCols = 64;

int64_t observe_items(const Step&, const Op& op, int64_t rows, int) {
  return rows == 0 ? 0 : (op.sums->cols() + kItemCols - 1) / kItemCols;
}

void observe(const Step& s, const Op& op, int64_t rows, int, int64_t item) {
  const int64_t first = item * kItemCols;
  op.sums->add(s.floats(op.in[0]), rows, first, std::min(first + kItemCols, op.sums->cols()));
}

}  // namespace

const OpRunner kObserveRunner{1, observe_items, observe};

}  // namespace oxibonsai::program
