#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "gpu/backend.h"
#include "gpu/kernel_args.h"
#include "graph/weight.h"

namespace oxibonsai::gpu {

// A weight in a device's memory: planes (gpu/unpack_weight.h) of an integer type, the stored rows
// of a float one.
class PackedWeight {
 public:
  PackedWeight(graph::WeightPtr weight, Address data, std::shared_ptr<const void> keeper);

  const graph::Weight& weight() const { return *weight_; }
  Address data() const { return data_; }
  // Parts of the names of the kernels that serve it.
  const std::string& form() const { return form_; }
  // The constants of an integer weight, or of a float one; the tokens are the caller's.
  args::LinearArgs integer_args() const { return integer_args_; }
  args::FloatLinearArgs float_args() const;
  // The same weights for a slice of its rows.
  std::shared_ptr<const PackedWeight> slice(const graph::WeightPtr& part) const;

 private:
  const graph::WeightPtr weight_;
  Address data_;
  const std::shared_ptr<const void> keeper_;
  std::string form_;
  args::LinearArgs integer_args_{};
};

using PackedWeightPtr = std::shared_ptr<const PackedWeight>;

// Bytes that a weight takes on a device. UnsupportedError where it has a shape without kernels.
int64_t packed_size(const graph::Weight& weight);

// Brings weights to the device, in their order, each in a buffer of its own. `progress` is told the
// bytes that are done, after each. The file's pages are given back to the system on the way.
std::vector<PackedWeightPtr> pack_weights(const graph::Weights& weights, Backend& backend,
                                          ThreadPool& pool,
                                          const std::function<void(int64_t)>& progress);

}  // namespace oxibonsai::gpu
