#include "sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/exp_log.h"
#include "cpu/dispatch.h"

namespace oxibonsai::sampling {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr double kLn2 = 0.693147180559945309417;
constexpr int64_t kBlock = 64;

// NaN becomes the lowest; +inf a number, so that differences stay numbers.
float to_logit(float x) {
  x = x > kLowest ? x : kLowest;
  return x < kLargest ? x : kLargest;
}

// The order of rule 7: 8 lanes, then 8 to 4 to 2 to 1.
template <class Term>
double block_sum(int64_t n, Term term) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t j = 0; j < 8; ++j) lanes[j] += term(i + j);
  for (int64_t j = 0; i + j < n; ++j) lanes[j] += term(i + j);
  for (int half = 4; half >= 1; half /= 2)
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

}  // namespace

void Candidates::start(const float* logits, int64_t vocabulary, const uint32_t* mask,
                       int64_t mask_words) {
  vocabulary_ = size_ = vocabulary;
  dense_ = true;
  weighed_ = false;
  temperature_ = 1.0f;
  logits_.resize(static_cast<size_t>(vocabulary));
  counts_.resize(static_cast<size_t>(vocabulary));
  if (!mask) {
    float* l = logits_.data();
    for (int64_t i = 0; i < vocabulary; ++i) l[i] = to_logit(logits[i]);
    return;
  }
  dense_ = false;
  size_ = 0;
  ids_.resize(static_cast<size_t>(vocabulary));
  for (int64_t word = 0; word < mask_words && word * 32 < vocabulary; ++word) {
    const int64_t last = std::min<int64_t>(32, vocabulary - word * 32);
    for (int64_t bit = 0; mask[word] != 0 && bit < last; ++bit) {
      ids_[size_] = static_cast<int32_t>(word * 32 + bit);
      logits_[size_] = to_logit(logits[word * 32 + bit]);
      size_ += mask[word] >> bit & 1u;
    }
  }
}

void Candidates::start_with(const int32_t* ids, const float* logits, int64_t count,
                            int64_t vocabulary) {
  vocabulary_ = vocabulary;
  size_ = count;
  dense_ = false;
  weighed_ = false;
  temperature_ = 1.0f;
  counts_.resize(static_cast<size_t>(vocabulary));
  kept_.resize(static_cast<size_t>(count));
  std::iota(kept_.begin(), kept_.end(), 0);
  std::sort(kept_.begin(), kept_.end(), [ids](int32_t a, int32_t b) { return ids[a] < ids[b]; });
  ids_.resize(std::max(ids_.size(), static_cast<size_t>(count)));
  logits_.resize(std::max(logits_.size(), static_cast<size_t>(count)));
  for (int64_t i = 0; i < count; ++i) {
    require_known(ids[kept_[i]]);
    ids_[i] = ids[kept_[i]];
    logits_[i] = to_logit(logits[kept_[i]]);
  }
}

void Candidates::require_known(int64_t id) const {
  if (id < 0 || id >= vocabulary_)
    throw RequestError("token " + std::to_string(id) + " is outside the vocabulary of " +
                       std::to_string(vocabulary_));
}

int64_t Candidates::find(int64_t id) const {
  require_known(id);
  if (dense_) return id;
  const auto end = ids_.begin() + size_;
  const auto place = std::lower_bound(ids_.begin(), end, id);
  return place != end && *place == id ? place - ids_.begin() : -1;
}

void Candidates::set(int64_t index, float logit) {
  logits_[index] = to_logit(logit);
  weighed_ = false;
}

void Candidates::apply_temperature() {
  if (temperature_ == 1.0f) return;
  const float temperature = temperature_;
  float* l = logits_.data();
  for (int64_t i = 0; i < size_; ++i) l[i] = to_logit(l[i] / temperature);
  temperature_ = 1.0f;
}

// Weights and their sums; computed again only after a logit has changed.
void Candidates::weigh() {
  if (weighed_) return;
  apply_temperature();
  top_ = kLowest;
  if (size_ > 0) top_ = logits_[cpu::kernels().argmax(logits_.data(), size_)];
  if (top_ == kLowest)
    throw RequestError(
        "no token is left to choose from: the mask, the banned tokens or NaN exclude all");
  weights_.resize(std::max(weights_.size(), static_cast<size_t>(size_)));
  constexpr int64_t kChunk = 2048;  // stays in the first-level cache between the two passes
  for (int64_t first = 0; first < size_; first += kChunk) {
    const int64_t n = std::min(kChunk, size_ - first);
    const float top = top_;
    const float* l = logits_.data() + first;
    float* w = weights_.data() + first;
    for (int64_t i = 0; i < n; ++i) w[i] = l[i] - top;
    cpu::kernels().exp(w, n, w);
  }
  sum_weights();
  weighed_ = true;
}

void Candidates::sum_weights() {
  block_sums_.clear();
  total_ = 0.0;
  for (int64_t first = 0; first < size_; first += kBlock) {
    const float* w = weights_.data() + first;
    const double sum = block_sum(std::min(kBlock, size_ - first),
                                 [w](int64_t i) { return static_cast<double>(w[i]); });
    block_sums_.push_back(sum);
    total_ += sum;
  }
}

// The mean of logit - top over the distribution: -ln p = ln(total) - (logit - top), so that
// entropy = ln(total) - mean_log.
double Candidates::mean_log() {
  weigh();
  double sum = 0.0;
  for (int64_t first = 0; first < size_; first += kBlock) {
    const float* w = weights_.data() + first;
    const float* l = logits_.data() + first;
    sum += block_sum(std::min(kBlock, size_ - first), [w, l, this](int64_t i) {
      return w[i] > 0.0f ? static_cast<double>(w[i]) * static_cast<double>(l[i] - top_) : 0.0;
    });
  }
  return sum / total_;
}

double Candidates::entropy() { return exact_log(total_) - mean_log(); }

int64_t Candidates::greedy() {
  const int64_t best = size_ > 0 ? cpu::kernels().argmax(logits_.data(), size_) : 0;
  if (size_ == 0 || logits_[best] == kLowest) weigh();  // says that nothing is left
  return id(best);
}

Drawn Candidates::draw(double u) {
  weigh();
  const double target = u * total_;
  // The first block, then the first of its candidates, whose cumulative weight lies past the
  // target. Rounding may leave none: then the last with a weight is meant.
  size_t block = 0;
  double before = 0.0;
  double mass = 0.0;
  for (size_t b = 0; b < block_sums_.size() && mass <= target; ++b) {
    if (block_sums_[b] == 0.0) continue;
    block = b;
    before = mass;
    mass += block_sums_[b];
  }
  const int64_t first = static_cast<int64_t>(block) * kBlock;
  int64_t chosen = first;
  for (int64_t i = first; i < std::min(first + kBlock, size_) && before <= target; ++i) {
    if (weights_[i] == 0.0f) continue;
    chosen = i;
    before += weights_[i];
  }
  const auto logprob = static_cast<double>(logits_[chosen] - top_) - exact_log(total_);
  return {id(chosen), -logprob / kLn2};
}

std::vector<TokenLogprob> Candidates::logprobs(int64_t token, int64_t top) {
  const int64_t index = find(token);
  weigh();
  const double all = exact_log(total_);
  const auto entry = [&](int64_t i) {
    return TokenLogprob{id(i), static_cast<double>(logits_[i] - top_) - all};
  };
  std::vector<TokenLogprob> entries = {entry(index)};
  if (top > 0)
    for (const int32_t i : finder_.find(logits_.data(), size_, top)) entries.push_back(entry(i));
  return entries;
}

std::vector<int64_t> Candidates::ids() const {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < size_; ++i) ids.push_back(id(i));
  return ids;
}

std::vector<double> Candidates::probabilities() {
  weigh();
  std::vector<double> p;
  for (int64_t i = 0; i < size_; ++i) p.push_back(weights_[i] / total_);
  return p;
}

}  // namespace oxibonsai::sampling
