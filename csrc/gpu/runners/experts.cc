#include "gpu/runners/flat.h"
#include "gpu/runners/linear.h"

namespace oxibonsai::gpu {
namespace {

// Of gpu/kernels/experts.h.
constexpr int64_t kMostExperts = 1024;
constexpr uint32_t kRouteThreads = 128;
static_assert(graph::kPanelColumns == 3 && graph::kPanelSource == 0 && graph::kPanelFirst == 1 &&
              graph::kPanelExpert == 2 && graph::kPanelRows == 32);

}  // namespace

RunnerPtr make_runner(const graph::Route& op, const RunnerContext& c) {
  const ValueRef scores = c.value(op.scores), weights = c.value(op.weights);
  const ValueRef places = c.value(op.places), panels = c.value(op.panels);
  if (scores.cols > kMostExperts)
    throw UnsupportedError("a router of " + std::to_string(scores.cols) +
                           " experts: GPUs have a kernel for up to " +
                           std::to_string(kMostExperts));
  const Address bias = c.constants->put(op.selection_bias);
  const Address expert_scale = c.constants->put(op.expert_scale);
  args::RouteArgs a{};
  a.experts = static_cast<uint32_t>(scores.cols);
  a.k = static_cast<uint32_t>(op.k);
  a.scoring = static_cast<uint32_t>(op.scoring);
  a.has_bias = bias.buffer != nullptr;
  a.has_expert_scale = expert_scale.buffer != nullptr;
  a.normalize = op.normalize;
  a.groups = static_cast<uint32_t>(op.groups);
  a.kept_groups = static_cast<uint32_t>(op.kept_groups);
  a.best_of_group = static_cast<uint32_t>(op.best_of_group);
  a.scale = op.scale;
  return flat_runner(scores, [=](const Step& s) {
    args::RouteArgs now = a;
    now.rows = static_cast<uint32_t>(s.rows_of(scores));
    s.launch("route", {now.rows}, kRouteThreads, now,
             std::array<Address, 5>{s.address(scores), bias, s.address(weights), s.address(places),
                                    expert_scale});
    s.launch("sort_routes", {}, kRouteThreads, now,
             std::array<Address, 2>{s.address(places), s.address(panels)});
  });
}

RunnerPtr make_runner(const graph::Dispatch& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), panels = c.value(op.panels), out = c.value(op.out);
  const ValueRef weights = op.weights != graph::kNoValue ? c.value(op.weights) : ValueRef{};
  return flat_runner(out, [=](const Step& s) {
    args::RoutedArgs a{};
    a.count = static_cast<uint64_t>(s.values_of(out));
    a.cols = static_cast<uint32_t>(out.cols);
    a.k = static_cast<uint32_t>(s.rows_of(panels) / s.rows_of(x));
    a.has_weights = weights.buffer >= 0;
    a.round = out.type == graph::ValueType::kInt8;
    const Result r = result_of(s, out);
    s.launch("dispatch", flat_grid(s.values_of(out)), kFlatThreads, a,
             std::array<Address, 7>{s.address(x), s.address(panels), s.address(weights), r.y,
                                    r.rounded.q, r.rounded.scale, r.rounded.sums});
  });
}

RunnerPtr make_runner(const graph::ExpertLinear& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), panels = c.value(op.panels), out = c.value(op.out);
  const PackedWeightPtr weight = c.packed(op.weight);
  const Address bias = c.constants->put(op.bias);
  const Int8Mma int8_mma = c.capabilities.int8_mma;
  return runner_of([=](const Step& s) {
    Product p;
    p.factors = {{weight, bias, s.address(out)}};
    set_input(s, x, &p);
    p.rows = s.rows_of(out);
    p.panels = s.address(panels);
    p.single = s.batch->rows() == 1;  // the choices of one token are of different experts
    launch_product(s, p, int8_mma);
  });
}

RunnerPtr make_runner(const graph::Combine& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), places = c.value(op.places), out = c.value(op.out);
  const ValueRef weights = op.weights != graph::kNoValue ? c.value(op.weights) : ValueRef{};
  return flat_runner(out, [=](const Step& s) {
    args::RoutedArgs a{};
    a.count = static_cast<uint64_t>(s.values_of(out));
    a.cols = static_cast<uint32_t>(out.cols);
    a.k = static_cast<uint32_t>(places.cols);
    a.has_weights = weights.buffer >= 0;
    s.launch("combine", flat_grid(s.values_of(out)), kFlatThreads, a,
             std::array<Address, 4>{s.address(x), s.address(places), s.address(weights),
                                    s.address(out)});
  });
}

}  // namespace oxibonsai::gpu
