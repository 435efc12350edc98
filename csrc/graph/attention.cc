#include "graph/attention.h"

#include <algorithm>
#include <tuple>

namespace oxibonsai::graph {
namespace {

// A device passes over the keys once for each.
constexpr int kMostRandomBlocks = 64;

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

void check_mask(const LocalMask& m, const Checker& c) {
  c.require(m.window >= 0, "a window is negative");
  c.require(m.global_tokens >= 0, "a number of global tokens is negative");
  c.require((m.global_tokens > 0) == (m.queries != QueryPart::kAll),
            "global tokens need a part of the queries, and a part of the queries needs them");
  c.require(m.queries != QueryPart::kGlobal || m.window == 0, "global tokens have no window");
  c.require(m.block_size >= 0 && m.random_blocks >= 0,
            "a block size or a number of random blocks is negative");
  c.require(m.block_size > 0 || m.random_blocks == 0, "there are random blocks of no size");
  c.require(m.random_blocks <= kMostRandomBlocks, "there are too many random blocks");
  c.require(m.causal + (m.window > 0 || m.global_tokens > 0) + (m.block_size > 0) <= 1,
            "attention without a cache is causal, or has a window or global tokens, or has blocks");
}

KeyRange block_range(const LocalMask& m, int32_t position, int32_t count, int index) {
  const int32_t size = m.block_size;
  const KeyRange all = index == 0 ? KeyRange{0, count} : KeyRange{0, 0};
  if (count <= (5 + 2 * int64_t{m.random_blocks}) * size) return all;
  const int32_t block = position / size, last = (count - 1) / size;
  if (block == 0 || block == last) return all;
  if (index <= m.random_blocks) return {0, size};
  if (index == m.random_blocks + 1)
    return {std::max(block - 1, 1) * size, std::min(block + 2, last) * size};
  return {last * size, count};
}

void check_pattern(const Attend& op, const Checker& c) {
  const KeyPattern& p = op.pattern;
  c.require(p.dilation > 0 && p.global_tokens >= 0 && p.block_size >= 0 && p.block_stride >= 0 &&
                p.head_step >= 0 && p.first_head >= 0,
            "a dilation is not above 0, or a number of a pattern of keys is negative");
  c.require(!p.any() || op.window > 0, "a pattern of keys is that of a window");
  c.require((p.block_size > 0) == (p.block_stride > 0),
            "blocks need a stride, and a stride blocks");
  c.require(p.block_size > 0 || (p.head_step == 0 && p.first_head == 0),
            "heads differ in the blocks that they see, but there are none");
  c.require(p.block_size == 0 || (p.dilation == 1 && op.window % p.block_size == 0),
            "a window of blocks has gaps or ends inside of one");
}

}  // namespace

int LocalMask::ranges() const {
  if (block_size > 0) return 3 + random_blocks;
  return queries == QueryPart::kOthers ? 2 : 1;
}

KeyRange LocalMask::range(int32_t position, int32_t count, int32_t visible, int index) const {
  if (causal) return {0, std::min(position + 1, visible > 0 ? visible : count)};
  if (block_size > 0) return block_range(*this, position, count, index);
  if (queries != QueryPart::kAll && (queries == QueryPart::kGlobal) != (position < global_tokens))
    return {0, 0};
  const int32_t begin = window > 0 ? std::max(0, position - window) : 0;
  const int32_t end = window > 0 && count - position > window ? position + window + 1 : count;
  if (queries != QueryPart::kOthers) return {begin, end};
  if (index == 0) return {0, global_tokens};
  return {std::max(begin, global_tokens), end};
}

bool operator<(const LocalMask& a, const LocalMask& b) {
  const auto fields = [](const LocalMask& m) {
    return std::tie(m.causal, m.window, m.global_tokens, m.queries, m.block_size, m.random_blocks);
  };
  return fields(a) < fields(b);
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

std::vector<Value> infer(const PrepareHeads& op, const Checker& c) {
  const PagedLayer& layer = layer_of(op.layer, c);
  c.require(!layer.value_in_key, "keys that hold values are not prepared");
  infer(StoreKv{op.k, op.v, op.layer}, c);
  check_tokens(op.q, c);
  const int64_t angles = c.floats(op.table).cols;
  c.require(angles % 2 == 0 && angles <= layer.key_dim, "more pairs than a head has");
  const Value& q = c.value(op.q);
  c.require(q.cols % layer.key_dim == 0, "q has no heads of the pages' width");
  const auto check_norm = [&](const Vector& weight, int64_t cols) {
    if (weight == nullptr) return;
    const auto size = static_cast<int64_t>(weight->size());
    c.vector(weight, size == cols ? cols : layer.key_dim);
  };
  check_norm(op.q_weight, q.cols);
  check_norm(op.k_weight, c.value(op.k).cols);
  return {{q.rows, q.cols}};
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
  check_pattern(op, c);
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
  c.require(!op.mask.causal || op.segments.empty(), "causal attention has no segments");
  c.require(c.value(op.v).cols == k, "k and v have different widths");
  check_mask(op.mask, c);
  check_biases(op.slopes, op.position_bias, q / op.head_dim, c);
  return {{tokens(), q}};
}

}  // namespace oxibonsai::graph
