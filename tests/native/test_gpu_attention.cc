// Attention on emulated GPUs against the scalar tier, byte for byte: over pages of every type, of
// windows, patterns, pictures' blocks and long contexts; and among the rows of a step.

#include "gpu_compare.h"

using namespace oxibonsai;
using graph::KvType;
using graph::ValueId;
using test::vector_of;

namespace {

struct Attention {
  graph::PagedLayer layer;
  KvType type;
  int heads, window;
  float softcap;
  bool sinks;
  int32_t context, count;  // positions before the step, of the step
  int64_t memory = int64_t{4} << 30;
  bool slopes = false;
  int reach = 0;      // of a bias by position; 0: there is none
  int32_t block = 0;  // the last rows of the step, which see each other
  int32_t pages = 37;
  bool infinite = false;  // the values of the last row, which the others don't see
  graph::KeyPattern pattern = {};
};

std::string name_of(const Attention& a) {
  return std::string("attention ") + graph::kKvTypeNames[static_cast<size_t>(a.type)] + " dims " +
         std::to_string(a.layer.key_dim) + " " + std::to_string(a.layer.value_dim) + " heads " +
         std::to_string(a.heads) + " context " + std::to_string(a.context) + " + " +
         std::to_string(a.count);
}

// Keys and values of a context, then attention of a few rows behind it and of a second sequence
// whose pages lie in a pool of another type.
graph::Graph attention_graph(std::mt19937& random, const Attention& a, bool attends) {
  graph::Graph g;
  g.add_paged_layer({1, 8, 8});  // something before the layer in a page
  g.add_paged_layer(a.layer);
  const auto input = [&](const char* name, int64_t cols) {
    return g.add(graph::Input{name, graph::tokens(), cols}).front();
  };
  const ValueId k = input("k", a.layer.kv_heads * a.layer.key_dim);
  const ValueId v =
      a.layer.value_in_key ? graph::kNoValue : input("v", a.layer.kv_heads * a.layer.value_dim);
  g.add(graph::StoreKv{k, v, 1});
  if (!attends) {
    g.set_output("k", g.add(graph::Scale{k, 1.0f}).front());
    return g;
  }
  const ValueId q = input("q", a.heads * a.layer.key_dim);
  graph::Attend op;
  op.q = q;
  op.layer = 1;
  op.heads = a.heads;
  op.scale = 0.3f;
  op.window = a.window;
  op.softcap = a.softcap;
  op.pattern = a.pattern;
  if (a.slopes) op.slopes = vector_of(test::normal(random, static_cast<size_t>(a.heads), 0.1f));
  if (a.reach > 0)
    op.position_bias =
        vector_of(test::normal(random, static_cast<size_t>(a.heads * (2 * a.reach + 1))));
  if (a.sinks) op.sinks = vector_of(test::normal(random, static_cast<size_t>(a.heads)));
  g.set_output("y", g.add(op).front());
  return g;
}

graph::Batch attention_batch(const Attention& a, int32_t first, int32_t count, int32_t others) {
  std::vector<int32_t> pages;
  for (int32_t i = 0; i <= (a.context + a.count) / 64; ++i) pages.push_back((i * 5 + 3) % a.pages);
  graph::Batch batch;
  batch.spans = {{first, count, pages, 0, 0}};
  if (a.block > 0 && first == a.context)
    batch.spans[0].blocks = {{first + count - a.block, first + count}};
  if (others > 0) batch.spans.insert(batch.spans.begin(), {0, others, {2, 0}, 1, 0});
  return batch;
}

void check_attention(std::mt19937& random, const Attention& a) {
  const std::string name = name_of(a);
  const auto other = static_cast<KvType>((static_cast<int>(a.type) + 1) % 5);
  const auto device = test::emulated_gpu({7, a.count % 2 == 0}, gpu::Int8Mma::k16x8x32, a.memory);
  cpu::CpuDevice scalar(cpu::table("scalar"), 1);
  const graph::Graph store = attention_graph(random, a, false);
  const auto layers = store.state().paged;
  cpu::KvPages pages(layers, {KvType::kF32, a.type}, a.pages), more(layers, {other, other}, 3);
  gpu::KvPages gpu_pages(device->backend(), layers, {KvType::kF32, a.type}, a.pages);
  gpu::KvPages gpu_more(device->backend(), layers, {other, other}, 3);
  const cpu::State state{{&pages, &more}};
  const gpu::State gpu_state{{&gpu_pages, &gpu_more}};
  for (int32_t page = 0; page < a.pages; ++page)
    gpu_pages.write(page, pages.read(page), pages.page_bytes());
  for (int32_t page = 0; page < 3; ++page) gpu_more.write(page, more.read(page), more.page_bytes());

  const auto fill = [&](graph::Batch& batch, std::vector<std::vector<float>>& kept, bool attends) {
    const auto put = [&](const char* input, int64_t cols, float size) {
      kept.push_back(test::normal(random, static_cast<size_t>(batch.rows() * cols), size));
      batch.inputs[input] = {kept.back().data(), batch.rows(), cols};
    };
    kept.reserve(3);
    put("k", a.layer.kv_heads * a.layer.key_dim, 1.0f);
    if (!a.layer.value_in_key) put("v", a.layer.kv_heads * a.layer.value_dim, 2.0f);
    if (a.infinite) std::fill(kept.back().end() - a.layer.value_dim, kept.back().end(), INFINITY);
    if (attends) put("q", a.heads * a.layer.key_dim, 1.5f);
  };
  if (a.context > 0) {
    graph::Batch batch = attention_batch(a, 0, a.context, 0);
    std::vector<std::vector<float>> kept;
    fill(batch, kept, false);
    test::run(*scalar.compile(store), batch, state);
    test::run(*device->compile(store), batch, gpu_state);
  }
  const graph::Graph attend = attention_graph(random, a, true);
  graph::Batch batch = attention_batch(a, a.context, a.count, a.count > 1 ? 3 : 1);
  std::vector<std::vector<float>> kept;
  fill(batch, kept, true);
  const auto truth = test::run(*scalar.compile(attend), batch, state);
  test::check_same(truth, test::run(*device->compile(attend), batch, gpu_state), name);
  for (const int32_t page : batch.spans.back().pages) {
    const std::vector<uint8_t> found = gpu_pages.read(page);
    CHECK(std::memcmp(found.data(), pages.read(page), found.size()) == 0, name + " pages");
  }
}

// A query of 610 rows sees more than a part of the context.
void check_local(std::mt19937& random, const graph::LocalMask& mask, bool slopes, int reach,
                 int rows) {
  graph::Graph g;
  const auto input = [&](const char* name, int64_t cols) {
    return g.add(graph::Input{name, graph::tokens(), cols}).front();
  };
  const ValueId q = input("q", 4 * 20), k = input("k", 2 * 20), v = input("v", 2 * 20);
  graph::AttendLocal op{q, k, v, 20, 0.2f};
  op.mask = mask;
  if (slopes) op.slopes = vector_of(test::normal(random, 4, 0.1f));
  if (reach > 0)
    op.position_bias = vector_of(test::normal(random, static_cast<size_t>(4 * (2 * reach + 1))));
  g.set_output("y", g.add(op).front());
  op.segments = "windows";
  op.mask.causal = false;
  g.set_output("z", g.add(op).front());
  graph::Batch batch;
  batch.spans = {{0, 70, {}, 0, 0}, {0, 1, {}, 0, 0}, {0, rows - 71, {}, 0, 0}};
  if (mask.causal) batch.spans[0].visible = 41;  // the others are padding
  const auto x = test::normal(random, rows * 80), y = test::normal(random, rows * 40),
             z = test::normal(random, rows * 40);
  batch.inputs = {
      {"q", {x.data(), rows, 80}}, {"k", {y.data(), rows, 40}}, {"v", {z.data(), rows, 40}}};
  batch.segments["windows"] = {66, 4, 1, 2, rows - 73};
  test::compare_graph(g, batch, "attend_local");
}

}  // namespace

int main() {
  std::mt19937 random(21);
  for (const KvType type :
       {KvType::kF32, KvType::kF16, KvType::kQ8_0, KvType::kQ4_0, KvType::kFp8}) {
    for (const int32_t context : {0, 62, 63, 512, 2048})
      check_attention(random, {{1, 32, 32}, type, 4, 0, 0.0f, false, context, 1});
    check_attention(random,
                    {{1, 32, 32}, type, 4, 0, 0.0f, false, 520, 20, int64_t{4} << 30, true});
    // Little memory: parts are merged one by one, and three at a time.
    check_attention(random,
                    {{1, 32, 32}, type, 4, 0, 0.0f, false, 520, 20, int64_t{4} << 30, false, 128});
    check_attention(random,
                    {{1, 32, 32}, type, 4, 0, 0.0f, false, 520, 9, int64_t{4} << 30, true, 128});
    check_attention(random, {{1, 32, 32}, type, 4, 0, 0.0f, true, 1600, 30, 2 << 20});
    check_attention(random, {{1, 32, 32}, type, 4, 600, 0.0f, false, 2100, 30, 4 << 20});
    check_attention(random, {{1, 32, 32}, type, 4, 600, 0.0f, true, 2100, 3, 4 << 20});
    for (const int32_t count : {7, 18})
      check_attention(random, {{2, 20, 20}, type, 6, 0, 5.0f, true, 60, count});
    // More dims than a block loads at once, of tiles and of parts; heads of no whole groups.
    for (const int32_t count : {1, 17}) {
      check_attention(random, {{1, 134, 130}, type, 3, 0, 0.0f, false, 80, count});
      check_attention(random, {{1, 33, 17}, type, 5, 40, 0.0f, false, 80, count});
    }
    check_attention(random, {{1, 64, 64}, type, 4, 70, 0.0f, false, 560, 2});
    for (const int32_t count : {1, 17})
      check_attention(random, {{1, 48, 32, true}, type, 2, 0, 0.0f, false, 70, count});
    // Warps without a query take dims of values.
    check_attention(random, {{1, 112, 100, true}, type, 2, 0, 0.0f, false, 70, 1});
    for (const int window : {0, 30})
      check_attention(
          random,
          {{1, 32, 32}, type, 4, window, 0.0f, false, 500, 90, int64_t{4} << 30, window > 0, 70});
  }
  // More tiles than a block merges at once.
  Attention many{{1, 8, 8}, KvType::kQ8_0, 2, 0, 0.0f, true, 8400, 1};
  many.pages = 149;
  check_attention(random, many);
  for (const int32_t count : {3, 20}) {
    Attention a{{1, 32, 32}, KvType::kF32, 4, 0, 0.0f, false, 0, count};
    a.infinite = true;
    check_attention(random, a);
  }
  for (const int32_t count : {3, 17})
    check_attention(random, {{1, 272, 260}, KvType::kF16, 5, 0, 0.0f, false, 10, count});
  for (const int32_t count : {3, 20}) {
    Attention a{{1, 32, 32}, KvType::kF16, 4, 96, 0.0f, true, 1100, count};
    for (const graph::KeyPattern& pattern :
         {graph::KeyPattern{5, 0}, {3, 7}, {1, 70}, {1, 0, 32, 6, 1}, {1, 0, 48, 40, 5, 3}}) {
      a.pattern = pattern;
      for (const int32_t block : {0, count - 1}) {
        a.block = block;
        check_attention(random, a);
      }
    }
  }
  constexpr auto kGlobal = graph::QueryPart::kGlobal, kOthers = graph::QueryPart::kOthers;
  check_local(random, {}, false, 0, 610);
  check_local(random, {true}, true, 12, 240);
  check_local(random, {false, 33}, true, 0, 240);
  check_local(random, {false, 520}, false, 12, 610);
  check_local(random, {false, 0, 3, kGlobal}, false, 0, 610);
  check_local(random, {false, 33, 3, kOthers}, true, 12, 240);
  check_local(random, {false, 33, 530, kOthers}, false, 0, 610);
  check_local(random, {false, 0, 0, {}, 9, 1}, false, 12, 240);
  check_local(random, {false, 0, 0, {}, 24, 3}, true, 0, 300);
  return test::finish("gpu attention");
}
