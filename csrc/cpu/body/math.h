// exp, tanh, erf and softplus over 16 lanes (docs/arithmetic.md, rule 3): adds, multiplies, fmas
// and integer operations alone, so that every tier gives the same bits. Include after a tier's
// simd.h.
//
// Largest errors, over a dense sweep of float32 (tests/native/test_math.cc): exp 0.85 ulp, tanh 1.4
// ulp, erf 0.97 ulp.

namespace {

// Results of exp below e^-87 would come near the subnormal numbers.
constexpr float kLowestExp = -87.0f;

// e^x = 2^n * e^r with n = round(x / ln 2) and |r| <= ln(2) / 2; ln 2 is split in two so that r is
// exact to about 2^-33. The polynomial is the minimax one of degree 6 for e^r on that range.
// Returns e^r, and n.
inline simd::Vec reduced_exp(simd::Vec x, simd::Int* power) {
  using namespace simd;
  const Vec n = round_even(mul(x, splat(1.44269504088896341f)));
  Vec r = fma(n, splat(-0.693145751953125f), x);
  r = fma(n, splat(-1.428606765330187045e-06f), r);
  Vec p = splat(1.3820689637e-3f);
  p = fma(p, r, splat(8.3686755970e-3f));
  p = fma(p, r, splat(4.1668266058e-2f));
  p = fma(p, r, splat(1.66665211320e-1f));
  p = fma(p, r, splat(4.99999940395e-1f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  *power = to_int(n);
  return p;
}

// e^x within -87 and the end of the range of float32, past which it is that of -87 and +inf; NaN
// gives +inf, since the bounds are taken by comparison.
inline simd::Vec bounded_exp(simd::Vec x) {
  using namespace simd;
  Int power;
  const Vec p = reduced_exp(max(min(x, splat(89.0f)), splat(kLowestExp)), &power);
  // Two factors, since e^r may lie below 1 where 2^n alone is out of range.
  const Int half = half_of(power);
  return mul(mul(p, pow2(half)), pow2(isub(power, half)));
}

// +0 below -87. What adds 1 to e^x takes bounded_exp, with the same result.
inline simd::Vec exp16(simd::Vec x) {
  using namespace simd;
  return select(less(x, splat(kLowestExp)), zero(), bounded_exp(x));
}

// exp16 of x <= 0, but +0 below kLowestWeight: a weight of attention. NaN gives +inf.
constexpr float kLowestWeight = -41.0f;

inline simd::Vec weight16(simd::Vec x) {
  using namespace simd;
  const Vec lowest = splat(kLowestWeight);
  Int power;
  const Vec p = reduced_exp(max(min(x, splat(89.0f)), lowest), &power);
  return select(less(x, lowest), zero(), mul(p, pow2(power)));  // pow2(128), of NaN, is +inf
}

// For |x| < 0.55 an odd polynomial, else 1 - 2 / (e^2|x| + 1) with the sign of x.
inline simd::Vec tanh16(simd::Vec x) {
  using namespace simd;
  const Vec one = splat(1.0f);
  const Vec a = abs(x);
  const Vec big = sub(one, div(splat(2.0f), add(bounded_exp(add(a, a)), one)));
  const Vec s = mul(x, x);
  Vec p = splat(-6.2428489327e-3f);
  p = fma(p, s, splat(2.1050713956e-2f));
  p = fma(p, s, splat(-5.3847547621e-2f));
  p = fma(p, s, splat(1.33325442672e-1f));
  p = fma(p, s, splat(-3.33333164453e-1f));
  const Vec small = fma(mul(p, s), x, x);
  const Vec signed_big = select(less(x, zero()), sub(zero(), big), big);
  return select(less(a, splat(0.55f)), small, signed_big);
}

// For |x| < 0.875 x + x * p(x^2), else 1 - e^-q(|x|) with the sign of x, q being -ln(1 - erf). Both
// polynomials are minimax ones in the relative error of erf, q's up to 4, past which erf rounds to
// 1. NaN gives 1, since the bound is taken by comparison.
inline simd::Vec erf16(simd::Vec x) {
  using namespace simd;
  const Vec a = min(abs(x), splat(4.0f));
  Vec q = splat(-2.010060707e-04f);
  q = fma(q, a, splat(3.092375817e-03f));
  q = fma(q, a, splat(-2.242050320e-02f));
  q = fma(q, a, splat(1.043280065e-01f));
  q = fma(q, a, splat(6.367367506e-01f));
  q = fma(q, a, splat(1.127936363e+00f));
  q = fma(q, a, splat(1.335278939e-04f));
  const Vec big = sub(splat(1.0f), bounded_exp(sub(zero(), q)));
  const Vec s = mul(x, x);
  Vec p = splat(7.842241757e-05f);
  p = fma(p, s, splat(-8.021723479e-04f));
  p = fma(p, s, splat(5.190635566e-03f));
  p = fma(p, s, splat(-2.685528249e-02f));
  p = fma(p, s, splat(1.128362194e-01f));
  p = fma(p, s, splat(-3.761262894e-01f));
  p = fma(p, s, splat(1.283791661e-01f));
  const Vec small = fma(p, x, x);
  const Vec signed_big = select(less(x, zero()), sub(zero(), big), big);
  return select(less(a, splat(0.875f)), small, signed_big);
}

// ln(1 + e^x) as max(x, 0) + ln(1 + u) with u = e^-|x|; the polynomial is the minimax one of degree
// 11 in the relative error of ln(1 + u) for u up to 1. Below -87 it is +0.
inline simd::Vec softplus16(simd::Vec x) {
  using namespace simd;
  const Vec u = exp16(sub(zero(), abs(x)));
  Vec p = splat(2.030239441e-03f);
  p = fma(p, u, splat(-1.340752095e-02f));
  p = fma(p, u, splat(4.147820920e-02f));
  p = fma(p, u, splat(-8.244173229e-02f));
  p = fma(p, u, splat(1.241843477e-01f));
  p = fma(p, u, splat(-1.610569060e-01f));
  p = fma(p, u, splat(1.989074796e-01f));
  p = fma(p, u, splat(-2.498727143e-01f));
  p = fma(p, u, splat(3.333255947e-01f));
  p = fma(p, u, splat(-4.999998212e-01f));
  return add(max(x, zero()), fma(mul(p, u), u, u));
}

// 1 / (1 + e^-x).
inline simd::Vec sigmoid16(simd::Vec x) {
  using namespace simd;
  return div(splat(1.0f), add(splat(1.0f), bounded_exp(sub(zero(), x))));
}

}  // namespace
