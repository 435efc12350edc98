// A small transformer on an emulated GPU: logits and pages have the CPU's bytes, for every type of
// weight and cache, however the prompt is cut and whatever shares a step with it.

#include "gpu_compare.h"
#include "small_model.h"

using namespace oxibonsai;
using namespace test;
using graph::KvType;

namespace {

const std::vector<int32_t> kTables[] = {{3, 0}, {1, 2}};

// Logits of the last rows, the prompt run in pieces of `chunk`, beside a second sequence if asked,
// whose pages lie in a pool of another type.
template <class Executable, class State>
std::vector<float> logits(Executable& executable, const State& state, int prompt, int chunk,
                          bool company) {
  std::vector<float> all;
  for (int first = 0; first < prompt; first += chunk) {
    graph::Batch batch;
    const int last = std::min(prompt, first + chunk);
    for (int sequence = company ? 1 : 0; sequence >= 0; --sequence) {
      batch.spans.push_back({first, last - first, kTables[sequence], sequence, 0});
      for (int i = first; i < last; ++i) {
        batch.tokens.push_back((i * 31 + sequence * 17) % kVocabulary);
        if (sequence == 0 && i >= prompt - 3)
          batch.outputs.push_back(static_cast<int32_t>(batch.tokens.size()) - 1);
      }
    }
    const std::vector<float> part = test::run(executable, batch, state).front();
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

struct Pools {
  explicit Pools(const graph::StateSpec& spec, KvType type, gpu::BackendPtr backend)
      : cpu_pages(spec.paged, types(type), 5),
        cpu_others(spec.paged, types(other(type)), 4),
        gpu_pages(backend, spec.paged, types(type), 5),
        gpu_others(backend, spec.paged, types(other(type)), 4) {}
  static std::vector<KvType> types(KvType type) { return std::vector<KvType>(kLayers, type); }
  static KvType other(KvType type) { return static_cast<KvType>((static_cast<int>(type) + 1) % 4); }
  cpu::KvPages cpu_pages, cpu_others;
  gpu::KvPages gpu_pages, gpu_others;
};

void check(QuantType weights, KvType cache, int prompt, int chunk, bool head_norms = false) {
  const std::string name = std::string(quant::traits(weights).name) + " " +
                           graph::kKvTypeNames[static_cast<size_t>(cache)] + " chunks of " +
                           std::to_string(chunk) + (head_norms ? ", norms of heads" : "");
  const auto device = emulated_gpu({static_cast<uint64_t>(chunk), chunk % 2 == 0},
                                   prompt != 66 ? gpu::Int8Mma::k16x8x32 : gpu::Int8Mma::kNone);
  const graph::Graph g = make_graph(weights, head_norms);
  const auto truth = cpu::CpuDevice(cpu::table("scalar"), 2).compile(g);
  const auto found = device->compile(g);
  Pools pools(g.state(), cache, device->backend());
  const cpu::State state{{&pools.cpu_pages, &pools.cpu_others}};
  const gpu::State gpu_state{{&pools.gpu_pages, &pools.gpu_others}};
  const auto expected = logits(*truth, state, prompt, prompt, false);
  CHECK(same_bytes(expected, logits(*found, gpu_state, prompt, chunk, chunk % 2 == 1)), name);
  if (prompt < graph::kPagePositions) return;
  // A full page moves to the CPU.
  pools.cpu_pages.write(4, pools.gpu_pages.read(3).data(), pools.cpu_pages.page_bytes());
  CHECK(std::memcmp(pools.cpu_pages.read(4), pools.cpu_pages.read(3),
                    static_cast<size_t>(pools.cpu_pages.page_bytes())) == 0,
        name + " page");
  pools.gpu_pages.copy(3, 4);
  CHECK(pools.gpu_pages.read(4) == pools.gpu_pages.read(3), name + " copy");
}

// Nothing is left of a step that does not fit, and a smaller one runs.
void check_capacity() {
  const graph::Graph g = make_graph(QuantType::kQ1_0);
  const auto backend = std::make_shared<gpu::emulator::EmulatorBackend>(
      gpu::emulator::Options{}, gpu::Capabilities{gpu::Int8Mma::k16x8x32}, 3 << 20);
  gpu::GpuDevice device(backend, std::make_shared<ThreadPool>(1));
  const auto executable = device.compile(g);
  gpu::KvPages pages(backend, g.state().paged, Pools::types(KvType::kF16), 4);
  const int64_t free = backend->memory().free;
  const auto step = [&](int32_t count) {
    graph::Batch batch;
    batch.spans = {{0, count, {0, 1, 2, 3}, 0, 0}};
    batch.tokens.assign(static_cast<size_t>(count), 7);
    batch.outputs = {count - 1};
    return test::run(*executable, batch, gpu::State{{&pages}});
  };
  bool refused = false;
  try {
    step(250);
  } catch (const CapacityError&) {
    refused = true;
  }
  CHECK(refused, "a step that is too large");
  CHECK(step(2) == step(2), "a smaller step");
  CHECK(backend->memory().free <= free, "buffers stay");
  bool too_large = false;
  try {
    gpu::KvPages many(backend, g.state().paged, Pools::types(KvType::kF32), 1000);
  } catch (const CapacityError&) {
    too_large = true;
  }
  CHECK(too_large, "pages that do not fit");
}

// An op without a kernel is named when the graph is compiled.
void check_unsupported() {
  graph::Graph g;
  const auto x = g.add(graph::Input{"x", graph::tokens(), 16384}).front();
  g.set_output("y", g.add(graph::Hadamard{x, 16384, nullptr, nullptr}).front());
  std::string message;
  try {
    emulated_gpu()->compile(g);
  } catch (const UnsupportedError& e) {
    message = e.what();
  }
  CHECK(message.find("Hadamard") != std::string::npos, message);
}

}  // namespace

int main() {
  for (int i = 0; i < static_cast<int>(QuantType::kCount); ++i)
    check(static_cast<QuantType>(i), KvType::kF16, 5, 4);
  for (const KvType cache :
       {KvType::kF32, KvType::kF16, KvType::kQ8_0, KvType::kQ4_0, KvType::kFp8})
    check(QuantType::kQ1_0, cache, 66, 33, cache == KvType::kF16 || cache == KvType::kQ4_0);
  for (const QuantType type : {QuantType::kQ2_0_g128, QuantType::kQ4_K, QuantType::kF16})
    check(type, KvType::kQ8_0, 20, 9);
  check(QuantType::kQ1_0, KvType::kF16, 5, 1);
  check_capacity();
  check_unsupported();
  return test::finish("gpu model");
}
