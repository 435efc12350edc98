#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernel_table.h"
#include "graph/weight.h"

namespace oxibonsai::cpu {

// A weight in the form that the kernel of one tier wants: tiles of interleaved rows, each expert's
// on their own, or the stored rows where the kernel reads those. Rows of a mapped file are copied
// to huge pages: read from the file's own, F16 weights cost one token 3 to 12 % more time.
class PackedWeight {
 public:
  // `tiles` is null where the weight is read in place, and else owned by `keeper`.
  PackedWeight(graph::WeightPtr weight, const KernelTable& table, const uint8_t* tiles,
               std::shared_ptr<const void> keeper);

  const graph::Weight& weight() const { return *weight_; }
  const LinearKernel& kernel() const { return kernel_; }
  // Bytes of the tiles, or of the copied rows; 0 where the weight is read in place.
  int64_t bytes() const;
  // The fields of LinearArgs that say where the weights of an expert are.
  void bind(int64_t expert, LinearArgs* args) const;
  // Items of an expert's rows, which threads share, and the above for one of them, its rows too.
  int64_t items() const;
  void bind_item(int64_t expert, int64_t item, LinearArgs* args) const;
  // The same weights for a slice that begins at a tile.
  std::shared_ptr<const PackedWeight> slice(const graph::WeightPtr& part) const;

 private:
  const graph::WeightPtr weight_;
  const KernelTable& table_;
  const LinearKernel& kernel_;
  const uint8_t* const tiles_;
  const std::shared_ptr<const void> keeper_;
};

using PackedWeightPtr = std::shared_ptr<const PackedWeight>;

// The packed forms of some weights, one after the other in memory.
struct PackedWeights {
  std::vector<PackedWeightPtr> weights;
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
};

// Bytes that the packed form of a weight takes in PackedWeights; 0 where it is read in place.
int64_t packed_size(const graph::Weight& weight, const KernelTable& table);

// Packs weights for a tier, in their order, on all threads. `progress` is told the bytes that are
// done, after each weight. The file's pages are given back to the system on the way, so that the
// peak is little more than the packed form. FormatError where a scale is not finite.
PackedWeights pack_weights(const graph::Weights& weights, const KernelTable& table,
                           ThreadPool& pool, const std::function<void(int64_t)>& progress);

// The packed forms that an earlier pack_weights() of the same weights and tier left at `data`, of
// `bytes` bytes. RequestError where they have another size.
PackedWeights attach_weights(const graph::Weights& weights, const KernelTable& table,
                             const uint8_t* data, int64_t bytes,
                             const std::shared_ptr<const void>& keeper);

}  // namespace oxibonsai::cpu
