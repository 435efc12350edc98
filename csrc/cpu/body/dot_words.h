// Dot products of four bytes a lane without VNNI: vpmaddubsw sums two products in int16, as many of
// which are added as can't overflow, then vpmaddwd by ones widens. Full bytes (Q8_0) are taken as
// signed: their magnitude times the activation with their sign, 128 * 127 * 2 < 2^15. Include in a
// tier's dot.h after its `products`, `signed_products`, `add_words`, `keep_order` and `widen`.
//
// Budget for 32 weights of two tiles and four tokens: 64 vpmaddubsw, 56 vpaddw, 32 broadcasts, 28
// to unpack, 32 for sums and scales. Two tiles share the broadcasts, of which a core loads two a
// cycle; against one tile token by token this gained a quarter (bench/lab/README.md).

namespace {
namespace dot {

// Quads whose products fit into int16 together.
template <int kMaxCode>
constexpr int kWordsThatFit = [] {
  constexpr int kFit = 32767 / (kMaxCode * 2 * 127);
  return kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
}();

// start + sum over kQuads quads of codes times activations.
template <int kMaxCode, int kQuads, bool kSplit>
inline Sums dot_quads(const Codes* w, const int8_t* x, Sums start) {
  if constexpr (kMaxCode == 255) {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q)
      start = sum_add(start, widen(signed_products(w[q], quad_splat(x + 4 * q))));
  } else {
    constexpr int kFit = kWordsThatFit<kMaxCode>;
    constexpr int kRun = kFit < kQuads ? kFit : kQuads;
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; q += kRun) {
      Codes words = products(w[q], quad_splat(x + 4 * q));
#pragma GCC unroll 8
      for (int i = 1; i < kRun; ++i)
        words = add_words(words, products(w[q + i], quad_splat(x + 4 * (q + i))));
      start = sum_add(start, widen(words));
    }
  }
  return start;
}

// Adds the dot products of N tiles, of which `codes` gives quad q of tile n, eight each, with the
// activations of U tokens, `stride` bytes apart. Quad by quad, so that a broadcast serves all tiles
// and the int16 sums stay in registers; left to itself, gcc adds all products at the end, out of
// memory.
template <int kMaxCode, int N, int U, class CodesOf, class StartOf>
inline void dot_tiles(const CodesOf& codes, const StartOf& start, const int8_t* x, int64_t stride,
                      Sums (&sums)[N][U]) {
  constexpr int kRun = kWordsThatFit<kMaxCode>;
  Codes words[N][U];
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    Codes code[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) code[n] = codes(n, q);
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      const Codes four = quad_splat(x + u * stride + 4 * q);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const Codes two = products(code[n], four);
        words[n][u] = keep_order(q % kRun == 0 ? two : add_words(words[n][u], two));
        if (q % kRun == kRun - 1)
          sums[n][u] = sum_add(q < kRun ? start(u) : sums[n][u], widen(words[n][u]));
      }
    }
  }
}

}  // namespace dot
}  // namespace
