#include <cstdint>
#include <cstring>

// Takes the place of that of Emscripten's libc, whose fesetround() does nothing here, so that it
// rounds a sum just below the middle of two floats up. The product is exact in a double; a sum that
// was rounded to such a middle is moved off it, to the side that the true one lies on.
extern "C" float fmaf(float x, float y, float c) {
  const double product = static_cast<double>(x) * y, z = c, sum = product + z;
  uint64_t bits;
  std::memcpy(&bits, &sum, sizeof bits);
  const bool is_middle = (bits & 0x1FFFFFFF) == 0x10000000;  // of the bits that a float lacks
  const bool is_finite = (bits >> 52 & 0x7FF) != 0x7FF;
  if (!is_middle || !is_finite || (sum - product == z && sum - z == product))
    return static_cast<float>(sum);
  const bool negative = bits >> 63 != 0;
  const double error = negative == (z > product) ? product - sum + z : z - sum + product;
  bits += negative == (error < 0) ? 1 : -1;
  double moved;
  std::memcpy(&moved, &bits, sizeof moved);
  return static_cast<float>(moved);
}
