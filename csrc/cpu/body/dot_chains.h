// Tiles against tokens for tiers whose dot product widens to int32 by itself. Include in a tier's
// dot.h after its dot_quads.

namespace {
namespace dot {

// Adds the dot products of N tiles, of which `codes` gives quad q of tile n, eight each, with the
// activations of U tokens, `stride` bytes apart; the chains are interleaved.
template <int kMaxCode, int N, int U, class CodesOf, class StartOf>
inline void dot_tiles(const CodesOf& codes, const StartOf& start, const int8_t* x, int64_t stride,
                      Sums (&sums)[N][U]) {
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sums[n][u] = start(u);
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q)
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u)
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const Codes code = codes(n, q);
        sums[n][u] = dot_quads<kMaxCode, 1, false>(&code, x + u * stride + 4 * q, sums[n][u]);
      }
}

}  // namespace dot
}  // namespace
