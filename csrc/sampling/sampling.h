#pragma once

#include <cstdint>
#include <vector>

namespace oxibonsai::sampling {

// The lowest index of the largest logit.
int64_t argmax(const float* logits, int64_t n);

// Indices of the k largest values, largest first, ties by lower index; k is cut to n.
std::vector<int32_t> top_k(const float* logits, int64_t n, int64_t k);

// e^x of the one arithmetic (docs/arithmetic.md, rule 3), elementwise.
void exp(const float* x, int64_t n, float* y);

// Uniform in [0, 1) with 53 bits: a function of (seed, counter) and of nothing else.
double uniform(uint64_t seed, uint64_t counter);

}  // namespace oxibonsai::sampling
