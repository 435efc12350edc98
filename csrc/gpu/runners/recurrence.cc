#include "gpu/runners/flat.h"

namespace oxibonsai::gpu {

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
             std::array<Address, 6>{s.address(x), weight, bias, s.table(s.tables.spans),
                                    slots.data(), s.address(out)});
  });
}

}  // namespace oxibonsai::gpu
