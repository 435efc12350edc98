// Linear layers on emulated GPUs against the scalar tier, byte for byte: every type of weight,
// tails in rows, columns and tokens, bias and sum, slices, experts.

#include "blocks.h"
#include "gpu_compare.h"
#include "quant/unpack.h"

using namespace oxibonsai;
using quant::QuantType;
using test::vector_of;

namespace {

struct Case {
  int64_t rows, cols, tokens;
  bool extras;
};

void check_linear(std::mt19937& random, QuantType type, const Case& c) {
  const std::vector<uint8_t> bytes = test::random_rows(random, type, c.rows, c.cols);
  const auto weight =
      std::make_shared<graph::Weight>("w", type, c.rows, c.cols, bytes.data(), nullptr);
  graph::Graph g;
  graph::Linear op;
  op.x = g.add(graph::Input{"x", graph::tokens(), c.cols}).front();
  op.weights = {weight};
  if (c.extras) {
    op.add = g.add(graph::Input{"add", graph::tokens(), c.rows}).front();
    op.biases = {vector_of(test::normal(random, static_cast<size_t>(c.rows)))};
  }
  g.set_output("y", g.add(op).front());
  const auto x = test::normal(random, static_cast<size_t>(c.tokens * c.cols));
  const auto add = test::normal(random, static_cast<size_t>(c.tokens * c.rows));
  graph::Batch batch;
  batch.spans = {{0, static_cast<int32_t>(c.tokens), {}, 0, 0}};
  batch.inputs["x"] = {x.data(), c.tokens, c.cols};
  if (c.extras) batch.inputs["add"] = {add.data(), c.tokens, c.rows};
  test::compare_graph(g, batch,
                      std::string(quant::traits(type).name) + " rows " + std::to_string(c.rows) +
                          " cols " + std::to_string(c.cols) + " tokens " +
                          std::to_string(c.tokens));
}

// The last rows of a head of 151,669, which begin within a tile.
void check_slice(std::mt19937& random) {
  constexpr int64_t kRows = 151669, kCols = 64, kFirst = 151640;
  const std::vector<uint8_t> bytes = test::random_rows(random, QuantType::kQ4_1, kRows, kCols);
  const auto whole = std::make_shared<graph::Weight>("head", QuantType::kQ4_1, kRows, kCols,
                                                     bytes.data(), nullptr);
  const auto device = test::emulated_gpu();
  const auto held = device->pack({whole});
  graph::Graph g;
  graph::Linear op;
  op.x = g.add(graph::Input{"x", graph::tokens(), kCols}).front();
  op.weights = {graph::Weight::slice(whole, kFirst, kRows)};
  g.set_output("y", g.add(op).front());
  const auto x = test::normal(random, 3 * kCols);
  graph::Batch batch;
  batch.spans = {{0, 3, {}, 0, 0}};
  batch.inputs["x"] = {x.data(), 3, kCols};
  const auto truth =
      test::run(*cpu::CpuDevice(cpu::table("scalar"), 1).compile(g), batch, cpu::State{});
  test::check_same(truth, test::run(*device->compile(g), batch, gpu::State{}), "slice of a head");
  CHECK(device->packed_size({op.weights}) == 0, "a slice is not packed again");
}

// A router, two matrices an expert, and the sum, for a token and for a prompt.
void check_experts(std::mt19937& random, QuantType type, int64_t tokens, bool grouped) {
  constexpr int64_t kExperts = 12, kCols = 256, kRows = 64;
  const auto matrix = test::random_rows(random, type, kExperts * kRows, kCols);
  const auto router = test::random_rows(random, QuantType::kF32, kExperts, kCols);
  graph::Graph g;
  const auto x = g.add(graph::Input{"x", graph::tokens(), kCols}).front();
  graph::Linear scores;
  scores.x = x;
  scores.weights = {std::make_shared<graph::Weight>("router", QuantType::kF32, kExperts, kCols,
                                                    router.data(), nullptr)};
  graph::Route route;
  route.scores = g.add(scores).front();
  route.k = 3;
  route.scoring = grouped ? graph::Route::Scoring::kSigmoid : graph::Route::Scoring::kSoftmax;
  route.normalize = grouped;
  route.scale = 1.5f;
  if (grouped) {
    route.groups = 4;
    route.kept_groups = 2;
    route.best_of_group = 2;
    route.selection_bias = vector_of(test::normal(random, kExperts));
  }
  const auto routed = g.add(route);  // weights, places, panels
  const auto rows = g.add(graph::Dispatch{x, routed[2], grouped ? routed[0] : graph::kNoValue});
  graph::ExpertLinear product;
  product.x = rows.front();
  product.panels = routed[2];
  product.weight = std::make_shared<graph::Weight>("experts", type, kRows, kCols, matrix.data(),
                                                   nullptr, kExperts);
  product.bias = vector_of(test::normal(random, kExperts * kRows));
  const auto y = g.add(product).front();
  g.set_output("y",
               g.add(graph::Combine{y, routed[1], grouped ? graph::kNoValue : routed[0]}).front());
  const auto values = test::normal(random, static_cast<size_t>(tokens * kCols));
  graph::Batch batch;
  batch.spans = {{0, static_cast<int32_t>(tokens), {}, 0, 0}};
  batch.inputs["x"] = {values.data(), tokens, kCols};
  test::compare_graph(
      g, batch,
      std::string("experts ") + quant::traits(type).name + " tokens " + std::to_string(tokens));
}

// Each head with a matrix of its own.
void check_heads(std::mt19937& random, QuantType type, int64_t tokens) {
  constexpr int64_t kHeads = 3, kCols = 256, kRows = 21;
  const auto matrix = test::random_rows(random, type, kHeads * kRows, kCols);
  graph::Graph g;
  const auto x = g.add(graph::Input{"x", graph::tokens(), kHeads * kCols}).front();
  const auto weight =
      std::make_shared<graph::Weight>("heads", type, kRows, kCols, matrix.data(), nullptr, kHeads);
  g.set_output("y", g.add(graph::HeadLinear{x, weight}).front());
  const auto values = test::normal(random, static_cast<size_t>(tokens * kHeads * kCols));
  graph::Batch batch;
  batch.spans = {{0, static_cast<int32_t>(tokens), {}, 0, 0}};
  batch.inputs["x"] = {values.data(), tokens, kHeads * kCols};
  test::compare_graph(
      g, batch,
      std::string("heads ") + quant::traits(type).name + " tokens " + std::to_string(tokens));
}

}  // namespace

int main() {
  std::mt19937 random(11);
  for (int i = 0; i < static_cast<int>(QuantType::kCount); ++i) {
    const auto type = static_cast<QuantType>(i);
    check_linear(random, type, {21, 768, 1, false});
    check_linear(random, type, {37, 256, 5, true});
    check_linear(random, type, {69, 256, 11, false});
  }
  for (const int64_t tokens : {2, 3, 4, 7, 8, 9, 33}) {
    check_linear(random, QuantType::kQ1_0, {17, 128, tokens, true});
    check_linear(random, QuantType::kQ5_0, {3, 96, tokens, false});
    check_linear(random, QuantType::kF16, {9, 50, tokens, true});
  }
  check_linear(random, QuantType::kQ2_0_g64, {130, 1088, 1, false});  // more than 32 segments
  check_linear(random, QuantType::kQ4_0, {65, 2080, 66, true});       // several tiles
  check_slice(random);
  for (const QuantType type : {QuantType::kQ4_K, QuantType::kF16}) {
    check_experts(random, type, 1, false);
    check_experts(random, type, 2, true);
    check_experts(random, type, 45, false);
    check_heads(random, type, 1);
    check_heads(random, type, 40);
  }
  return test::finish("gpu linear");
}
