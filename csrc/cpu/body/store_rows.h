// The end of a linear kernel: one vector of finished rows of one token. Include after a tier's
// lanes.h or dot.h.

#include <cstdint>

#include "cpu/kernel_table.h"

namespace {

// The first rows of a vector, up to the last row. One copy for all kernels of a file: inlined into
// the store of each token, its loop took half of the time to compile them.
__attribute__((noinline)) void store_last_rows(const oxibonsai::cpu::LinearArgs& a, int64_t t,
                                               int64_t r, const float* rows) {
  float* y = a.y + t * a.stride + r;
  for (int i = 0; r + i < a.last; ++i) {
    float v = rows[i];
    if (a.bias != nullptr) v = v + a.bias[r + i];
    if (a.add != nullptr) v = v + a.add[t * a.stride + r + i];
    y[i] = __builtin_fabsf(v) < oxibonsai::cpu::kTiny ? 0.0f : v;
  }
}

// Rows r .. r + lanes - 1 of token t, plus bias and sum; rows past the last are dropped.
inline void store_rows(const oxibonsai::cpu::LinearArgs& a, int64_t t, int64_t r,
                       dot::Floats value) {
  using namespace dot;
  float* y = a.y + t * a.stride + r;
  if (r + kRows <= a.last) {
    if (a.bias != nullptr) value = add(value, load_floats(a.bias + r));
    if (a.add != nullptr) value = add(value, load_floats(a.add + t * a.stride + r));
    store_floats(y, flush_below(value, oxibonsai::cpu::kTiny));
    return;
  }
  float rows[kRows];
  store_floats(rows, value);
  store_last_rows(a, t, r, rows);
}

}  // namespace
