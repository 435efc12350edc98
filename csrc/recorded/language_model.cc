#include "recorded/language_model.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "cpu/dispatch.h"
#include "cpu/kv_layout.h"
#include "sampling/sampling.h"

namespace oxibonsai::recorded {
namespace {

// Rows of a step: more gain no speed and take more memory.
constexpr int kChunk = 128;

cpu::KvType find_kv_type(const std::string& name) {
  for (size_t i = 0; i < cpu::kKvTypeNames.size(); ++i)
    if (name == cpu::kKvTypeNames[i]) return static_cast<cpu::KvType>(i);
  throw RequestError("no type of the cache is called " + name);
}

}  // namespace

LanguageModel::LanguageModel(const graph::Graph& graph, const std::string& kv_type, int context,
                             int threads)
    : device_(cpu::kernels(), threads), executable_(device_.compile(graph)), context_(context) {
  if (context < 1) throw RequestError("a context has at least one token");
  if (executable_->outputs().size() != 1 || executable_->outputs()[0].first != "logits")
    throw RequestError("the graph gives no logits alone");
  logits_.resize(static_cast<size_t>(executable_->outputs()[0].second));
  const graph::StateSpec& state = executable_->state();
  if (!state.paged.empty()) {
    const int pages = (context + graph::kPagePositions - 1) / graph::kPagePositions;
    const std::vector<cpu::KvType> types(state.paged.size(), find_kv_type(kv_type));
    pages_ = std::make_unique<cpu::KvPages>(state.paged, types, pages);
    page_table_.resize(static_cast<size_t>(pages));
    std::iota(page_table_.begin(), page_table_.end(), 0);
  }
  begin({});
}

int LanguageModel::begin(const std::vector<int32_t>& tokens) {
  const graph::StateSpec& state = executable_->state();
  if (!state.slot.empty()) {  // a slot is that of all tokens so far
    slots_ = std::make_unique<cpu::Slots>(state.slot, 1);
    tokens_.clear();
    return 0;
  }
  const size_t most = tokens.empty() ? 0 : std::min(tokens.size() - 1, tokens_.size());
  const auto last = tokens_.begin() + static_cast<std::ptrdiff_t>(most);
  tokens_.erase(std::mismatch(tokens_.begin(), last, tokens.begin()).first, tokens_.end());
  return length();
}

void LanguageModel::run(const std::vector<int32_t>& tokens) {
  if (tokens.empty()) throw RequestError("there are no tokens to run");
  if (tokens.size() > static_cast<size_t>(context_ - length()))
    throw RequestError("the text has more than the " + std::to_string(context_) +
                       " tokens of its context");
  cpu::State state;
  if (pages_ != nullptr) state.pools.push_back(pages_.get());
  state.slots = slots_.get();
  for (auto from = tokens.begin(); from != tokens.end();) {
    const auto count = std::min<std::ptrdiff_t>(kChunk, tokens.end() - from);
    graph::Batch batch;
    graph::Span span;
    span.first = length();
    span.count = static_cast<int32_t>(count);
    span.pages = page_table_;
    batch.spans.push_back(std::move(span));
    batch.tokens.assign(from, from + count);
    batch.outputs.push_back(static_cast<int32_t>(count) - 1);
    if (executable_->output_rows(0, batch) != 1)
      throw RequestError("the graph gives logits of other rows than a text's last one");
    executable_->run(batch, state, {logits_.data()});
    tokens_.insert(tokens_.end(), from, from + count);
    from += count;
  }
}

// The steps in the order of oxibonsai/sampling/steps.py.
int64_t LanguageModel::choose(const Sampling& s, uint64_t seed, int generated) {
  if (tokens_.empty()) throw RequestError("there are no logits before the first token");
  if (generated < 0 || generated > length())
    throw RequestError("more tokens are said to be generated than there are");
  candidates_.start(logits_.data(), static_cast<int64_t>(logits_.size()), nullptr, 0);
  const auto last = [this](int count) {
    const int size = count < 0 ? length() : std::min(count, length());
    return sampling::Tokens{tokens_.data() + length() - size, size};
  };
  if (s.repetition_penalty != 1.0f && s.repetition_window != 0)
    candidates_.penalise_repetition(last(s.repetition_window), s.repetition_penalty);
  if (s.presence_penalty != 0.0f || s.frequency_penalty != 0.0f)
    candidates_.penalise_presence(last(generated), s.presence_penalty, s.frequency_penalty);
  if (s.temperature < 1e-20f) return candidates_.greedy();
  if (s.temperature != 1.0f) candidates_.divide(s.temperature);
  if (s.top_k != 0) candidates_.keep_top_k(s.top_k);
  if (s.min_p != 0.0f) candidates_.keep_min_p(s.min_p);
  if (s.top_p != 1.0) candidates_.keep_top_p(s.top_p);
  return candidates_.draw(sampling::uniform(seed, static_cast<uint64_t>(generated))).token;
}

}  // namespace oxibonsai::recorded
