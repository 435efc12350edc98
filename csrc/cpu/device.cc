#include "cpu/device.h"

#include <set>
#include <utility>

#include "cpu/executable.h"
#include "cpu/profiler.h"
#include "graph/lowering.h"

namespace oxibonsai::cpu {

CpuDevice::CpuDevice(const KernelTable& table, int threads)
    : CpuDevice(table, std::make_shared<ThreadPool>(threads), std::make_shared<PackedStore>()) {}

CpuDevice::CpuDevice(const KernelTable& table, std::shared_ptr<ThreadPool> pool,
                     std::shared_ptr<PackedStore> store)
    : table_(table),
      pool_(std::move(pool)),
      store_(std::move(store)),
      profiler_(std::make_shared<Profiler>()) {}

std::shared_ptr<CpuDevice> CpuDevice::with_threads(int threads) const {
  return std::shared_ptr<CpuDevice>(
      new CpuDevice(table_, std::make_shared<ThreadPool>(threads), store_));
}

std::shared_ptr<CpuDevice> CpuDevice::with_tier(const KernelTable& table) const {
  return std::shared_ptr<CpuDevice>(
      new CpuDevice(table, pool_, &table == &table_ ? store_ : std::make_shared<PackedStore>()));
}

graph::Weights CpuDevice::not_packed(const graph::Weights& weights) const {
  graph::Weights missing;
  std::set<const graph::Weight*> seen;
  for (const graph::WeightPtr& w : weights)
    if (seen.insert(w.get()).second && packed(w) == nullptr) missing.push_back(w);
  return missing;
}

void CpuDevice::remember(const PackedWeights& packed) {
  const std::lock_guard<std::mutex> lock(store_->mutex);
  for (auto i = store_->weights.begin(); i != store_->weights.end();)
    i = i->second.expired() ? store_->weights.erase(i) : std::next(i);
  for (const PackedWeightPtr& w : packed.weights) store_->weights[&w->weight()] = w;
}

int64_t CpuDevice::packed_size(const graph::Weights& weights) const {
  int64_t total = 0;
  for (const graph::WeightPtr& w : not_packed(weights)) total += cpu::packed_size(*w, table_);
  return total;
}

PackedWeights CpuDevice::pack(const graph::Weights& weights,
                              const std::function<void(int64_t)>& progress) {
  PackedWeights result = pack_weights(not_packed(weights), table_, *pool_, progress);
  remember(result);
  std::set<const PackedWeight*> held;
  for (const PackedWeightPtr& w : result.weights) held.insert(w.get());
  for (const graph::WeightPtr& w : weights) {
    PackedWeightPtr form = packed(w);
    if (held.insert(form.get()).second) result.weights.push_back(std::move(form));
  }
  return result;
}

PackedWeights CpuDevice::attach(const graph::Weights& weights, const uint8_t* data, int64_t bytes,
                                const std::shared_ptr<const void>& keeper) {
  PackedWeights result = attach_weights(not_packed(weights), table_, data, bytes, keeper);
  remember(result);
  return result;
}

PackedWeightPtr CpuDevice::packed(const graph::WeightPtr& weight) const {
  const auto find = [&](const graph::Weight* w) -> PackedWeightPtr {
    const std::lock_guard<std::mutex> lock(store_->mutex);
    const auto found = store_->weights.find(w);
    return found == store_->weights.end() ? nullptr : found->second.lock();
  };
  if (PackedWeightPtr own = find(weight.get())) return own;
  if (weight->whole() == nullptr) return nullptr;
  const PackedWeightPtr whole = find(weight->whole().get());
  return whole == nullptr ? nullptr : whole->slice(weight);
}

std::shared_ptr<Executable> CpuDevice::compile(const graph::Graph& graph) {
  const PackedWeights held = pack(graph.matrices());
  return std::make_shared<Executable>(*this, graph);
}

}  // namespace oxibonsai::cpu
