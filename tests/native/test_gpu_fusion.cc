// What a GPU runs as one launch: how many a layer takes, and that fused ops have the bytes of those
// that they consist of.

#include "gpu_compare.h"
#include "small_model.h"

using namespace oxibonsai;
using namespace test;
using graph::KvType;

namespace {

using Names = std::vector<std::string>;

// Notes the kernels that it launches.
class NotingBackend : public gpu::emulator::EmulatorBackend {
 public:
  using EmulatorBackend::EmulatorBackend;
  void launch(const gpu::Launch& launch) override {
    launched.emplace_back(launch.kernel);
    EmulatorBackend::launch(launch);
  }
  Names launched;
};

std::string joined(const Names& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " ") + name;
  return all;
}

// A step of a Qwen3 with Q1_0 weights and an F16 cache, `tokens` for each sequence.
Names launches_of_model(int32_t sequences, int tokens) {
  const graph::Graph g = make_graph(QuantType::kQ1_0, true);
  const auto backend = std::make_shared<NotingBackend>();
  gpu::GpuDevice device(backend, std::make_shared<ThreadPool>(1));
  gpu::KvPages pages(backend, g.state().paged, std::vector<KvType>(kLayers, KvType::kF16), 2);
  graph::Batch batch;
  for (int32_t i = 0; i < sequences; ++i) batch.spans.push_back({0, tokens, {i}, 0, 0});
  batch.tokens.assign(static_cast<size_t>(sequences * tokens), 7);
  batch.outputs = {0};
  test::run(*device.compile(g), batch, gpu::State{{&pages}});
  return backend->launched;
}

Names with_logits(Names layers) {
  for (const char* last : {"select_rows", "rms_norm", "gemv_q1_1"}) layers.emplace_back(last);
  return layers;
}

// One token: what follows a product is in its launch, but for the last, of which the logits take
// some rows first.
void check_launches_of_token() {
  Names all = {"rms_norm"};
  for (int i = 0; i < kLayers; ++i) {
    const Names layer = {
        "gemv_q1_1",       // q, k and v
        "attend_one_F16",  // norms of heads, rotations, store_kv, attention, its rounding
        "gemv_norm_q1",    // the residual, the norm, its rounding
        "gemv_gated_q1",   // gate and up, the activation, its rounding
        i + 1 < kLayers ? "gemv_norm_q1" : "gemv_q1_1",
    };
    all.insert(all.end(), layer.begin(), layer.end());
  }
  const Names found = launches_of_model(1, 1);
  CHECK(found == with_logits(all), joined(found));
}

// Each layer's launches, then those of the logits.
void check_launches() {
  const Names layer = {
      "rms_norm",        // and its rounding
      "gemv_q1_4",       // q, k and v
      "attend_one_F16",  // norms of heads, rotations, store_kv, attention, its rounding
      "gemv_q1_4",       // and the residual
      "rms_norm",
      "gemv_q1_4",  // gate and up
      "gated",      // and its rounding
      "gemv_q1_4",  // and the residual
  };
  Names all;
  for (int i = 0; i < kLayers; ++i) all.insert(all.end(), layer.begin(), layer.end());
  const Names found = launches_of_model(2, 1);
  CHECK(found == with_logits(all), joined(found));
  // A prompt: gemm takes one matrix at a time.
  CHECK(launches_of_model(2, 8).size() == kLayers * (10 + 2 + 1) + 3, "launches of a prompt");
}

// The feed-forward part of two layers, from a norm to a norm; and a row whose norm is no whole
// groups of 32. Each step has other rows, and the next one begins where one has ended.
void check_joined_products(QuantType type, int hidden, int inner) {
  Source source(5);
  graph::Graph g;
  const auto one = [&g](graph::Op op) { return g.add(std::move(op)).front(); };
  const auto product = [&](ValueId x, std::vector<int> rows, int cols, ValueId add, bool biased) {
    graph::Linear op;
    op.x = x;
    op.add = add;
    for (const int n : rows) {
      op.weights.push_back(make_weight(source, type, n, cols));
      if (biased) op.biases.push_back(make_vector(source, static_cast<size_t>(n)));
    }
    return g.add(std::move(op));
  };
  const auto norm = [&](ValueId x, int cols, float eps) {
    return one(graph::RmsNorm{x, make_vector(source, static_cast<size_t>(cols)), eps, 1});
  };
  ValueId h = one(graph::Input{"x", graph::tokens(), hidden});
  ValueId x = norm(h, hidden, 1e-6f);
  for (const graph::Activation activation : {graph::Activation::kSilu, graph::Activation::kGelu}) {
    const bool biased = activation == graph::Activation::kGelu;
    const auto gate = product(x, {inner, inner}, hidden, graph::kNoValue, biased);
    const ValueId unit = one(graph::Gated{gate[0], gate[1], activation});
    h = product(unit, {hidden}, inner, h, biased).front();
    x = norm(h, hidden, 1e-3f);
  }
  g.set_output("h", h);
  const ValueId last = product(x, {50}, hidden, graph::kNoValue, true).front();
  g.set_output("y", norm(last, 50, 1e-6f));
  const std::string name = std::string("joined ") + quant::traits(type).name;
  const auto truth = cpu::CpuDevice(cpu::table("scalar"), 1).compile(g);
  for (const uint64_t seed : {1, 2, 3}) {
    const auto backend = std::make_shared<NotingBackend>(gpu::emulator::Options{seed, seed == 2});
    gpu::GpuDevice device(backend, std::make_shared<ThreadPool>(1));
    const auto executable = device.compile(g);
    for (const int32_t rows : {1, 3, 1}) {
      const auto values = source.floats(static_cast<size_t>(rows * hidden), -2.0f, 2.0f);
      graph::Batch batch;
      batch.spans = {{0, rows, {}, 0, 0}};
      batch.inputs["x"] = {values.data(), rows, hidden};
      backend->launched.clear();
      check_same(test::run(*truth, batch, cpu::State{}),
                 test::run(*executable, batch, gpu::State{}), name);
      const auto launched = [&](const char* kernel) {
        return std::count_if(backend->launched.begin(), backend->launched.end(),
                             [&](const std::string& n) { return n.rfind(kernel, 0) == 0; });
      };
      CHECK(launched("gemv_norm_") == (rows == 1 ? 3 : 0), name + " " + joined(backend->launched));
      CHECK(launched("gemv_gated_") == (rows == 1 ? 2 : 0), name + " " + joined(backend->launched));
    }
  }
}

// What one launch does not do.
void check_products_apart() {
  Source source(6);
  graph::Graph g;
  graph::Linear op;
  op.x = g.add(graph::Input{"x", graph::tokens(), 128}).front();
  for (const QuantType type : {QuantType::kQ1_0, QuantType::kQ8_0})  // of two forms
    op.weights.push_back(make_weight(source, type, 64, 128));
  const auto gate = g.add(std::move(op));
  const ValueId unit = g.add(graph::Gated{gate[0], gate[1]}).front();
  graph::Linear heads;
  heads.x = unit;
  heads.weights = {make_weight(source, QuantType::kQ8_0, 64, 64)};
  const ValueId y = g.add(std::move(heads)).front();  // then a norm of each head
  g.set_output("y", g.add(graph::RmsNorm{y, make_vector(source, 32), 1e-6f, 2}).front());
  const auto values = source.floats(128, -2.0f, 2.0f);
  graph::Batch batch;
  batch.spans = {{0, 1, {}, 0, 0}};
  batch.inputs["x"] = {values.data(), 1, 128};
  const auto backend = std::make_shared<NotingBackend>();
  gpu::GpuDevice device(backend, std::make_shared<ThreadPool>(1));
  compare_graph(g, batch, "products apart");
  test::run(*device.compile(g), batch, gpu::State{});
  const Names wanted = {"round_int8", "gemv_q1_1", "gemv_q8_1", "gated", "gemv_q8_1", "rms_norm"};
  CHECK(backend->launched == wanted, joined(backend->launched));
}

enum class Norms { kNone, kOfAHead, kOfAllHeads };

struct Layer {
  const char* name;
  int heads, kv_heads, dim, pairs;
  Norms norms;
  bool interleaved;
  bool keeps_key;  // the rotated key is a result too
  Names launched;  // behind q, k and v
};

// Queries and keys to what an integer matrix makes of attention's result.
graph::Graph layer_graph(const Layer& l) {
  Source source(3);
  graph::Graph g;
  g.add_paged_layer({1, 8, 8});  // something before the layer in a page
  g.add_paged_layer({l.kv_heads, l.dim, l.dim});
  const auto one = [&g](graph::Op op) { return g.add(std::move(op)).front(); };
  std::vector<float> frequencies;
  for (int i = 0; i < l.pairs; ++i) frequencies.push_back(1.0f / static_cast<float>(1 + i));
  const ValueId table =
      one(graph::RopeTable{std::make_shared<const std::vector<float>>(frequencies), 1.1f});
  const auto rotated = [&](const char* name, int heads) {
    ValueId x = one(graph::Input{name, graph::tokens(), int64_t{heads} * l.dim});
    const int weights = l.norms == Norms::kOfAHead ? l.dim : heads * l.dim;
    if (l.norms != Norms::kNone)
      x = one(graph::RmsNorm{x, make_vector(source, static_cast<size_t>(weights)),
                             heads == l.heads ? 1e-6f : 1e-2f, heads});
    return one(graph::Rope{x, table, l.dim, l.interleaved});
  };
  const ValueId q = rotated("q", l.heads), k = rotated("k", l.kv_heads);
  const ValueId v = one(graph::Input{"v", graph::tokens(), int64_t{l.kv_heads} * l.dim});
  g.add(graph::StoreKv{k, v, 1});
  graph::Attend attend;
  attend.q = q;
  attend.layer = 1;
  attend.heads = l.heads;
  attend.scale = 0.2f;
  graph::Linear linear;
  linear.x = one(attend);
  linear.weights = {make_weight(source, QuantType::kQ8_0, 7, int64_t{l.heads} * l.dim)};
  g.set_output("y", g.add(std::move(linear)).front());
  if (l.keeps_key) g.set_output("k", k);
  return g;
}

// Two sequences whose pages lie in pools of two types, a step of 3 tokens and one of 1 each.
template <class Executable, class State>
Outputs run_layer(Executable& executable, const State& state, const Layer& l) {
  Outputs all;
  for (const int32_t first : {0, 3}) {
    const int32_t count = first == 0 ? 3 : 1;
    graph::Batch batch;
    batch.spans = {{first, count, {1}, 0, 0}, {first, count, {0}, 1, 0}};
    Source source(static_cast<uint64_t>(first) + 11);
    std::vector<std::vector<float>> kept;
    for (const auto& [name, heads] :
         {std::pair{"q", l.heads}, std::pair{"k", l.kv_heads}, std::pair{"v", l.kv_heads}}) {
      const int64_t cols = int64_t{heads} * l.dim;
      kept.push_back(source.floats(static_cast<size_t>(batch.rows() * cols), -2.0f, 2.0f));
      batch.inputs[name] = {kept.back().data(), batch.rows(), cols};
    }
    for (auto& output : test::run(executable, batch, state)) all.push_back(std::move(output));
  }
  return all;
}

void check_layer(const Layer& l, KvType type) {
  const std::string name =
      std::string(l.name) + " " + graph::kKvTypeNames[static_cast<size_t>(type)];
  const graph::Graph g = layer_graph(l);
  const std::vector<KvType> types(2, type), others(2, KvType::kF32);
  const std::vector<graph::PagedLayer> layers = g.state().paged;
  cpu::KvPages pages(layers, types, 2), more(layers, others, 1);
  const std::vector<uint8_t> fresh(pages.read(1), pages.read(1) + pages.page_bytes());
  const auto truth = cpu::CpuDevice(cpu::table("scalar"), 1).compile(g);
  const Outputs expected = run_layer(*truth, cpu::State{{&pages, &more}}, l);
  for (const uint64_t seed : {1, 2}) {
    const auto backend = std::make_shared<NotingBackend>(gpu::emulator::Options{seed, seed == 2});
    gpu::GpuDevice device(backend, std::make_shared<ThreadPool>(1));
    gpu::KvPages gpu_pages(backend, layers, types, 2), gpu_more(backend, layers, others, 1);
    gpu_pages.write(1, fresh.data(),
                    pages.page_bytes());  // the memory of a device begins as garbage
    const Outputs found = run_layer(*device.compile(g), gpu::State{{&gpu_pages, &gpu_more}}, l);
    check_same(expected, found, name);
    CHECK(gpu_pages.read(1).size() == static_cast<size_t>(pages.page_bytes()) &&
              std::memcmp(gpu_pages.read(1).data(), pages.read(1), gpu_pages.read(1).size()) == 0,
          name + " page");
    for (const std::string& kernel : l.launched)
      CHECK(std::find_if(backend->launched.begin(), backend->launched.end(),
                         [&](const std::string& n) { return n.rfind(kernel, 0) == 0; }) !=
                backend->launched.end(),
            name + " launches " + kernel + ": " + joined(backend->launched));
  }
}

void check_layers() {
  const Names fused = {"prepare_heads"}, rounds_apart = {"prepare_heads", "round_int8"};
  const Names apart = {"rms_norm", "rope", "store_kv"};
  const Layer layers[] = {
      {"Llama", 4, 2, 64, 32, Norms::kNone, true, false, fused},
      {"Qwen3", 4, 2, 128, 64, Norms::kOfAHead, false, false, fused},
      {"own weights, partial rotation", 3, 1, 96, 20, Norms::kOfAllHeads, false, false, fused},
      {"groups across heads", 4, 4, 40, 20, Norms::kOfAHead, true, false, rounds_apart},
      {"large heads", 1, 1, 320, 160, Norms::kOfAHead, false, false, fused},
      {"the key is read", 2, 2, 64, 32, Norms::kOfAHead, false, true, apart},
  };
  for (const Layer& l : layers)
    for (const KvType type :
         {KvType::kF32, KvType::kF16, KvType::kQ8_0, KvType::kQ4_0, KvType::kFp8})
      check_layer(l, type);
}

}  // namespace

int main() {
  check_launches_of_token();
  check_launches();
  Source any(1);
  for (int i = 0; i < static_cast<int>(QuantType::kCount); ++i)
    if (make_weight(any, static_cast<QuantType>(i), 1, 256)->integer())
      check_joined_products(static_cast<QuantType>(i), 256, 512);
  check_joined_products(QuantType::kQ1_0, 1152, 384);  // a norm that loads ahead
  check_products_apart();
  check_layers();
  return test::finish("gpu fusion");
}
