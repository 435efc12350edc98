#pragma once

#include "graph/lowering.h"

namespace oxibonsai::graph {

// Tables of embeddings: devices read their rows as they are stored, while a graph runs.
Weights tables_of(const LoweredGraph& graph);

}  // namespace oxibonsai::graph
