#include "graph/attention.h"

namespace oxibonsai::graph {
namespace {

const PagedLayer& layer_of(int layer, const Checker& c) {
  const std::vector<PagedLayer>& paged = c.state().paged;
  c.require(layer >= 0 && static_cast<size_t>(layer) < paged.size(),
            "the graph declares no such layer of pages");
  return paged[static_cast<size_t>(layer)];
}

void check_tokens(ValueId id, const Checker& c) {
  c.require(c.floats(id).rows == tokens(), "attention is among the rows of the tokens");
}

void check_biases(const Vector& slopes, const Vector& by_position, int64_t heads,
                  const Checker& c) {
  if (slopes != nullptr) c.vector(slopes, heads);
  if (by_position == nullptr) return;
  const auto size = static_cast<int64_t>(by_position->size());
  c.require(size % heads == 0 && size / heads % 2 == 1,
            "a position bias has no odd number of values for each head");
}

}  // namespace

std::vector<ValueId*> StoreKv::inputs() {
  if (v == kNoValue) return {&k};
  return {&k, &v};
}

std::vector<Value> infer(const StoreKv& op, const Checker& c) {
  const PagedLayer& layer = layer_of(op.layer, c);
  check_tokens(op.k, c);
  c.require(c.value(op.k).cols == static_cast<int64_t>(layer.kv_heads) * layer.key_dim,
            "k has another width than the pages");
  c.require(layer.value_in_key == (op.v == kNoValue),
            layer.value_in_key ? "the pages take values from keys, so there is no v"
                               : "the pages need a v");
  if (op.v == kNoValue) return {};
  check_tokens(op.v, c);
  c.require(c.value(op.v).cols == static_cast<int64_t>(layer.kv_heads) * layer.value_dim,
            "v has another width than the pages");
  return {};
}

std::vector<Value> infer(const Attend& op, const Checker& c) {
  const PagedLayer& layer = layer_of(op.layer, c);
  check_tokens(op.q, c);
  c.require(op.heads > 0 && op.heads % layer.kv_heads == 0,
            "heads are no multiple of key-value heads");
  c.require(op.window >= 0 && op.chunk >= 0, "a window or a chunk is negative");
  c.require(op.window == 0 || op.chunk == 0, "attention has a window or chunks, not both");
  c.require(op.part == KeyPart::kAll || (op.window == 0 && op.chunk == 0),
            "attention to a part of the positions has no window and no chunks");
  c.require(c.value(op.q).cols == static_cast<int64_t>(op.heads) * layer.key_dim,
            "q has another width than the pages");
  check_biases(op.slopes, op.position_bias, op.heads, c);
  if (op.sinks != nullptr) c.vector(op.sinks, op.heads);
  return {{tokens(), static_cast<int64_t>(op.heads) * layer.value_dim}};
}

std::vector<Value> infer(const AttendLocal& op, const Checker& c) {
  for (const ValueId id : {op.q, op.k, op.v}) check_tokens(id, c);
  const int64_t q = c.value(op.q).cols;
  const int64_t k = c.value(op.k).cols;
  c.require(op.head_dim > 0 && q % op.head_dim == 0 && k % op.head_dim == 0,
            "the width has no such heads");
  c.require(q % k == 0, "heads are no multiple of key-value heads");
  c.require(!op.causal || op.segments.empty(), "causal attention has no segments");
  c.require(!op.causal || op.window == 0, "causal attention without a cache has no window");
  c.require(c.value(op.v).cols == k, "k and v have different widths");
  c.require(op.window >= 0, "a window is negative");
  check_biases(op.slopes, op.position_bias, q / op.head_dim, c);
  return {{tokens(), q}};
}

}  // namespace oxibonsai::graph
