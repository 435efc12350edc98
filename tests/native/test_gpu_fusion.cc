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

// A step of a Qwen3 with Q1_0 weights and an F16 cache, `tokens` for each of two sequences.
Names launches_of_model(int tokens) {
  const graph::Graph g = make_graph(QuantType::kQ1_0, true);
  const auto backend = std::make_shared<NotingBackend>();
  gpu::GpuDevice device(backend, std::make_shared<ThreadPool>(1));
  gpu::KvPages pages(backend, g.state().paged, std::vector<KvType>(kLayers, KvType::kF16), 2);
  graph::Batch batch;
  batch.spans = {{0, tokens, {0}, 0, 0}, {0, tokens, {1}, 0, 0}};
  batch.tokens.assign(static_cast<size_t>(2 * tokens), 7);
  batch.outputs = {0};
  test::run(*device.compile(g), batch, gpu::State{{&pages}});
  return backend->launched;
}

// Each layer's launches, then those of the logits.
void check_launches() {
  const Names layer = {
      "rms_norm",           // and its rounding
      "gemv_q1_4",          // q, k and v
      "prepare_heads_F16",  // norms of heads, rotations, store_kv
      "attend_tile_F16",
      "merge_tiles",  // and the rounding of the result
      "gemv_q1_4",    // and the residual
      "rms_norm",
      "gemv_q1_4",  // gate and up
      "gated",      // and its rounding
      "gemv_q1_4",  // and the residual
  };
  Names all;
  for (int i = 0; i < kLayers; ++i) all.insert(all.end(), layer.begin(), layer.end());
  for (const char* last : {"select_rows", "rms_norm", "gemv_q1_1"}) all.emplace_back(last);
  const Names found = launches_of_model(1);
  CHECK(layer.size() == 10 && found == all, joined(found));
  // A prompt: gemm takes one matrix at a time.
  CHECK(launches_of_model(8).size() == kLayers * (10 + 2 + 1) + 3, "launches of a prompt");
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
  check_launches();
  check_layers();
  return test::finish("gpu fusion");
}
