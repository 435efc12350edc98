// Quotients and square roots rounded to nearest even whatever the compiler's own are worth. Who
// includes this defines near_quotient() and near_root() before, which may be some units off, for
// normal numbers of 24 bits. Each result is that integer of 25 bits, one more than a float has,
// whose remainder says that it is right.

// Where an operand is zero, subnormal, infinite or no number, or the result is below the normal
// numbers: near_quotient(), of which no subnormal may decide a byte (docs/arithmetic.md).
INLINE float quotient(float a, float b) {
  const uint32_t a_bits = float_to_bits(a), b_bits = float_to_bits(b);
  const uint32_t a_power = a_bits >> 23 & 255u, b_power = b_bits >> 23 & 255u;
  if (a_power - 1u > 253u || b_power - 1u > 253u) return near_quotient(a, b);
  const uint32_t m = (a_bits & 0x7FFFFFu) | 0x800000u, n = (b_bits & 0x7FFFFFu) | 0x800000u;
  const uint32_t shift = m < n ? 25u : 24u;  // m * 2^shift / n lies within 2^24 .. 2^25
  const int32_t power = int32_t(a_power) - int32_t(b_power) + (m < n ? 126 : 127);
  if (power < 1) return near_quotient(a, b);
  uint32_t q = uint32_t(near_quotient(float(m), float(n)) * float(1u << shift));
  int64_t rest = (int64_t(m) << shift) - int64_t(q) * int64_t(n);
  for (; rest < 0; --q) rest = rest + n;
  for (; rest >= int64_t(n); ++q) rest = rest - n;
  const uint32_t sign = (a_bits ^ b_bits) & 0x80000000u;
  // The half between two floats is no quotient: q odd and nothing left, n would be a multiple of
  // 2^24. So the last bit rounds.
  const uint32_t bits = (uint32_t(power) << 23) + (q >> 1) - 0x800000u + (q & 1u);
  return bits_to_float(sign | (bits < 0x7F800000u ? bits : 0x7F800000u));
}

// near_root() of what is negative, zero, subnormal, infinite or no number.
INLINE float root(float v) {
  const uint32_t bits = float_to_bits(v), power = bits >> 23;
  if (power - 1u > 253u) return near_root(v);
  const uint32_t odd = power & 1u;  // the exponent, power - 127, is even then
  const uint32_t m = ((bits & 0x7FFFFFu) | 0x800000u) << (2u - odd);
  const int64_t square = int64_t(m) << 24;  // within 2^48 .. 2^50
  uint32_t s = uint32_t(near_root(float(m)) * 4096.0f);
  int64_t rest = square - int64_t(s) * int64_t(s);
  for (; rest < 0; --s) rest = rest + 2 * int64_t(s) - 1;
  for (; rest > 2 * int64_t(s); ++s) rest = rest - 2 * int64_t(s) - 1;
  // Nor is it a root: the square of an odd s has a last bit that `square` lacks.
  return bits_to_float(((power + 127u - (1u - odd)) / 2u << 23) + (s >> 1) - 0x800000u + (s & 1u));
}
