#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cpu/device.h"
#include "cpu/executable.h"
#include "graph/graph.h"
#include "sampling/candidates.h"

namespace oxibonsai::recorded {

// What a draw takes besides the logits (docs/sampling.md); neutral values as there.
struct Sampling {
  float temperature;  // 0: the most likely token
  int top_k;
  float min_p;
  double top_p;
  float repetition_penalty;
  int repetition_window;
  float presence_penalty, frequency_penalty;
};

// A compiled graph and the state of one sequence.
class LanguageModel {
 public:
  // `kv_type` is what the positions of the cache are kept as; RequestError where there is no such
  // type, or no logits.
  LanguageModel(const graph::Graph& graph, const std::string& kv_type, int context, int threads);

  // Begins a sequence that will be `tokens`. What it shares with the one before is kept where the
  // state allows that; returns how many tokens that is, always fewer than all: run the others.
  int begin(const std::vector<int32_t>& tokens);

  // Runs tokens after those that the sequence has. Its logits are the last token's until the next
  // call. RequestError where they do not fit the context.
  void run(const std::vector<int32_t>& tokens);
  const std::vector<float>& logits() const { return logits_; }
  int length() const { return static_cast<int>(tokens_.size()); }

  // The next token: a function of the logits, the sequence, the seed, and how many of its last
  // tokens have been generated.
  int64_t choose(const Sampling& sampling, uint64_t seed, int generated);

 private:
  cpu::CpuDevice device_;
  const std::shared_ptr<cpu::Executable> executable_;
  std::unique_ptr<cpu::KvPages> pages_;
  std::unique_ptr<cpu::Slots> slots_;
  std::vector<int32_t> page_table_;
  const int context_;
  std::vector<int32_t> tokens_;  // of the sequence
  std::vector<float> logits_;
  sampling::Candidates candidates_;
};

}  // namespace oxibonsai::recorded
