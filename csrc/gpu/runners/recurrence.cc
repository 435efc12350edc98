#include <string>

#include "gpu/runners/flat.h"

namespace oxibonsai::gpu {
namespace {

// Of gpu/kernels/recurrence.h.
constexpr uint32_t kScanThreads = 128;
constexpr int64_t kScanKeys = 512;
constexpr int64_t kWkvDims = 256;
static_assert(graph::kScanColumns == 16);

// A scan over matrices: factors of all rows, then the scan.
class ScanRunner : public Runner {
 public:
  struct Values {
    ValueRef x, step, beta, out;  // beta of no buffer in Mamba 2
  };
  struct Vectors {
    Address dt_bias, decay, skip;
  };

  ScanRunner(const args::ScanArgs& a, int slot, const Values& values, const Vectors& vectors)
      : args_(a), slot_(slot), values_(values), vectors_(vectors) {
    if (a.key_dim > kScanKeys)
      throw UnsupportedError("a scan over keys of " + std::to_string(a.key_dim) +
                             " dims: GPUs have a kernel for up to " + std::to_string(kScanKeys));
  }

  int64_t workspace_bytes(const Step& s) const override {
    return unit_bytes(s) + s.rows_of(values_.out) * args_.heads * 2 * 4;
  }

  void run(const Step& s) const override {
    if (s.values_of(values_.out) == 0) return;
    const Slots& slots = *s.state->slots;
    args::ScanArgs a = args_;
    a.slot_stride = static_cast<uint64_t>(slots.stride());
    a.offset = static_cast<uint64_t>(slots.offset(slot_));
    a.rows = static_cast<uint32_t>(s.rows_of(values_.out));
    const Address x = s.address(values_.x), factors = s.workspace + unit_bytes(s);
    s.launch("scan_factors", {blocks_of(int64_t{a.rows} * a.heads, kScanThreads)}, kScanThreads, a,
             std::array<Address, 5>{s.address(values_.step), s.address(values_.beta),
                                    vectors_.dt_bias, vectors_.decay, factors});
    Address queries = x, keys = x;
    if (a.delta != 0) {
      s.launch("unit_keys", {a.rows * a.key_heads, 2}, kScanThreads, a,
               std::array<Address, 2>{x, s.workspace});
      queries = s.workspace;
      keys = s.workspace + unit_bytes(s) / 2;
      a.key_stride = a.key_heads * a.key_dim;
      a.q = a.k = 0;
    }
    const auto spans = static_cast<uint32_t>(s.batch->spans.size());
    s.launch(
        "scan", {blocks_of(a.columns, kScanThreads), a.heads, spans}, kScanThreads, a,
        std::array<Address, 9>{queries, keys, x, factors, vectors_.skip, s.table(s.tables.spans),
                               s.table(s.tables.row_slots), slots.data(), s.address(values_.out)});
  }

 private:
  // Of the queries and keys of the delta rule.
  int64_t unit_bytes(const Step& s) const {
    return args_.delta == 0 ? 0 : s.rows_of(values_.out) * 2 * args_.key_heads * args_.key_dim * 4;
  }

  const args::ScanArgs args_;
  const int slot_;
  const Values values_;
  const Vectors vectors_;
};

uint32_t whole_blocks(int64_t columns) {
  return static_cast<uint32_t>(graph::scan_floats(1, 1, columns));
}

}  // namespace

RunnerPtr make_runner(const graph::Conv1d& op, const RunnerContext& c) {
  constexpr uint32_t kThreads = 128;
  const ValueRef x = c.value(op.x), out = c.value(op.out);
  const Address weight = c.constants->put(op.weight), bias = c.constants->put(op.bias);
  const int slot = op.slot;
  args::Conv1dArgs a{};
  a.channels = static_cast<uint32_t>(x.cols);
  a.taps = static_cast<uint32_t>(op.taps);
  a.has_bias = bias.buffer != nullptr;
  a.silu = op.silu;
  return flat_runner(out, [=](const Step& s) {
    args::Conv1dArgs now = a;
    const Slots& slots = *s.state->slots;
    now.slot_stride = static_cast<uint64_t>(slots.stride());
    now.offset = static_cast<uint64_t>(slots.offset(slot));
    const auto spans = static_cast<uint32_t>(s.batch->spans.size());
    s.launch("conv1d", {blocks_of(x.cols, kThreads), spans}, kThreads, now,
             std::array<Address, 7>{s.address(x), weight, bias, s.table(s.tables.spans),
                                    s.table(s.tables.row_slots), slots.data(), s.address(out)});
  });
}

RunnerPtr make_runner(const graph::GatedDelta& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.qkv), alpha = c.value(op.alpha);
  args::ScanArgs a{};
  a.heads = static_cast<uint32_t>(alpha.cols);
  a.key_heads = static_cast<uint32_t>(op.key_heads);
  a.key_dim = static_cast<uint32_t>(op.key_dim);
  a.value_dim = static_cast<uint32_t>(op.value_dim);
  a.columns = whole_blocks(op.value_dim);
  a.tiled = op.tiled;
  a.key_stride = a.v_stride = static_cast<uint32_t>(x.cols);
  a.k = a.key_heads * a.key_dim;
  a.v = 2 * a.k;
  a.delta = 1;
  a.eps = op.eps / static_cast<float>(op.key_dim);
  return std::make_unique<ScanRunner>(
      a, op.slot, ScanRunner::Values{x, alpha, c.value(op.beta), c.value(op.out)},
      ScanRunner::Vectors{c.constants->put(op.dt_bias), c.constants->put(op.decay), Address{}});
}

RunnerPtr make_runner(const graph::Mamba2Scan& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.xbc), step = c.value(op.time_step), out = c.value(op.out);
  args::ScanArgs a{};
  a.heads = static_cast<uint32_t>(step.cols);
  a.key_heads = static_cast<uint32_t>(op.groups);
  a.key_dim = static_cast<uint32_t>(op.state_dim);
  a.value_dim = static_cast<uint32_t>(out.cols / step.cols);
  a.columns = whole_blocks(a.value_dim);
  a.key_stride = a.v_stride = static_cast<uint32_t>(x.cols);
  a.k = static_cast<uint32_t>(out.cols);
  a.q = a.k + a.key_heads * a.key_dim;
  return std::make_unique<ScanRunner>(
      a, op.slot, ScanRunner::Values{x, step, ValueRef{}, out},
      ScanRunner::Vectors{c.constants->put(op.dt_bias), c.constants->put(op.decay),
                          c.constants->put(op.skip)});
}

RunnerPtr make_runner(const graph::MambaScan& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), step = c.value(op.time_step), out = c.value(op.out);
  const ValueRef b = c.value(op.b), c_value = c.value(op.c);
  const Address dt_bias = c.constants->put(op.dt_bias), decay = c.constants->put(op.decay);
  const Address skip = c.constants->put(op.skip);
  const int slot = op.slot;
  args::ChannelScanArgs a{};
  a.channels = static_cast<uint32_t>(x.cols);
  a.state_dim = static_cast<uint32_t>(b.cols);
  return flat_runner(out, [=](const Step& s) {
    const Slots& slots = *s.state->slots;
    args::ChannelScanArgs now = a;
    now.slot_stride = static_cast<uint64_t>(slots.stride());
    now.offset = static_cast<uint64_t>(slots.offset(slot));
    const auto spans = static_cast<uint32_t>(s.batch->spans.size());
    s.launch(
        "channel_scan", {blocks_of(whole_blocks(x.cols), kScanThreads), spans}, kScanThreads, now,
        std::array<Address, 11>{s.address(x), s.address(step), s.address(b), s.address(c_value),
                                dt_bias, decay, skip, s.table(s.tables.spans),
                                s.table(s.tables.row_slots), slots.data(), s.address(out)});
  });
}

RunnerPtr make_runner(const graph::Wkv7Scan& op, const RunnerContext& c) {
  if (op.head_dim > kWkvDims)
    throw UnsupportedError("a scan over heads of " + std::to_string(op.head_dim) +
                           " dims: GPUs have a kernel for up to " + std::to_string(kWkvDims));
  const ValueRef r = c.value(op.r), w = c.value(op.w), k = c.value(op.k), v = c.value(op.v);
  const ValueRef kk = c.value(op.kk), a = c.value(op.a), out = c.value(op.out);
  const int slot = op.slot;
  args::Wkv7Args now{};
  now.dim = static_cast<uint32_t>(op.head_dim);
  now.heads = static_cast<uint32_t>(r.cols) / now.dim;
  now.columns = whole_blocks(op.head_dim);
  return flat_runner(out, [=](const Step& s) {
    const Slots& slots = *s.state->slots;
    args::Wkv7Args args = now;
    args.slot_stride = static_cast<uint64_t>(slots.stride());
    args.offset = static_cast<uint64_t>(slots.offset(slot));
    const auto spans = static_cast<uint32_t>(s.batch->spans.size());
    s.launch("wkv7_scan", {blocks_of(args.columns, kScanThreads), args.heads, spans}, kScanThreads,
             args,
             std::array<Address, 10>{s.address(r), s.address(w), s.address(k), s.address(v),
                                     s.address(kk), s.address(a), s.table(s.tables.spans),
                                     s.table(s.tables.row_slots), slots.data(), s.address(out)});
  });
}

}  // namespace oxibonsai::gpu
