// exp, tanh and erf of docs/arithmetic.md, rule 3: the operations of csrc/cpu/body/math.h, in their
// order.

INLINE float power_of_two(int32_t n) { return bits_to_float(uint32_t(n + 127) << 23); }

struct ReducedExp {
  float value;  // e^r
  int32_t power;
};

INLINE ReducedExp reduced_exp(float x) {
  const float n = round_even(x * 1.44269504088896341f);
  float r = fused(n, -0.693145751953125f, x);
  r = fused(n, -1.428606765330187045e-06f, r);
  float p = 1.3820689637e-3f;
  p = fused(p, r, 8.3686755970e-3f);
  p = fused(p, r, 4.1668266058e-2f);
  p = fused(p, r, 1.66665211320e-1f);
  p = fused(p, r, 4.99999940395e-1f);
  p = fused(p, r, 1.0f);
  p = fused(p, r, 1.0f);
  ReducedExp result;
  result.value = p;
  result.power = int32_t(n);
  return result;
}

// e^x within -87 and the end of float32's range; NaN gives +inf.
INLINE float bounded_exp(float x) {
  const ReducedExp e = reduced_exp(larger(smaller(x, 89.0f), -87.0f));
  const int32_t half_power = e.power >> 1;
  return e.value * power_of_two(half_power) * power_of_two(e.power - half_power);
}

// +0 below -87.
INLINE float exp_of(float x) { return x < -87.0f ? 0.0f : bounded_exp(x); }

// A weight of attention: exp of x <= 0, +0 below -41.
INLINE float weight_of(float x) {
  const ReducedExp e = reduced_exp(larger(smaller(x, 89.0f), -41.0f));
  return x < -41.0f ? 0.0f : e.value * power_of_two(e.power);
}

INLINE float tanh_of(float x) {
  const float a = magnitude(x);
  const float big = 1.0f - quotient(2.0f, bounded_exp(a + a) + 1.0f);
  const float s = x * x;
  float p = -6.2428489327e-3f;
  p = fused(p, s, 2.1050713956e-2f);
  p = fused(p, s, -5.3847547621e-2f);
  p = fused(p, s, 1.33325442672e-1f);
  p = fused(p, s, -3.33333164453e-1f);
  const float small = fused(p * s, x, x);
  const float signed_big = x < 0.0f ? 0.0f - big : big;
  return a < 0.55f ? small : signed_big;
}

INLINE float erf_of(float x) {
  const float a = smaller(magnitude(x), 4.0f);
  float q = -2.010060707e-04f;
  q = fused(q, a, 3.092375817e-03f);
  q = fused(q, a, -2.242050320e-02f);
  q = fused(q, a, 1.043280065e-01f);
  q = fused(q, a, 6.367367506e-01f);
  q = fused(q, a, 1.127936363e+00f);
  q = fused(q, a, 1.335278939e-04f);
  const float big = 1.0f - bounded_exp(0.0f - q);
  const float s = x * x;
  float p = 7.842241757e-05f;
  p = fused(p, s, -8.021723479e-04f);
  p = fused(p, s, 5.190635566e-03f);
  p = fused(p, s, -2.685528249e-02f);
  p = fused(p, s, 1.128362194e-01f);
  p = fused(p, s, -3.761262894e-01f);
  p = fused(p, s, 1.283791661e-01f);
  const float small = fused(p, x, x);
  const float signed_big = x < 0.0f ? 0.0f - big : big;
  return a < 0.875f ? small : signed_big;
}

// ln(1 + e^x).
INLINE float softplus_of(float x) {
  const float u = exp_of(0.0f - magnitude(x));
  float p = 2.030239441e-03f;
  p = fused(p, u, -1.340752095e-02f);
  p = fused(p, u, 4.147820920e-02f);
  p = fused(p, u, -8.244173229e-02f);
  p = fused(p, u, 1.241843477e-01f);
  p = fused(p, u, -1.610569060e-01f);
  p = fused(p, u, 1.989074796e-01f);
  p = fused(p, u, -2.498727143e-01f);
  p = fused(p, u, 3.333255947e-01f);
  p = fused(p, u, -4.999998212e-01f);
  return larger(x, 0.0f) + fused(p * u, u, u);
}

INLINE float times_sigmoid(float x, float t) { return quotient(x, 1.0f + bounded_exp(0.0f - t)); }

INLINE float sigmoid_of(float x) { return quotient(1.0f, 1.0f + bounded_exp(0.0f - x)); }

// A Function of one number.
INLINE float activation_of(uint32_t function, float x) {
  if (function == kSilu) return times_sigmoid(x, x);
  if (function == kGelu) return (x * 0.5f) * (1.0f + erf_of(x * 0.70710678118654752f));
  if (function == kGeluTanh) {
    const float cubic = fused(x * x * x, 0.044715f, x);
    return times_sigmoid(x, cubic * 1.5957691216057308f);
  }
  if (function == kRelu) return larger(x, 0.0f);
  if (function == kRelu2) {
    const float positive = larger(x, 0.0f);
    return positive * positive;
  }
  return function == kSigmoid ? sigmoid_of(x) : x;
}

// act(gate) * up, which kSwigluOai makes of both.
INLINE float gated_of(uint32_t function, float gate, float up) {
  if (function != kSwigluOai) return activation_of(function, gate) * up;
  const float below = smaller(gate, 7.0f);
  const float clamped = larger(smaller(up, 7.0f), -7.0f);
  return times_sigmoid(below, below * 1.702f) * (clamped + 1.0f);
}
