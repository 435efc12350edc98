// The logits of a small transformer have the bytes recorded here, on every tier of every processor,
// for any number of threads and any cut of the prompt.

#include <cstdlib>

#include "check.h"
#include "cpu/device.h"
#include "cpu/dispatch.h"
#include "cpu/executable.h"
#include "cpu/kv_layout.h"
#include "small_model.h"

using namespace oxibonsai;
using quant::QuantType;

namespace {

using namespace test;

constexpr int kPrompt = 150;
#if defined(__EMSCRIPTEN__)
constexpr int kMoreThreads = 1;  // WebAssembly has the caller's alone
#else
constexpr int kMoreThreads = 2;
#endif

std::shared_ptr<cpu::Executable> compile(QuantType type, int threads) {
  return cpu::CpuDevice(cpu::kernels(), threads).compile(make_graph(type));
}

// Logits of the first `rows` rows, the prompt run in pieces of `chunk`, beside a second sequence if
// asked, whose pages lie in a pool of another type.
std::vector<float> run(cpu::Executable& executable, cpu::KvType type, int chunk, bool company,
                       int rows = kPrompt) {
  const auto layers = executable.state().paged;
  const auto next = (static_cast<size_t>(type) + 1) % cpu::kKvTypeNames.size();
  cpu::KvPages pages(layers, {type, type}, 16);
  cpu::KvPages others(layers, std::vector<cpu::KvType>(2, static_cast<cpu::KvType>(next)), 5);
  const std::vector<int32_t> tables[] = {{3, 0, 5}, {1, 2, 4}};
  std::vector<float> all;
  for (int first = 0; first < rows; first += chunk) {
    graph::Batch batch;
    const int last = std::min(rows, first + chunk);
    for (int sequence = company ? 1 : 0; sequence >= 0; --sequence) {
      batch.spans.push_back({first, last - first, tables[sequence], sequence, 0});
      for (int i = first; i < last; ++i) {
        batch.tokens.push_back((i * 31 + sequence * 17) % kVocabulary);
        if (sequence == 0) batch.outputs.push_back(static_cast<int32_t>(batch.tokens.size()) - 1);
      }
    }
    std::vector<float> part(batch.outputs.size() * kVocabulary);
    executable.run(batch, {{&pages, &others}}, {part.data()});
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// FNV-1a over the bytes.
uint64_t hash(const std::vector<float>& values) {
  uint64_t h = 14695981039346656037u;
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(float); ++i) h = (h ^ bytes[i]) * 1099511628211u;
  return h;
}

// Of the scalar tier, f16 cache. A change of the arithmetic changes them, in all tiers at once.
constexpr uint64_t kRecorded[] = {
    5180638778312713951u,  14600668878433655641u, 4683166815891828917u,  7350045938983946698u,
    10208377370450306958u, 7128869062743302438u,  6415630664459715082u,  17146483754509761520u,
    8386096345023801138u,  296282359833932471u,   2385342348220541021u,  6775312782679965751u,
    7713967196940290740u,  17091142543659801711u, 16419237049125519937u, 12494597435852349241u,
    9115561405602741008u,  4990140106511009857u,  10414972136157549705u, 16777148284325048518u,
    12110979239453510642u, 11619598620615012985u, 13017268956267474144u, 5290654246337676305u,
    7015888918979520108u,  5091081174472105935u,  17391039885859668507u, 11605755283436224494u,
    17589062145552335030u, 8725717592786198464u,  14683165450368916741u, 13141070878880175396u,
    11753031003177973117u, 16786146554571570531u, 11781830519921975746u};
static_assert(sizeof kRecorded / sizeof kRecorded[0] == static_cast<int>(QuantType::kCount));

// Of Q1_0 weights, by type of the cache.
constexpr uint64_t kRecordedCaches[] = {13902465665532961802u, 6775312782679965751u,
                                        8205016268109016972u, 15461405058453505752u,
                                        15463264711035252431u};
static_assert(sizeof kRecordedCaches / sizeof kRecordedCaches[0] == cpu::kKvTypeNames.size());

void check_caches(cpu::Executable* one, cpu::Executable* two) {
  for (size_t i = 0; i < cpu::kKvTypeNames.size(); ++i) {
    const auto type = static_cast<cpu::KvType>(i);
    const std::string name = std::string(cpu::kernels().name) + " " + cpu::kKvTypeNames[i];
    const auto truth = run(*one, type, kPrompt, false);
    CHECK(hash(truth) == kRecordedCaches[i],
          name + " cache has hash " + std::to_string(hash(truth)) + "u");
    CHECK(test::same_bytes(truth, run(*two, type, 33, true)), name + " chunks of 33, in a batch");
    CHECK(test::same_bytes(truth, run(*two, type, 1, true)), name + " one by one");
  }
}

}  // namespace

int main() {
  for (int i = 0; i < static_cast<int>(QuantType::kCount); ++i) {
    const auto type = static_cast<QuantType>(i);
    const std::string name = std::string(cpu::kernels().name) + " " + quant::traits(type).name;
    const auto one = compile(type, 1);
    const auto two = compile(type, kMoreThreads);
    const auto truth = run(*one, cpu::KvType::kF16, kPrompt, false);
    CHECK(hash(truth) == kRecorded[i], name + " has hash " + std::to_string(hash(truth)) + "u");
    // Three whole pieces and one of 3 rows; what depends on the position is checked below.
    constexpr int kRows = 24;
    CHECK(test::same_bytes({truth.begin(), truth.begin() + kRows * kVocabulary},
                           run(*two, cpu::KvType::kF16, 7, true, kRows)),
          name + " chunks of 7, in a batch, more threads");
    if (type != QuantType::kQ1_0) continue;
    // What is left of a prompt's cut does not depend on the type of the weights.
    CHECK(test::same_bytes(truth, run(*two, cpu::KvType::kF16, kPrompt, false)),
          name + " more threads");
    CHECK(test::same_bytes(truth, run(*two, cpu::KvType::kF16, 64, true)),
          name + " chunks of 64, in a batch");
    check_caches(one.get(), two.get());
  }
  return test::finish("executable");
}
