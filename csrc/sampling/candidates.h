#pragma once

#include <cstdint>
#include <vector>

#include "sampling/top.h"

namespace oxibonsai::sampling {

struct Tokens {
  const int32_t* ids;
  int64_t size;
};

struct Drawn {
  int64_t token;
  double surprisal;  // -log2 of its probability among the candidates left
};

struct TokenLogprob {
  int64_t token;
  double logprob;
};

// The candidates for one token, in the order of their ids, and the steps that change or drop them
// (docs/sampling.md). One object serves many tokens of many sequences, so that its buffers are
// allocated once. A step keeps at least one candidate.
class Candidates {
 public:
  // Every token, or those whose bit of `mask` is set: bit i of word i / 32, ids past the mask are
  // not set. NaN counts as -inf, and a token at -inf is no candidate.
  void start(const float* logits, int64_t vocabulary, const uint32_t* mask, int64_t mask_words);

  // The candidates that are left when all but `count` of a vocabulary have been dropped; `ids` in
  // any order, each once.
  void start_with(const int32_t* ids, const float* logits, int64_t count, int64_t vocabulary);

  // Steps on logits.
  void add_bias(Tokens tokens, const float* bias);
  void ban(Tokens tokens);
  void penalise_repetition(Tokens window, float penalty);
  void penalise_presence(Tokens generated, float presence, float frequency);
  // `breakers` ascending.
  void penalise_dry(Tokens history, double multiplier, double base, int64_t allowed_length,
                    Tokens breakers);
  void divide(float temperature);
  void divide_by_entropy(double low, double high, double exponent);

  // Steps that drop candidates.
  void drop_top_choices(double threshold);
  void keep_typical(double mass);
  void keep_top_a(double a);
  void keep_eta(double eta);
  void keep_epsilon(double epsilon);
  void keep_top_k(int64_t k);
  void keep_min_p(float min_p);
  void keep_top_p(double mass);
  void keep_below_surprisal(double most);  // bits: mirostat 2
  void keep_zipf(double surprisal);        // bits: mirostat 1

  int64_t greedy();      // the first of the most likely
  Drawn draw(double u);  // inverse of the cumulative distribution at u in [0, 1)

  // Of one token and of the `top` most likely ones, largest first, as the first entry and the rest.
  std::vector<TokenLogprob> logprobs(int64_t token, int64_t top);
  std::vector<int64_t> ids() const;
  std::vector<double> probabilities();
  int64_t size() const { return size_; }

 private:
  int64_t id(int64_t index) const { return dense_ ? index : ids_[index]; }
  void require_known(int64_t id) const;
  void require_known(Tokens tokens) const;
  int64_t find(int64_t id) const;  // its index, or -1
  void set(int64_t index, float logit);
  // f(index, count) for each distinct token that is a candidate.
  template <class F>
  void for_each_distinct(Tokens tokens, F f);
  void apply_temperature();
  void weigh();
  void sum_weights();
  double mean_log();
  double entropy();
  // `keep` of an index; true for one at least.
  template <class Keep>
  void keep_if(Keep keep);
  void keep_at_least(double weight);
  // The shortest beginning of the candidates, by descending rank, whose share reaches `mass`.
  void keep_prefix(const float* rank, double mass);
  void keep_indices(const int32_t* ascending, int64_t n);

  int64_t vocabulary_ = 0;
  int64_t size_ = 0;
  bool dense_ = true;  // candidate i is token i; else ids_ names them
  bool weighed_ = false;
  float temperature_ = 1.0f;  // still to be divided by
  float top_ = 0.0f;          // largest logit
  double total_ = 0.0;        // of weights_
  std::vector<int32_t> ids_;
  std::vector<float> logits_;
  std::vector<float> weights_;  // e^(logit - top)
  std::vector<float> rank_;
  std::vector<double> block_sums_;  // of weights_, 64 a block
  std::vector<int32_t> counts_;     // by token id, zero between steps
  std::vector<int32_t> seen_;       // ids with a count
  std::vector<int32_t> kept_;       // indices
  TopFinder finder_;
};

}  // namespace oxibonsai::sampling
