// exp, tanh and erf over 16 lanes (docs/arithmetic.md, rule 3): adds, multiplies, fmas and integer
// operations alone, so that every tier gives the same bits. Include after a tier's simd.h.
//
// Largest errors, over a dense sweep of float32 (tests/native/test_math.cc): exp 0.85 ulp, tanh 1.4
// ulp, erf 0.97 ulp.

namespace {

// e^x = 2^n * e^r with n = round(x / ln 2) and |r| <= ln(2) / 2; ln 2 is split in two so that r is
// exact to about 2^-33. The polynomial is the minimax one of degree 6 for e^r on that range.
// Past the ends of the float32 range the result is +inf and +0; NaN gives +inf, since the bounds
// are taken by comparison.
inline simd::Vec exp16(simd::Vec x) {
  using namespace simd;
  x = min(x, splat(89.0f));    // e^89 overflows
  x = max(x, splat(-104.0f));  // e^-104 rounds to zero
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
  // Two factors, since 2^n alone leaves the range of normal numbers.
  const Int whole = to_int(n);
  const Int half = half_of(whole);
  return mul(mul(p, pow2(half)), pow2(isub(whole, half)));
}

// For |x| < 0.55 an odd polynomial, else 1 - 2 / (e^2|x| + 1) with the sign of x.
inline simd::Vec tanh16(simd::Vec x) {
  using namespace simd;
  const Vec one = splat(1.0f);
  const Vec a = abs(x);
  const Vec big = sub(one, div(splat(2.0f), add(exp16(add(a, a)), one)));
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
  const Vec big = sub(splat(1.0f), exp16(sub(zero(), q)));
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

}  // namespace
