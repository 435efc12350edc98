// The host for Metal over a bridge that is none: launches are kept, as in a command buffer, and run
// on emulated threads when they are waited for. Logits have the CPU's bytes, and errors are said.

#include <cstdlib>
#include <functional>

#include "gpu_compare.h"
#include "metal/bridge.h"
#include "metal/metal_backend.h"
#include "small_model.h"

using namespace oxibonsai;
using namespace test;
namespace emulator = gpu::emulator;

namespace {

struct Fake {
  std::string refusal;  // what opening gives; empty: it succeeds
  std::string failure;  // what waiting gives
  bool has_memory = true;
  std::vector<std::function<void()>> encoded;
  uint64_t used = 0;
} fake;

char* text(const std::string& s) { return strdup(s.c_str()); }

}  // namespace

struct OxiMetalDevice {};
struct OxiMetalBuffer {
  std::vector<uint8_t> bytes;
};

// They take the place of csrc/metal/missing/bridge.cc.
extern "C" {

OxiMetalDevice* oxi_metal_open(const char* source, char** error) {
  if (std::strstr(source, "KERNEL(") == nullptr) fake.refusal = "no source";
  if (fake.refusal.empty()) return new OxiMetalDevice;
  *error = text(fake.refusal);
  return nullptr;
}
void oxi_metal_close(OxiMetalDevice* device) { delete device; }
char* oxi_metal_name(OxiMetalDevice*) { return text("a GPU that is none"); }
uint64_t oxi_metal_recommended_bytes(OxiMetalDevice*) { return 1 << 30; }
uint64_t oxi_metal_used_bytes(OxiMetalDevice*) { return fake.used; }
OxiMetalBuffer* oxi_metal_allocate(OxiMetalDevice*, uint64_t bytes) {
  if (!fake.has_memory) return nullptr;
  fake.used += bytes;
  return new OxiMetalBuffer{std::vector<uint8_t>(bytes, 0xEE)};
}
void oxi_metal_free(OxiMetalBuffer* buffer) {
  fake.used -= buffer->bytes.size();
  delete buffer;
}
void* oxi_metal_contents(OxiMetalBuffer* buffer) { return buffer->bytes.data(); }
void oxi_metal_launch(OxiMetalDevice*, const char* name, const uint32_t grid[3], uint32_t threads,
                      const void* args, uint64_t arg_bytes, OxiMetalBuffer* const* buffers,
                      const uint64_t* offsets, int count, char** error) {
  const emulator::Kernel* kernel = emulator::find_kernel(name);
  if (kernel == nullptr || kernel->arg_bytes != arg_bytes || kernel->buffers != count) {
    *error = text("no such kernel");
    return;
  }
  const auto* bytes = static_cast<const uint8_t*>(args);
  const std::vector<uint8_t> kept(bytes, bytes + arg_bytes);
  std::vector<uint8_t*> pointers;
  for (int i = 0; i < count; ++i)
    pointers.push_back(buffers[i] == nullptr ? nullptr : buffers[i]->bytes.data() + offsets[i]);
  const gpu::Grid size{grid[0], grid[1], grid[2]};
  fake.encoded.push_back([=] {
    emulator::launch(*kernel, size, threads, kept.data(), pointers.data(), emulator::Options{});
  });
}
void oxi_metal_synchronize(OxiMetalDevice*, char** error) {
  for (const auto& launch : fake.encoded) launch();
  fake.encoded.clear();
  if (!fake.failure.empty()) *error = text(fake.failure);
}

}  // extern "C"

namespace {

template <class Expected>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Expected& e) {
    return e.what();
  }
  return "";
}

graph::Batch prompt(int32_t count) {
  graph::Batch batch;
  batch.spans = {{0, count, {0, 1}, 0, 0}};
  for (int32_t i = 0; i < count; ++i) batch.tokens.push_back(i * 31 % kVocabulary);
  batch.outputs = {0, count - 1};
  return batch;
}

void check_logits(QuantType type) {
  const graph::Graph g = make_graph(type);
  const std::vector<graph::KvType> types(kLayers, graph::KvType::kF16);
  cpu::KvPages cpu_pages(g.state().paged, types, 2);
  const auto truth = cpu::CpuDevice(cpu::table("scalar"), 1).compile(g);
  gpu::GpuDevice device(metal::open_metal(), std::make_shared<ThreadPool>(1));
  gpu::KvPages pages(device.backend(), g.state().paged, types, 2);
  const auto found = device.compile(g);
  const auto expected = test::run(*truth, prompt(11), cpu::State{{&cpu_pages}});
  CHECK(test::run(*found, prompt(11), gpu::State{{&pages}}) == expected, "logits over Metal");
}

void check_errors() {
  const gpu::BackendPtr backend = metal::open_metal();
  CHECK(backend->name() == "metal" && backend->device() == "a GPU that is none", "names");
  fake.has_memory = false;
  const std::string capacity = message_of<CapacityError>([&] { backend->allocate(123); });
  CHECK(capacity.find("Metal refused 123 bytes") != std::string::npos, capacity);
  fake.has_memory = true;
  const gpu::BufferPtr buffer = backend->allocate(64);
  const gpu::Launch unknown{"nothing", {}, 32, nullptr, 0, nullptr, 0};
  const std::string kernel = message_of<DeviceError>([&] { backend->launch(unknown); });
  CHECK(kernel == "nothing: no such kernel", kernel);
  uint8_t bytes[65];
  CHECK(!message_of<RequestError>([&] {
           backend->download({buffer.get(), 0}, bytes, 65);
         }).empty(),
        "past the end");
  fake.refusal = "the source has an error";
  const std::string refusal = message_of<UnsupportedError>([&] { metal::open_metal(); });
  CHECK(refusal == "the source has an error", refusal);
  fake.refusal.clear();
}

void check_lost() {
  const graph::Graph g = make_graph(QuantType::kQ1_0);
  const std::vector<graph::KvType> types(kLayers, graph::KvType::kF16);
  gpu::GpuDevice device(metal::open_metal(), std::make_shared<ThreadPool>(1));
  gpu::KvPages pages(device.backend(), g.state().paged, types, 2);
  const auto found = device.compile(g);
  fake.failure = "the GPU was reset";
  const std::string lost =
      message_of<DeviceError>([&] { test::run(*found, prompt(3), gpu::State{{&pages}}); });
  CHECK(lost == "Metal: the GPU was reset", lost);
  fake.failure.clear();
}

}  // namespace

int main() {
  for (const QuantType type : {QuantType::kQ1_0, QuantType::kQ2_0_g128, QuantType::kF16})
    check_logits(type);
  check_errors();
  check_lost();
  CHECK(fake.used == 0, "all memory is given back");
  return test::finish("metal");
}
