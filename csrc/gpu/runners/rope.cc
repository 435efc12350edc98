#include "gpu/runners/flat.h"

namespace oxibonsai::gpu {

// Made on the CPU: not all devices have the double precision that the series take.
RunnerPtr make_runner(const graph::RopeTable& op, const RunnerContext& c) {
  const ValueRef out = c.value(op.out);
  return flat_runner(out, [=](const Step& s) {
    std::vector<float> table(static_cast<size_t>(s.values_of(out)));
    int64_t row = 0;
    for (const graph::Span& span : s.batch->spans)
      for (int32_t i = 0; i < span.count; ++i, ++row)
        op.write_row(*s.batch, row, span.first + i, table.data() + row * out.cols);
    s.upload(table.data(), s.address(out), static_cast<int64_t>(table.size() * sizeof(float)));
  });
}

RunnerPtr make_runner(const graph::Rope& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), table = c.value(op.table), out = c.value(op.out);
  args::RopeArgs a{};
  a.heads = static_cast<uint32_t>(x.cols / op.head_dim);
  a.head_dim = static_cast<uint32_t>(op.head_dim);
  a.pairs = static_cast<uint32_t>(table.cols / 2);
  a.interleaved = op.interleaved;
  return flat_runner(out, [=](const Step& s) {
    args::RopeArgs now = a;
    now.count = static_cast<uint64_t>(s.rows_of(x)) * a.heads * (a.head_dim - a.pairs);
    s.launch("rope", flat_grid(static_cast<int64_t>(now.count)), kFlatThreads, now,
             std::array<Address, 3>{s.address(x), s.address(table), s.address(out)});
  });
}

}  // namespace oxibonsai::gpu
