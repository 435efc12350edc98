// Linear layers over 1-bit tiles by table lookup, with VBMI and VNNI. The tables and their
// arithmetic are those of cpu/body/linear_1bit.h.
//
// Design: a word of 32 bits is a group of one row, so a vector of 64 bytes is a group of 16 rows,
// and its low nibbles are the quads 0, 2, 4, 6, its high nibbles 1, 3, 5, 7. vpermb looks 64 bytes
// up in a table of 64, the tables of four quads side by side, if byte b of a word says 16 b +
// nibble; one vpdpbusd then adds up the four bytes of a word with their weight, which leaves the
// sum of each row in its lane. The four tables of a group stay in registers for all 64 rows of a
// tile. Budget for 32 weights x 64 rows: 4 loads, 4 shifts, 8 masks; per token 4 loads of tables,
// 16 lookups, 8 adds, 8 dot products, 4 converts, 4 fmas: 52 instructions on vectors, where bytes
// of rows take 60 and, on processors that split 512-bit instructions, 16 broadcasts that cost as
// much as lookups.

#include "cpu/avx512/lanes.h"
//
#include "cpu/body/fetch.h"
#include "cpu/body/fill.h"
#include "cpu/body/store_rows.h"

namespace oxibonsai::cpu::avx512vbmi {
namespace {

constexpr int kTileRows = 64;
constexpr int kWords = kTileRows / dot::kRows;  // vectors of 16 rows
constexpr int kCodes = 64 * kWords;             // bytes of codes in a group
constexpr int kBlockBytes = 4 * kCodes + 2 * kTileRows;

// Where in a table of 64 to look: the nibbles of each byte, and 16 times its place in the word.
struct Index {
  __m512i even[kWords], odd[kWords];
};

inline __m512i place_nibbles(__m512i nibbles) {
  const __m512i places = _mm512_set1_epi32(0x30201000);
  return _mm512_ternarylogic_epi32(nibbles, _mm512_set1_epi8(15), places, 0xEA);  // (a & b) | c
}

inline Index load_index(const uint8_t* codes) {
  Index index;
#pragma GCC unroll 4
  for (int w = 0; w < kWords; ++w) {
    const __m512i c = _mm512_loadu_si512(codes + 64 * w);
    index.even[w] = place_nibbles(c);
    index.odd[w] = place_nibbles(_mm512_srli_epi32(c, 4));
  }
  return index;
}

// inner += scale * isum, for one group of one token and 64 rows.
inline void add_group(const Index& index, const QuantizedRows& x, int64_t group,
                      dot::Floats* inner) {
  const uint8_t* tables = x.tables + group * kTableBytes;
  const __m512i low_even = _mm512_loadu_si512(tables);
  const __m512i low_odd = _mm512_loadu_si512(tables + 64);
  const __m512i high_even = _mm512_loadu_si512(tables + 128);
  const __m512i high_odd = _mm512_loadu_si512(tables + 192);
  const __m512i start = _mm512_set1_epi32(x.minus_abs[group]);
  const __m512 scale = _mm512_set1_ps(x.scale[group]);
#pragma GCC unroll 4
  for (int w = 0; w < kWords; ++w) {
    const __m512i low = _mm512_add_epi8(_mm512_permutexvar_epi8(index.even[w], low_even),
                                        _mm512_permutexvar_epi8(index.odd[w], low_odd));
    const __m512i high = _mm512_add_epi8(_mm512_permutexvar_epi8(index.even[w], high_even),
                                         _mm512_permutexvar_epi8(index.odd[w], high_odd));
    __m512i isum = _mm512_dpbusd_epi32(start, low, _mm512_set1_epi8(2));
    isum = _mm512_dpbusd_epi32(isum, high, _mm512_set1_epi8(32));
    inner[w] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(isum), inner[w]);
  }
}

// One tile against T tokens from t.
template <int T>
inline void tile_tokens(const LinearArgs& a, const uint8_t* tile, int64_t r, int64_t t) {
  const int64_t groups = a.cols / 32;
  dot::Floats row[T][kWords];
  for (int j = 0; j < T; ++j)
    for (int w = 0; w < kWords; ++w) row[j][w] = dot::splat(0.0f);
  const uint8_t* block = tile;
  for (int64_t at = 0; at < groups; at += 4, block += kBlockBytes) {
    dot::Floats inner[T][kWords];
#pragma GCC unroll 4
    for (int j = 0; j < T; ++j)
#pragma GCC unroll 4
      for (int w = 0; w < kWords; ++w) inner[j][w] = dot::splat(0.0f);
    for (int g = 0; g < 4; ++g) {
      fetch_ahead<kBlockBytes / 4>(block + g * (kBlockBytes / 4));
      const Index index = load_index(block + g * kCodes);
#pragma GCC unroll 4
      for (int j = 0; j < T; ++j) add_group(index, a.x, (t + j) * groups + at + g, inner[j]);
    }
    const auto* d = reinterpret_cast<const uint16_t*>(block + 4 * kCodes);
#pragma GCC unroll 4
    for (int w = 0; w < kWords; ++w) {
      const dot::Floats scale = dot::load_halves(d + w * dot::kRows);
#pragma GCC unroll 4
      for (int j = 0; j < T; ++j) row[j][w] = dot::fma(scale, inner[j][w], row[j][w]);
    }
  }
  for (int j = 0; j < T; ++j)
    for (int w = 0; w < kWords && r + w * dot::kRows < a.last; ++w)
      store_rows(a, t + j, r + w * dot::kRows, row[j][w]);
}

void linear_1bit(const LinearArgs& a) {
  const int64_t end = a.last_token;
  for (int64_t r = a.first; r < a.last; r += kTileRows) {
    const uint8_t* tile = a.weight + r / kTileRows * a.tile_bytes;
    int64_t t = a.first_token;
    for (; t + 2 <= end; t += 2) tile_tokens<2>(a, tile, r, t);
    if (t < end) tile_tokens<1>(a, tile, r, t);
  }
}

}  // namespace

void fill_linear_1bit(KernelTable& table) {
  table.linear[static_cast<int>(quant::QuantType::kQ1_0)] = {&linear_1bit, kTileRows,
                                                             TileForm::kWordRows};
}

}  // namespace oxibonsai::cpu::avx512vbmi
