#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/packed_weight.h"
#include "graph/graph.h"

namespace oxibonsai::cpu {

class Executable;
class Profiler;

// One tier of this machine's processor and the threads that run it. It packs weights for itself;
// the packed form lives as long as somebody uses it: an executable, or the holder of what pack()
// returned. Several devices may use one weight at once.
class CpuDevice {
 public:
  CpuDevice(const KernelTable& table, int threads);

  // The same packed weights, other threads: both devices can run at once.
  std::shared_ptr<CpuDevice> with_threads(int threads) const;
  // The same threads, another tier.
  std::shared_ptr<CpuDevice> with_tier(const KernelTable& table) const;

  const KernelTable& table() const { return table_; }
  const std::shared_ptr<ThreadPool>& pool() const { return pool_; }
  // Times the ops of this device's executables; off until somebody starts it.
  const std::shared_ptr<Profiler>& profiler() const { return profiler_; }

  // Bytes that pack() takes for those of the weights that are not packed yet.
  int64_t packed_size(const graph::Weights& weights) const;
  // Packs those of the weights that are not packed yet, each once (cpu/packed_weight.h). What is
  // returned holds all of them.
  PackedWeights pack(
      const graph::Weights& weights, const std::function<void(int64_t)>& progress = [](int64_t) {});
  // Takes what an earlier pack() of the same weights left at `data` in place of packing them.
  PackedWeights attach(const graph::Weights& weights, const uint8_t* data, int64_t bytes,
                       const std::shared_ptr<const void>& keeper);
  // The packed form of a weight, or of the whole that it is a slice of; null where there is none.
  PackedWeightPtr packed(const graph::WeightPtr& weight) const;

  // Lowers a graph and packs what is not packed yet.
  std::shared_ptr<Executable> compile(const graph::Graph& graph);

 private:
  struct PackedStore {
    mutable std::mutex mutex;
    std::map<const graph::Weight*, std::weak_ptr<const PackedWeight>> weights;
  };

  CpuDevice(const KernelTable& table, std::shared_ptr<ThreadPool> pool,
            std::shared_ptr<PackedStore> store);
  graph::Weights not_packed(const graph::Weights& weights) const;
  void remember(const PackedWeights& packed);

  const KernelTable& table_;
  const std::shared_ptr<ThreadPool> pool_;
  const std::shared_ptr<PackedStore> store_;
  const std::shared_ptr<Profiler> profiler_;
};

}  // namespace oxibonsai::cpu
