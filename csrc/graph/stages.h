#pragma once

// A graph cut into stages that run one after the other, each on a device of its own.

#include <string>
#include <vector>

#include "graph/graph.h"

namespace oxibonsai::graph {

struct Stage {
  Graph graph;
  // Which of the whole graph's layers of the cache, and entries of its slots, the stage's are.
  std::vector<int> paged, slots;
};

// Floats that cross a cut before op `at`, for each row: what ops before it make and ops from there
// on read. -1 where something else would cross than floats of tokens or outputs.
int64_t crossing_columns(const Graph& graph, size_t at);

// Cuts before the ops `points`, which ascend. What crosses is an output of its stage and an input
// of the later ones, under one name. Inputs and tables of angles are made anew in each stage that
// reads them. A stage may have no ops. RequestError where a point is no op; UnsupportedError where
// something else than floats would cross, or stages would share a layer of the cache or an entry of
// the slots.
std::vector<Stage> cut(const Graph& graph, const std::vector<size_t>& points);

}  // namespace oxibonsai::graph
