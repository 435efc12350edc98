#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "ops/weight.h"

namespace oxibonsai::ops {

using Weights = std::vector<std::shared_ptr<Weight>>;

// The packed form of some weights, one after the other.
struct Packed {
  const uint8_t* data;
  int64_t bytes;
  std::shared_ptr<const void> keeper;  // of data
};

// Bytes of the packed form of the weights that are not yet packed.
int64_t packed_size(const Weights& weights, const cpu::KernelTable& table);

// Packs all weights that are not yet packed for this tier, in their order, on all threads.
// `progress` is told the bytes of packed form that are done, after each weight. The file's pages
// are given back to the system on the way, so that the peak is little more than the packed form.
// FormatError where a scale is not finite; then nothing is packed.
Packed pack_weights(const Weights& weights, const cpu::KernelTable& table, ThreadPool& pool,
                    const std::function<void(int64_t)>& progress);

// Lets the weights that are not yet packed use what an earlier pack_weights() of the
// same weights and tier gave. RequestError where it has another size.
void attach_weights(const Weights& weights, const cpu::KernelTable& table, const Packed& packed);

}  // namespace oxibonsai::ops
