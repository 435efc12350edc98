// The tables of cpu/body/linear_1bit.h, made from rounded activations. Two quads of activations at
// a time, one in each 16-byte lane: from the eight bytes p0..p3 m0..m3 (positive and negative
// parts) of a quad, four lookups pick p or m for each of its four bits in all 16 entries; pairs
// add up to at most 254 in a byte, and the pairs' nibbles to at most 30.

#include <immintrin.h>

#include "cpu/body/fill.h"
#include "cpu/body/lookup_pick.h"

namespace oxibonsai::cpu::avx2 {
namespace {

__m256i pick(__m256i parts, int bit, int quad_in_lane) {
  const __m256i bytes =
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kPick[bit])));
  return _mm256_shuffle_epi8(
      parts, _mm256_add_epi8(bytes, _mm256_set1_epi8(static_cast<char>(8 * quad_in_lane))));
}

__m256i low_nibbles(__m256i a) { return _mm256_and_si256(a, _mm256_set1_epi8(15)); }
__m256i high_nibbles(__m256i a) { return low_nibbles(_mm256_srli_epi16(a, 4)); }

// Tables of the quads `quad` (lower lane of parts) and quad + 4 (upper lane) of a group.
void put_tables(__m256i parts, int quad_in_lane, uint8_t* group, int quad) {
  const __m256i a = _mm256_add_epi8(pick(parts, 0, quad_in_lane), pick(parts, 1, quad_in_lane));
  const __m256i b = _mm256_add_epi8(pick(parts, 2, quad_in_lane), pick(parts, 3, quad_in_lane));
  const __m256i low = _mm256_add_epi8(low_nibbles(a), low_nibbles(b));
  const __m256i high = _mm256_add_epi8(high_nibbles(a), high_nibbles(b));
  const auto put = [group](int table, __m128i entries) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(group + 16 * table), entries);
  };
  const int table = quad % 2 * 4 + quad / 2;  // of quad + 4: two on
  put(table, _mm256_castsi256_si128(low));
  put(table + 2, _mm256_extracti128_si256(low, 1));
  put(table + 8, _mm256_castsi256_si128(high));
  put(table + 10, _mm256_extracti128_si256(high, 1));
}

int sum_of_bytes(__m256i a) {
  const __m256i four = _mm256_sad_epu8(a, _mm256_setzero_si256());
  const __m128i two =
      _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
  return _mm_cvtsi128_si32(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two)));
}

void make_tables(const int8_t* q, int64_t n, const QuantizedRows& out) {
  const __m256i zero = _mm256_setzero_si256();
  for (int64_t g = 0; g < n / 32; ++g) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + 32 * g));
    const __m256i positive = _mm256_max_epi8(x, zero);
    const __m256i negative = _mm256_max_epi8(_mm256_sub_epi8(zero, x), zero);
    const __m256i first = _mm256_unpacklo_epi32(positive, negative);   // quads 0 1 | 4 5
    const __m256i second = _mm256_unpackhi_epi32(positive, negative);  // quads 2 3 | 6 7
    uint8_t* group = out.tables + g * kTableBytes;
    put_tables(first, 0, group, 0);
    put_tables(first, 1, group, 1);
    put_tables(second, 0, group, 2);
    put_tables(second, 1, group, 3);
    out.minus_abs[g] = -sum_of_bytes(_mm256_abs_epi8(x));
  }
}

}  // namespace

void fill_lookup_tables(KernelTable& table) { table.make_tables = &make_tables; }

}  // namespace oxibonsai::cpu::avx2
