// Columns of several processes put together. They go through the host's memory, since an exchange
// knows no device.

#include "graph/gather.h"

#include <algorithm>
#include <vector>

#include "gpu/runners/flat.h"

namespace oxibonsai::gpu {
namespace {

int64_t bytes_of(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

// Copies a column of `cols` floats of each of `rows` rows.
void copy_columns(int64_t rows, int64_t cols, const float* from, int64_t from_stride, float* to,
                  int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row)
    std::copy_n(from + row * from_stride, cols, to + row * to_stride);
}

}  // namespace

RunnerPtr make_runner(const graph::Gather& op, const RunnerContext& c) {
  std::vector<ValueRef> x, out;
  for (const graph::ValueId id : op.x) x.push_back(c.value(id));
  for (const graph::ValueId id : op.out) out.push_back(c.value(id));
  return runner_of([=](const Step& s) {
    const int64_t rows = s.rows_of(out.front());
    if (rows == 0) return;
    const int64_t sent = op.sent_columns(), message = rows * sent;
    std::vector<float> own(static_cast<size_t>(message)), values;
    std::vector<float> all(static_cast<size_t>(message * op.exchange->ranks()));
    int64_t at = 0;
    for (const ValueRef& v : x) {
      values.resize(static_cast<size_t>(rows * v.cols));
      s.download(s.address(v), values.data(), bytes_of(rows * v.cols));
      copy_columns(rows, v.cols, values.data(), v.cols, own.data() + at, sent);
      at += v.cols;
    }
    op.exchange->all_gather(own.data(), all.data(), message);
    std::vector<int64_t> taken(static_cast<size_t>(op.exchange->ranks()));  // columns of each rank
    for (size_t i = 0; i < out.size(); ++i) {
      values.resize(static_cast<size_t>(rows * out[i].cols));
      int64_t first = 0;
      for (size_t rank = 0; rank < taken.size(); ++rank) {
        const int64_t cols = op.columns[i][rank];
        const float* from = all.data() + static_cast<int64_t>(rank) * message + taken[rank];
        copy_columns(rows, cols, from, sent, values.data() + first, out[i].cols);
        first += cols;
        taken[rank] += cols;
      }
      s.upload(values.data(), s.address(out[i]), bytes_of(rows * out[i].cols));
    }
  });
}

}  // namespace oxibonsai::gpu
