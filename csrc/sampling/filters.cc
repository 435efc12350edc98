// The steps that drop candidates, and temperature.

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/exp_log.h"
#include "sampling/candidates.h"

namespace oxibonsai::sampling {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr double kLn2 = 0.693147180559945309417;
constexpr int64_t kBlock = 64;
// Below it, every difference of two logits that float32 can tell decides: greedy.
constexpr double kSmallestTemperature = 1e-20;

// w >= x for a float w is w >= float_at_least(x).
float float_at_least(double x) {
  const auto rounded = static_cast<float>(x);
  return rounded < x ? std::nextafter(rounded, std::numeric_limits<float>::infinity()) : rounded;
}

}  // namespace

void Candidates::divide(float temperature) {
  apply_temperature();
  temperature_ = temperature;
  weighed_ = false;
}

void Candidates::divide_by_entropy(double low, double high, double exponent) {
  weigh();
  const auto live = std::count_if(logits_.begin(), logits_.begin() + size_,
                                  [](float logit) { return logit > kLowest; });
  if (live < 2) return;
  const double largest = exact_log(static_cast<double>(live));
  const double share = std::clamp(entropy() / largest, 0.0, 1.0);
  const double power = share > 0.0 ? exact_exp(exponent * exact_log(share)) : 0.0;
  const double temperature = low + (high - low) * power;
  if (temperature < kSmallestTemperature)
    keep_top_k(1);
  else
    divide(static_cast<float>(temperature));
}

void Candidates::keep_indices(const int32_t* ascending, int64_t n) {
  if (n == size_) return;
  ids_.resize(std::max(ids_.size(), static_cast<size_t>(n)));
  for (int64_t i = 0; i < n; ++i) {
    ids_[i] = static_cast<int32_t>(id(ascending[i]));
    logits_[i] = logits_[ascending[i]];
  }
  dense_ = false;
  weighed_ = false;
  size_ = n;
}

template <class Keep>
void Candidates::keep_if(Keep keep) {
  kept_.clear();
  for (int64_t first = 0; first < size_; first += kBlock) {
    const int64_t last = std::min(first + kBlock, size_);
    int any = 0;  // most blocks of a vocabulary hold none
    for (int64_t i = first; i < last; ++i) any |= keep(i);
    for (int64_t i = first; any && i < last; ++i)
      if (keep(i)) kept_.push_back(static_cast<int32_t>(i));
  }
  keep_indices(kept_.data(), static_cast<int64_t>(kept_.size()));
}

// The most likely has weight 1 and stays.
void Candidates::keep_at_least(double weight) {
  const float least = float_at_least(std::min(weight, 1.0));
  const float* w = weights_.data();
  keep_if([w, least](int64_t i) { return w[i] >= least; });
}

void Candidates::keep_prefix(const float* rank, double mass) {
  // Few tokens hold most of the mass, as a rule; all are sorted only where they don't.
  for (const int64_t n : {int64_t{64}, int64_t{1024}, size_}) {
    kept_ = finder_.find(rank, size_, n);
    double sum = 0.0;
    for (size_t i = 0; i < kept_.size(); ++i) {
      sum += weights_[kept_[i]];
      if (sum < mass * total_) continue;
      const int64_t last = kept_[i];
      const float cut = rank[last];
      return keep_if([=](int64_t j) { return (rank[j] > cut) | ((rank[j] == cut) & (j <= last)); });
    }
  }
}

void Candidates::drop_top_choices(double threshold) {
  weigh();
  kept_.clear();
  const float least = float_at_least(threshold * total_);
  for (int64_t i = 0; i < size_; ++i)
    if (weights_[i] >= least && weights_[i] > 0.0f) kept_.push_back(static_cast<int32_t>(i));
  if (kept_.size() < 2) return;
  int32_t stays = kept_[0];
  for (const int32_t i : kept_)
    if (logits_[i] <= logits_[stays]) stays = i;
  for (const int32_t i : kept_)
    if (i != stays) set(i, kLowest);
}

void Candidates::keep_typical(double mass) {
  const double mean = mean_log();  // -ln p - entropy = mean - (logit - top)
  rank_.resize(std::max(rank_.size(), static_cast<size_t>(size_)));
  const float* l = logits_.data();
  float* rank = rank_.data();
  for (int64_t i = 0; i < size_; ++i)
    rank[i] = static_cast<float>(-std::fabs(mean - static_cast<double>(l[i] - top_)));
  keep_prefix(rank_.data(), mass);
}

void Candidates::keep_top_a(double a) {
  weigh();
  keep_at_least(a / total_);  // p >= a * pmax^2 with p = w / total and pmax = 1 / total
}

void Candidates::keep_eta(double eta) {
  weigh();
  keep_at_least(std::min(eta, std::sqrt(eta) * exact_exp(-entropy())) * total_);
}

void Candidates::keep_epsilon(double epsilon) {
  weigh();
  keep_at_least(epsilon * total_);
}

void Candidates::keep_top_k(int64_t k) {
  if (k >= size_) return;
  kept_ = finder_.find(logits_.data(), size_, k, temperature_);
  std::sort(kept_.begin(), kept_.end());
  keep_indices(kept_.data(), k);
}

void Candidates::keep_min_p(float min_p) {
  weigh();
  keep_at_least(min_p);
}

void Candidates::keep_top_p(double mass) {
  weigh();
  keep_prefix(logits_.data(), mass);
}

void Candidates::keep_below_surprisal(double most) {
  weigh();
  // -log2 p <= most; the most likely stays.
  const double lowest = std::min(exact_log(total_) - most * kLn2, 0.0);
  const float* l = logits_.data();
  const float top = top_;
  keep_if([=](int64_t i) { return static_cast<double>(l[i] - top) >= lowest; });
}

// Basu et al. 2021, algorithm 1: the exponent s of Zipf's law from the 100 most likely tokens, then
// the k whose surprisal it foretells.
void Candidates::keep_zipf(double surprisal) {
  weigh();
  const std::vector<int32_t>& order = finder_.find(logits_.data(), size_, 100);
  double products = 0.0;
  double squares = 0.0;
  for (size_t i = 0; i + 1 < order.size() && logits_[order[i + 1]] > kLowest; ++i) {
    const double t = exact_log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * static_cast<double>(logits_[order[i]] - logits_[order[i + 1]]);
    squares += t * t;
  }
  if (squares == 0.0) return keep_top_k(1);
  const double s = std::max(products / squares, 1e-6);
  const double log_n = exact_log(static_cast<double>(vocabulary_));
  const double e = s - 1.0;
  // ln(e / (1 - N^-e)), whose limit at e = 0 is -ln(ln N)
  const double log_ratio =
      std::fabs(e) < 1e-9 ? -exact_log(log_n) : exact_log(e / (1.0 - exact_exp(-e * log_n)));
  const double log_k = (log_ratio + surprisal * kLn2) / s;
  const double k = exact_exp(std::min(log_k, 43.0));  // past any vocabulary
  keep_top_k(std::max<int64_t>(static_cast<int64_t>(k), 1));
}

}  // namespace oxibonsai::sampling
