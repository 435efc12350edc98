#pragma once

// One process's share of a graph that several processes run together.
//
// Every matrix of a linear layer is split by rows, so that no sum changes its order and the result
// has the bytes of one process; the columns that the processes have are then put together (Gather).
// What works column by column, or head by head, goes on with the own columns and is put together
// later: activations, experts' sums, scans with their state, and attention with its keys and values
// where a layer has at least as many of their heads as there are processes. Where all heads read
// the same ones, as in latent attention, the heads are split, and every process keeps what they
// read. Everything else runs in every process alike.

#include <map>
#include <memory>

#include "graph/gather.h"
#include "graph/graph.h"

namespace oxibonsai::graph {

class Sharding {
 public:
  explicit Sharding(std::shared_ptr<Exchange> exchange);

  const std::shared_ptr<Exchange>& exchange() const { return exchange_; }

  // The share of a graph. Layers of the cache and entries of the slots keep their indices; a layer
  // whose heads are split has fewer.
  Graph share(const Graph& graph);

  // This rank's rows of a matrix, or of each expert's: the same object each time, so that a device
  // packs them once.
  WeightPtr rows(const WeightPtr& whole, int64_t first, int64_t last);
  // Those of a weight's matrices that are its heads'; likewise.
  WeightPtr heads(const WeightPtr& whole, int64_t first, int64_t last);

 private:
  const std::shared_ptr<Exchange> exchange_;
  // By weight and first row. The key keeps the weight alive, so that no other has its address.
  std::map<std::pair<WeightPtr, int64_t>, WeightPtr> rows_;
  std::map<std::pair<WeightPtr, int64_t>, WeightPtr> heads_;  // by weight and first head
};

}  // namespace oxibonsai::graph
