#include "graph/gather.h"

#include <algorithm>
#include <numeric>

namespace oxibonsai::graph {

int64_t Gather::sent_columns() const {
  int64_t sum = 0;
  for (const auto& by_rank : columns) sum += *std::max_element(by_rank.begin(), by_rank.end());
  return sum;
}

std::vector<Value> infer(const Gather& op, const Checker& c) {
  c.require(op.exchange != nullptr, "nobody to gather from");
  c.require(!op.x.empty() && op.columns.size() == op.x.size(), "columns of each value");
  std::vector<Value> made;
  for (size_t i = 0; i < op.x.size(); ++i) {
    c.same_rows(op.x[0], op.x[i]);
    const Value& x = c.floats(op.x[i]);
    const std::vector<int64_t>& columns = op.columns[i];
    c.require(static_cast<int>(columns.size()) == op.exchange->ranks(), "columns of each rank");
    c.require(*std::min_element(columns.begin(), columns.end()) > 0, "a rank has no columns");
    c.require(columns[static_cast<size_t>(op.exchange->rank())] == x.cols,
              "this rank has other columns");
    made.push_back({x.rows, std::accumulate(columns.begin(), columns.end(), int64_t{0})});
  }
  return made;
}

}  // namespace oxibonsai::graph
