// Prefetch for kernels that read tiles as one stream.

#include <cstdint>

namespace {

// To the second-level cache, far ahead; the hardware brings lines from there to the first in time,
// if a kernel reads no more than two lines at once (cpu/avx512vbmi/linear_ternary.cc does).
// GB/s on Zen 4, one thread, weights in memory (it reads 33):
//   ahead        none   2 KiB    4 KiB    8 KiB   16 KiB
//   1 bit   L1   15.4    17.6     19.6     17.5     15.1
//           L2                    24.1     29.2     29.3
//   2 bits  L1   30.4    27.7     28.6     26.7     22.6
//           L2                    22.6     28.7     29.9
constexpr int kAhead = 12288;

// Fetches what lies `ahead` bytes on from the next kBytes bytes, in this tile or the next, to the
// second-level cache, or to the first past the second where kLocality is 0.
template <int kBytes, int kLocality = 2>
inline void fetch_ahead(const uint8_t* p, int64_t ahead = kAhead) {
#pragma GCC unroll 16
  for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(p + ahead + i, 0, kLocality);
}

}  // namespace
