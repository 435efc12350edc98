#pragma once

// A small transformer with random weights of each type. The random numbers come from integers
// alone, so that they are the same everywhere.

#include <cstring>
#include <memory>
#include <vector>

#include "base/data_owner.h"
#include "base/threefry.h"
#include "blocks.h"
#include "graph/graph.h"

namespace test {

using namespace oxibonsai;
using quant::QuantType;

constexpr int kHidden = 256, kHeads = 4, kKvHeads = 2, kHeadDim = 64, kFf = 512, kVocabulary = 509;
constexpr int kLayers = 2;

class Source {
 public:
  explicit Source(uint64_t seed) : key_(threefry_key(seed)) {}
  uint32_t next() { return threefry2x32(key_, {0, counter_++}).a; }
  // A multiple of 2^-16 in [low, high).
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(next() >> 16) * 0x1p-16f;
  }
  std::vector<float> floats(size_t n, float low, float high) {
    std::vector<float> v(n);
    for (float& f : v) f = uniform(low, high);
    return v;
  }

 private:
  Words2 key_;
  uint32_t counter_ = 0;
};

struct Owned : DataOwner {
  explicit Owned(int64_t bytes) : data(static_cast<size_t>(bytes)) {}
  void release(const uint8_t*, int64_t) const override {}
  bool maps_file() const override { return false; }
  std::vector<uint8_t> data;
};

inline graph::WeightPtr make_weight(Source& source, QuantType type, int64_t rows, int64_t cols) {
  const auto& t = quant::traits(type);
  const auto owner = std::make_shared<Owned>(rows * quant::row_bytes(type, cols));
  std::vector<uint8_t>& bytes = owner->data;
  if (t.group == 1) {
    for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(t.bytes)) {
      const float v = source.uniform(-0.1f, 0.1f);
      if (type == QuantType::kF16)
        put_half(&bytes[i], v);
      else
        std::memcpy(&bytes[i], reinterpret_cast<const uint8_t*>(&v) + 4 - t.bytes, t.bytes);
    }
  } else {
    for (auto& b : bytes) b = static_cast<uint8_t>(source.next());
    const float size = 1.0f / static_cast<float>(t.group == 256 ? 4096 : 256);
    for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(t.bytes))
      put_scales(type, &bytes[block], [&] { return source.uniform(-8, 8) * size; });
  }
  return std::make_shared<graph::Weight>("w", type, rows, cols, bytes.data(), owner);
}

inline graph::Vector make_vector(Source& source, size_t n) {
  return std::make_shared<const std::vector<float>>(source.floats(n, 0.5f, 1.5f));
}

using graph::ValueId;

// With norms of the heads of q and k it is a Qwen3.
inline graph::Graph make_graph(QuantType type, bool head_norms = false) {
  Source source(7);
  graph::Graph g;
  const auto one = [&g](graph::Op op) { return g.add(std::move(op)).front(); };
  const auto weight = [&](int rows, int cols) { return make_weight(source, type, rows, cols); };
  const auto norm = [&](ValueId x) {
    return one(graph::RmsNorm{x, make_vector(source, kHidden), 1e-6f});
  };
  const auto linear = [&](ValueId x, graph::Weights weights, ValueId add = graph::kNoValue) {
    graph::Linear op;
    op.x = x;
    op.add = add;
    op.weights = std::move(weights);
    return g.add(std::move(op));
  };
  ValueId h = one(graph::Embed{weight(kVocabulary, kHidden)});
  std::vector<float> frequencies;
  for (int i = 0; i < kHeadDim / 2; ++i)
    frequencies.push_back(1.0f / static_cast<float>(1 + i * i));
  const ValueId table =
      one(graph::RopeTable{std::make_shared<const std::vector<float>>(frequencies)});
  for (int layer = 0; layer < kLayers; ++layer) {
    g.add_paged_layer({kKvHeads, kHeadDim, kHeadDim});
    ValueId x = norm(h);
    const auto qkv =
        linear(x, {weight(kHeads * kHeadDim, kHidden), weight(kKvHeads * kHeadDim, kHidden),
                   weight(kKvHeads * kHeadDim, kHidden)});
    const auto head_norm = [&](ValueId heads, int count) {
      if (!head_norms) return heads;
      return one(graph::RmsNorm{heads, make_vector(source, kHeadDim), 1e-6f, count});
    };
    const ValueId q = one(graph::Rope{head_norm(qkv[0], kHeads), table, kHeadDim, layer == 1});
    const ValueId k = one(graph::Rope{head_norm(qkv[1], kKvHeads), table, kHeadDim, layer == 1});
    g.add(graph::StoreKv{k, qkv[2], layer});
    graph::Attend attend;
    attend.q = q;
    attend.layer = layer;
    attend.heads = kHeads;
    attend.scale = 0.125f;
    attend.window = layer == 1 ? 40 : 0;
    const ValueId a = one(attend);
    h = linear(a, {weight(kHidden, kHeads * kHeadDim)}, h).front();
    x = norm(h);
    const auto up = linear(x, {weight(kFf, kHidden), weight(kFf, kHidden)});
    const ValueId unit = one(graph::Gated{
        up[0], up[1], layer == 0 ? graph::Activation::kSilu : graph::Activation::kGeluTanh});
    h = linear(unit, {weight(kHidden, kFf)}, h).front();
  }
  h = norm(one(graph::SelectOutputs{h}));
  g.set_output("logits", linear(h, {weight(kVocabulary, kHidden)}).front());
  return g;
}

}  // namespace test
