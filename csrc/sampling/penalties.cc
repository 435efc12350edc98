// The steps that change single logits: biases, bans, and what the history makes less likely.

#include <algorithm>
#include <limits>

#include "sampling/candidates.h"

namespace oxibonsai::sampling {
namespace {

// base^n, n >= 0, by squaring; no more than the largest float32.
double power(double base, int64_t n) {
  constexpr double kMost = std::numeric_limits<float>::max();
  double result = 1.0;
  for (; n > 0 && result < kMost; n /= 2) {
    if (n % 2 == 1) result = std::min(result * base, kMost);
    base = std::min(base * base, kMost);
  }
  return result;
}

// Of a history read backwards: how many of its first tokens are repeated from each position on, at
// most `limit` (the Z function; linear).
std::vector<int64_t> repeats_backwards(Tokens history, int64_t limit) {
  const int64_t n = history.size;
  const int32_t* last = history.ids + n - 1;
  std::vector<int64_t> z(static_cast<size_t>(n), 0);
  int64_t left = 0;
  int64_t right = 0;  // the match that reaches furthest: [left, right)
  for (int64_t i = 1; i < n; ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < n && last[-z[i]] == last[-(i + z[i])]) ++z[i];
    if (i + z[i] > right) {
      left = i;
      right = i + z[i];
    }
  }
  for (int64_t& length : z) length = std::min(length, limit);
  return z;
}

}  // namespace

void Candidates::add_bias(Tokens tokens, const float* bias) {
  for (int64_t i = 0; i < tokens.size; ++i)
    if (const int64_t index = find(tokens.ids[i]); index >= 0) set(index, logits_[index] + bias[i]);
}

void Candidates::ban(Tokens tokens) {
  for (int64_t i = 0; i < tokens.size; ++i)
    if (const int64_t index = find(tokens.ids[i]); index >= 0)
      set(index, -std::numeric_limits<float>::infinity());
}

// Before any count is made: an error leaves none behind.
void Candidates::require_known(Tokens tokens) const {
  for (int64_t i = 0; i < tokens.size; ++i) require_known(tokens.ids[i]);
}

template <class F>
void Candidates::for_each_distinct(Tokens tokens, F f) {
  apply_temperature();
  require_known(tokens);
  seen_.clear();
  for (int64_t i = 0; i < tokens.size; ++i)
    if (counts_[tokens.ids[i]]++ == 0) seen_.push_back(tokens.ids[i]);
  for (const int32_t token : seen_) {
    if (const int64_t index = find(token); index >= 0) f(index, counts_[token]);
    counts_[token] = 0;
  }
}

void Candidates::penalise_repetition(Tokens window, float penalty) {
  for_each_distinct(window, [=](int64_t index, int32_t) {
    const float logit = logits_[index];
    set(index, logit > 0.0f ? logit / penalty : logit * penalty);
  });
}

void Candidates::penalise_presence(Tokens generated, float presence, float frequency) {
  for_each_distinct(generated, [=](int64_t index, int32_t count) {
    set(index, logits_[index] - (static_cast<float>(count) * frequency + presence));
  });
}

void Candidates::penalise_dry(Tokens history, double multiplier, double base,
                              int64_t allowed_length, Tokens breakers) {
  apply_temperature();
  require_known(history);
  const int64_t n = history.size;
  int64_t limit = 0;  // tokens since the last breaker
  while (limit < n && !std::binary_search(breakers.ids, breakers.ids + breakers.size,
                                          history.ids[n - 1 - limit]))
    ++limit;
  if (limit < allowed_length) return;
  const std::vector<int64_t> lengths = repeats_backwards(history, limit);
  // The token that followed the match at position i stands one position later in the text: i - 1.
  seen_.clear();
  for (int64_t i = 1; i < n; ++i) {
    const int32_t token = history.ids[n - i];
    if (lengths[i] < allowed_length || find(token) < 0) continue;
    if (counts_[token] == 0) seen_.push_back(token);
    counts_[token] = static_cast<int32_t>(std::max<int64_t>(counts_[token], lengths[i]));
  }
  for (const int32_t token : seen_) {
    const double penalty = multiplier * power(base, counts_[token] - allowed_length);
    const double most = std::numeric_limits<float>::max();
    const int64_t index = find(token);
    set(index, logits_[index] - static_cast<float>(std::min(penalty, most)));
    counts_[token] = 0;
  }
}

}  // namespace oxibonsai::sampling
