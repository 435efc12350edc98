#include "gpu/device.h"

#include <set>
#include <utility>

#include "gpu/executable.h"

namespace oxibonsai::gpu {

GpuDevice::GpuDevice(BackendPtr backend, std::shared_ptr<ThreadPool> pool)
    : backend_(std::move(backend)), pool_(std::move(pool)) {}

graph::Weights GpuDevice::not_packed(const graph::Weights& weights) const {
  graph::Weights missing;
  std::set<const graph::Weight*> seen;
  for (const graph::WeightPtr& w : weights)
    if (seen.insert(w.get()).second && packed(w) == nullptr) missing.push_back(w);
  return missing;
}

int64_t GpuDevice::packed_size(const graph::Weights& weights) const {
  int64_t total = 0;
  for (const graph::WeightPtr& w : not_packed(weights)) total += gpu::packed_size(*w);
  return total;
}

std::vector<PackedWeightPtr> GpuDevice::pack(const graph::Weights& weights,
                                             const std::function<void(int64_t)>& progress) {
  const graph::Weights missing = not_packed(weights);
  int64_t total = 0;
  for (const graph::WeightPtr& w : missing) total += gpu::packed_size(*w);
  if (const int64_t free = backend_->memory().free; total > free)
    throw CapacityError("weights of " + std::to_string(total) + " bytes do not fit into the " +
                        std::to_string(free) + " free bytes of " + backend_->name());
  std::vector<PackedWeightPtr> held = pack_weights(missing, *backend_, *pool_, progress);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto i = packed_.begin(); i != packed_.end();)
      i = i->second.expired() ? packed_.erase(i) : std::next(i);
    for (const PackedWeightPtr& w : held) packed_[&w->weight()] = w;
  }
  std::set<const PackedWeight*> seen;
  for (const PackedWeightPtr& w : held) seen.insert(w.get());
  for (const graph::WeightPtr& w : weights) {
    PackedWeightPtr form = packed(w);
    if (seen.insert(form.get()).second) held.push_back(std::move(form));
  }
  return held;
}

PackedWeightPtr GpuDevice::packed(const graph::WeightPtr& weight) const {
  const auto find = [&](const graph::Weight* w) -> PackedWeightPtr {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = packed_.find(w);
    return found == packed_.end() ? nullptr : found->second.lock();
  };
  if (PackedWeightPtr own = find(weight.get())) return own;
  if (weight->whole() == nullptr) return nullptr;
  const PackedWeightPtr whole = find(weight->whole().get());
  return whole == nullptr ? nullptr : whole->slice(weight);
}

std::shared_ptr<Executable> GpuDevice::compile(const graph::Graph& graph) {
  const std::vector<PackedWeightPtr> held = pack(graph.matrices());
  return std::make_shared<Executable>(*this, graph);
}

}  // namespace oxibonsai::gpu
