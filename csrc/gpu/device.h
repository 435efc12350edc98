#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_pool.h"
#include "gpu/backend.h"
#include "gpu/packed_weight.h"
#include "graph/graph.h"

namespace oxibonsai::gpu {

class Executable;

// A GPU, whatever its backend. It packs weights for itself; the packed form lives as long as
// somebody uses it: an executable, or the holder of what pack() returned.
class GpuDevice {
 public:
  // `pool` packs weights and looks up embeddings.
  GpuDevice(BackendPtr backend, std::shared_ptr<ThreadPool> pool);

  const BackendPtr& backend() const { return backend_; }
  const std::shared_ptr<ThreadPool>& pool() const { return pool_; }

  // Bytes that pack() takes of the device's memory for those of the weights that are not packed
  // yet.
  int64_t packed_size(const graph::Weights& weights) const;
  // Packs those of the weights that are not packed yet, each once. What is returned holds all of
  // them. CapacityError where they do not fit.
  std::vector<PackedWeightPtr> pack(
      const graph::Weights& weights, const std::function<void(int64_t)>& progress = [](int64_t) {});
  // The packed form of a weight, or of the whole that it is a slice of; null where there is none.
  PackedWeightPtr packed(const graph::WeightPtr& weight) const;

  // Lowers a graph and packs what is not packed yet. UnsupportedError names an op, or a shape of
  // one, that has no kernel.
  std::shared_ptr<Executable> compile(const graph::Graph& graph);

 private:
  graph::Weights not_packed(const graph::Weights& weights) const;

  const BackendPtr backend_;
  const std::shared_ptr<ThreadPool> pool_;
  mutable std::mutex mutex_;
  std::map<const graph::Weight*, std::weak_ptr<const PackedWeight>> packed_;  // guarded by mutex_
};

}  // namespace oxibonsai::gpu
