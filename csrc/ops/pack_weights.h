#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "ops/weight.h"

namespace oxibonsai::ops {

using Weights = std::vector<std::shared_ptr<Weight>>;

// Packs all weights that are not yet packed for the tier into one piece of memory, in their order,
// on all threads. `progress` is told the bytes of packed form that are done, after each weight. The
// file's pages are given back to the system on the way, so that the peak is little more than the
// packed form. FormatError where a scale is not finite; then nothing is packed.
void pack_weights(const Weights& weights, const cpu::KernelTable& table, ThreadPool& pool,
                  const std::function<void(int64_t)>& progress);

}  // namespace oxibonsai::ops
