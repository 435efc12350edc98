// Ops that begin a pass, or choose rows. Rows of embeddings are decoded on the CPU, which has the
// table, as in llama.cpp: a token costs a few kilobytes of transfer, and the table no memory of the
// device.

#include <cstring>

#include "base/computed_bytes.h"
#include "base/thread_pool.h"
#include "gpu/runners/flat.h"

namespace oxibonsai::gpu {
namespace {

RunnerPtr embed(const graph::WeightPtr& table, const ValueRef& out, bool positions,
                ThreadPool* pool) {
  return flat_runner(out, [=, held = ComputedBytes::hold(table->data())](const Step& s) {
    std::vector<int32_t> ids = s.batch->tokens;
    if (positions) {
      ids.clear();
      for (const graph::Span& span : s.batch->spans)
        for (int32_t i = 0; i < span.count; ++i) ids.push_back(span.first + i);
    }
    std::vector<float> rows(static_cast<size_t>(s.values_of(out)));
    pool->for_each(static_cast<int64_t>(ids.size()), 16, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        if (const int32_t id = ids[static_cast<size_t>(i)]; id >= 0)
          table->decode_row(id, rows.data() + i * out.cols);
    });
    s.upload(rows.data(), s.address(out), static_cast<int64_t>(rows.size() * sizeof(float)));
  });
}

}  // namespace

RunnerPtr make_runner(const graph::Embed& op, const RunnerContext& c) {
  return embed(op.weight, c.value(op.out), false, c.pool);
}

RunnerPtr make_runner(const graph::EmbedPositions& op, const RunnerContext& c) {
  return embed(op.weight, c.value(op.out), true, c.pool);
}

// The executable brings inputs to the device.
RunnerPtr make_runner(const graph::Input&, const RunnerContext&) {
  return runner_of([](const Step&) {});
}

RunnerPtr make_runner(const graph::InsertRows& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), rows = c.value(op.rows), out = c.value(op.out);
  args::InsertArgs a{};
  a.cols = static_cast<uint32_t>(out.cols);
  a.row_cols = static_cast<uint32_t>(rows.cols);
  a.first = static_cast<uint32_t>(op.first);
  a.added = op.added;
  return flat_runner(out, [=](const Step& s) {
    args::InsertArgs now = a;
    now.count = static_cast<uint64_t>(s.values_of(out));
    s.launch("insert_rows", flat_grid(s.values_of(out)), kFlatThreads, now,
             std::array<Address, 4>{s.address(x), s.address(rows), s.table(s.tables.tokens),
                                    s.address(out)});
  });
}

RunnerPtr make_runner(const graph::SelectOutputs& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), out = c.value(op.out);
  return flat_runner(out, [=](const Step& s) {
    args::SelectArgs a{};
    a.count = static_cast<uint64_t>(s.values_of(out));
    a.cols = static_cast<uint32_t>(out.cols);
    s.launch("select_rows", flat_grid(s.values_of(out)), kFlatThreads, a,
             std::array<Address, 3>{s.address(x), s.table(s.tables.outputs), s.address(out)});
  });
}

}  // namespace oxibonsai::gpu
