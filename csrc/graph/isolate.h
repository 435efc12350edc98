#pragma once

// Single ops of a graph as graphs of their own, to compare devices op by op.

#include <string>
#include <vector>

#include "graph/graph.h"

namespace oxibonsai::graph {

struct IsolatedOp {
  std::string name;  // of the op, with the weight where it has one
  Graph graph;       // the op's inputs come with the batch
};

// One op of each kind, shape and type of weight in the graph. A matrix is cut to its first rows
// and, in another graph, to its last ones, which end in a part of a tile. What an op cannot do
// without is there too: a router before the matrices of experts, keys and values before attention.
// An op that rounds its result for a matrix of integers is there twice: alone, and with rows of it;
// so are matrices of integers before a norm or a gated activation, which GPUs join.
std::vector<IsolatedOp> isolate_ops(const Graph& graph);

}  // namespace oxibonsai::graph
