#include "graph/tables.h"

namespace oxibonsai::graph {

Weights tables_of(const LoweredGraph& graph) {
  Weights tables;
  for (const Op& op : graph.ops) {
    if (const auto* embed = std::get_if<Embed>(&op)) tables.push_back(embed->weight);
    if (const auto* embed = std::get_if<EmbedPositions>(&op)) tables.push_back(embed->weight);
  }
  return tables;
}

}  // namespace oxibonsai::graph
