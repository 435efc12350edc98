// The block Walsh-Hadamard transform (docs/arithmetic.md, rule 9). Include after a tier's simd.h.
//
// Sums and differences of pairs give the same bytes in any order that keeps what each pair is made
// of. The five strides within 32 values take one move each: pairs (2i, 2i + 1) come apart as they
// are loaded, their sums are stored as the first half and their differences as the second. The next
// pairs then lie side by side again, and after five moves every value is back in its place.

#include <cstdint>

#include "cpu/body/flush.h"
#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::HadamardArgs;

constexpr int kInner = 2 * simd::kLanes;

// Strides 1, 2, 4, 8 and 16 of 32 values.
inline void transform_inner(float* x) {
  using namespace simd;
  for (int stride = 1; stride < kInner; stride *= 2) {
    Vec even, odd;
    load_pairs(x, even, odd);
    store(x, add(even, odd));
    store(x + kLanes, sub(even, odd));
  }
}

// One stride of a block: pairs (i, i + stride) with that bit of i clear.
inline void transform_stride(float* x, int64_t block, int64_t stride) {
  using namespace simd;
  for (int64_t begin = 0; begin < block; begin += 2 * stride)
    for (int64_t i = begin; i < begin + stride; i += kLanes) {
      const Vec a = load(x + i);
      const Vec b = load(x + i + stride);
      store(x + i, add(a, b));
      store(x + i + stride, sub(a, b));
    }
}

// A block of fewer than 32 values: heads of few dims, in a rotated cache.
inline void transform_small(float* x, int64_t block) {
  for (int64_t stride = 1; stride < block; stride *= 2)
    for (int64_t begin = 0; begin < block; begin += 2 * stride)
      for (int64_t i = begin; i < begin + stride; ++i) {
        const float a = x[i];
        const float b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
}

inline void transform_block(float* x, int64_t block) {
  if (block < kInner) return transform_small(x, block);
  for (int64_t i = 0; i < block; i += kInner) transform_inner(x + i);
  for (int64_t stride = kInner; stride < block; stride *= 2) transform_stride(x, block, stride);
}

// f, or ones where there is none.
inline simd::Vec load_factor(const float* f, int64_t i, int n) {
  return f != nullptr ? simd::load_n(f + i, n) : simd::splat(1.0f);
}

void hadamard(const HadamardArgs& a) {
  using namespace simd;
  const auto rest = [&](int64_t i) {
    return static_cast<int>(a.n - i < kLanes ? a.n - i : kLanes);
  };
  for (int64_t i = 0; i < a.n; i += kLanes)
    store_n(a.y + i, mul(load_n(a.x + i, rest(i)), load_factor(a.before, i, rest(i))), rest(i));
  for (int64_t i = 0; i < a.n; i += a.block) transform_block(a.y + i, a.block);
  const Vec size = splat(first(sqrt(splat(1.0f / static_cast<float>(a.block)))));
  for (int64_t i = 0; i < a.n; i += kLanes) {
    const Vec scaled = mul(load_n(a.y + i, rest(i)), size);
    store_n(a.y + i, flush_tiny(mul(scaled, load_factor(a.after, i, rest(i)))), rest(i));
  }
}

}  // namespace
