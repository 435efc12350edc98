// Attention over a part: every tier, byte for byte, against the text of its definition, also where
// subnormal numbers are flushed; and against a plain softmax in double. Positions that nobody wrote
// hold NaN: they must not matter.

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/f16.h"
#include "base/fp8.h"
#include "check.h"
#include "cpu/dispatch.h"
#include "cpu/kv_layout.h"
#include "flush.h"

using namespace oxibonsai;
using cpu::kPagePositions;
using cpu::KvType;

namespace {

constexpr int kPages = 8;

// Values of another width than keys, or that lie in the keys.
struct Case {
  int key_dim, queries, first, last;
  KvType type;
  float softcap;
  int value_dim;
  bool value_in_key = false;
  float slope = 0.0f;  // of linear biases: that of the first query
  int reach = 0;       // of a bias by position; 0: there is none
};

struct Cache {
  cpu::KvLayout layout;
  std::vector<std::vector<uint8_t>> keys, values;  // per page
  std::vector<float> key_floats, value_floats;     // [position, dims], as the cache holds them
};

// A code of a page times its scale, or the float that stands there. `row` and `at` of the codes:
// [d, position] for keys, [position, d] for values.
float key_in(const cpu::KvLayout& l, const std::vector<uint8_t>& keys, int position, int d) {
  const auto at = static_cast<size_t>(d * kPagePositions + position);
  float f;
  uint16_t half;
  if (l.type == KvType::kF32) return std::memcpy(&f, &keys[4 * at], 4), f;
  if (l.type == KvType::kF16) return std::memcpy(&half, &keys[2 * at], 2), half_to_float(half);
  if (l.type == KvType::kFp8) return fp8_to_float(keys[at]);
  std::memcpy(&half, &keys[l.key_scales + 2 * (d / 32 * kPagePositions + position)], 2);
  if (l.type == KvType::kQ8_0) return half_to_float(half) * static_cast<int8_t>(keys[at]);
  const uint8_t pair = keys[d / 2 * kPagePositions + position];
  return half_to_float(half) * static_cast<float>((d % 2 == 0 ? pair & 15 : pair >> 4) - 8);
}

float value_in(const cpu::KvLayout& l, const std::vector<uint8_t>& values, int position, int d) {
  const auto row = static_cast<size_t>(position * l.value_row);
  float f;
  uint16_t half;
  if (l.type == KvType::kF32) return std::memcpy(&f, &values[row + 4 * d], 4), f;
  if (l.type == KvType::kF16)
    return std::memcpy(&half, &values[row + 2 * d], 2), half_to_float(half);
  if (l.type == KvType::kFp8) return fp8_to_float(values[row + d]);
  std::memcpy(&half, &values[l.value_scales + 2 * (d / 32 * kPagePositions + position)], 2);
  if (l.type == KvType::kQ8_0) return half_to_float(half) * static_cast<int8_t>(values[row + d]);
  const uint8_t pair = values[row + d / 32 * 16 + d % 16];
  return half_to_float(half) * static_cast<float>((d % 32 < 16 ? pair & 15 : pair >> 4) - 8);
}

// Writes positions first .. last - 1 of keys and values [position, head_dim].
Cache write_cache(const Case& c, KvType type, const std::vector<float>& keys,
                  const std::vector<float>& values) {
  Cache cache;
  cache.layout = cpu::kv_layout(type, {1, c.key_dim, c.value_dim, c.value_in_key});
  cache.key_floats.assign(keys.size(), 0.0f);
  cache.value_floats.assign(values.size(), 0.0f);
  for (int page = 0; page < kPages; ++page) {
    std::vector<uint8_t> k(static_cast<size_t>(cache.layout.key_bytes), 0xFF);
    std::vector<uint8_t> v(static_cast<size_t>(cache.layout.value_bytes), 0xFF);  // all NaN
    for (int in_page = 0; in_page < kPagePositions; ++in_page) {
      const int position = page * kPagePositions + in_page;
      if (position < c.first || position >= c.last) continue;
      const auto key = static_cast<size_t>(position * c.key_dim);
      const auto value = static_cast<size_t>(position * c.value_dim);
      cpu::write_kv_position(cpu::table("scalar"), cache.layout, in_page, &keys[key],
                             c.value_in_key ? nullptr : &values[value], k.data(), v.data());
      for (int d = 0; d < c.key_dim; ++d)
        cache.key_floats[key + static_cast<size_t>(d)] = key_in(cache.layout, k, in_page, d);
      for (int d = 0; d < c.value_dim; ++d)
        cache.value_floats[value + static_cast<size_t>(d)] =
            c.value_in_key ? key_in(cache.layout, k, in_page, d)
                           : value_in(cache.layout, v, in_page, d);
    }
    cache.keys.push_back(std::move(k));
    cache.values.push_back(std::move(v));
  }
  return cache;
}

Cache make_cache(std::mt19937& random, const Case& c) {
  const auto positions = static_cast<size_t>(kPages * kPagePositions);
  return write_cache(c, c.type, test::normal(random, positions * static_cast<size_t>(c.key_dim)),
                     test::normal(random, positions * static_cast<size_t>(c.value_dim)));
}

// What query i sees: neighbouring positions with a window, the last of which may see nothing here.
std::pair<int, int> range(const Case& c, int i) {
  return {c.first + i / 2, std::max(c.last - i, 0)};
}

float slope_of(const Case& c, int i) { return c.slope / static_cast<float>(i + 1); }

// A bias by position, of a query.
float position_bias_of(const Case& c, int i, int distance) {
  if (c.reach == 0) return 0.0f;
  const int within = std::clamp(distance, -c.reach, c.reach);
  return 0.3f * static_cast<float>((within * 7 + i * 3) % 11);
}

// Half of the queries look ahead, as in an encoder: the position of each among those that it sees.
int position_of(const Case& c, int i) {
  const auto [first, last] = range(c, i);
  return c.reach > 0 && i % 2 == 0 ? (first + last) / 2 : last - 1;
}

std::vector<float> attend(const cpu::KernelTable& t, const Case& c, const Cache& cache,
                          const std::vector<float>& q) {
  const int stride = cache.layout.value_stride;
  std::vector<float> out(static_cast<size_t>(c.queries * (stride + 2)));
  std::vector<const uint8_t*> keys, values;
  for (const auto& k : cache.keys) keys.push_back(k.data());
  for (const auto& v : c.value_in_key ? cache.keys : cache.values) values.push_back(v.data());
  cpu::AttendArgs a{};
  std::vector<std::vector<float>> biases(static_cast<size_t>(c.queries));
  for (int i = 0; i < c.queries; ++i) {
    a.q[i] = q.data() + i * c.key_dim;
    std::tie(a.first[i], a.last[i]) = range(c, i);
    a.slope[i] = slope_of(c, i);
    a.at[i] = position_of(c, i);
    std::vector<float>& bias = biases[static_cast<size_t>(i)];
    for (int d = -c.reach; d <= c.reach; ++d) bias.push_back(position_bias_of(c, i, d));
    if (c.reach > 0) a.position_bias[i] = bias.data() + c.reach;
  }
  a.reach = c.reach;
  a.queries = c.queries;
  a.kv = cache.layout;
  a.keys = keys.data();
  a.values = values.data();
  a.softcap = c.softcap;
  a.biased = c.slope != 0.0f;
  a.max = out.data() + c.queries * stride;
  a.sum = a.max + c.queries;
  a.out = out.data();
  t.attend(a);
  return out;
}

// e^x of rule 3, but +0 below -41.
float weight(float x) {
  if (x < -41.0f) return 0.0f;
  float y;
  cpu::table("scalar").exp(&x, 1, &y);
  return y;
}

// What has been summed of the keys of a tile or a part.
struct Sums {
  float max = -std::numeric_limits<float>::infinity(), sum = 0.0f;
  std::vector<float> out;
};

void merge(Sums* sums, const Sums& more) {
  const float max = std::max(sums->max, more.max);
  const float old = weight(sums->max - max);
  const float added = weight(more.max - max);
  sums->sum = std::fma(sums->sum, old, more.sum * added);
  for (size_t d = 0; d < sums->out.size(); ++d) {
    const float scaled = more.out[d] * added;
    const float v = std::fma(sums->out[d], old, scaled);
    sums->out[d] = std::fabs(v) < 0x1p-60f ? 0.0f : v;
  }
  sums->max = max;
}

// Keys first .. last - 1 of the tile that begins at position `begin`.
Sums plain_tile(const Case& c, const Cache& cache, const float* q, int query, int begin, int first,
                int last) {
  const auto dims = static_cast<size_t>(c.key_dim);
  const auto value_dims = static_cast<size_t>(c.value_dim);
  Sums sums;
  sums.out.assign(value_dims, 0.0f);
  std::vector<float> score;
  for (int p = first; p < last; ++p) {
    float s = 0.0f;
    for (size_t d = 0; d < dims; ++d) s = std::fma(q[d], cache.key_floats[p * dims + d], s);
    if (c.softcap > 0.0f) {
      s = s / c.softcap;
      cpu::table("scalar").tanh(&s, 1, &s);
      s = c.softcap * s;
    }
    const int distance = p - position_of(c, query);
    if (c.slope != 0.0f)
      s = std::fma(slope_of(c, query), -std::fabs(static_cast<float>(distance)), s);
    if (c.reach > 0) s = s + position_bias_of(c, query, distance);
    score.push_back(s);
    sums.max = std::max(sums.max, s);
  }
  float lane[16] = {};
  for (int p = first; p < last; ++p) {
    const float w = weight(score[static_cast<size_t>(p - first)] - sums.max);
    lane[(p - begin) % 16] += w;
    for (size_t d = 0; d < value_dims; ++d)
      sums.out[d] = std::fma(w, cache.value_floats[p * value_dims + d], sums.out[d]);
  }
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  sums.sum = lane[0];
  return sums;
}

// docs/arithmetic.md, rule 5, in plain words.
void check_definition(const Case& c, const Cache& cache, const std::vector<float>& q,
                      const std::vector<float>& out, const std::string& context) {
  const int stride = cache.layout.value_stride;
  for (int i = 0; i < c.queries; ++i) {
    const auto [first, last] = range(c, i);
    if (first >= last) continue;
    Sums part;
    part.out.assign(static_cast<size_t>(c.value_dim), 0.0f);
    for (int begin = first / 64 * 64; begin < last; begin += 64)
      merge(&part, plain_tile(c, cache, q.data() + i * c.key_dim, i, begin, std::max(first, begin),
                              std::min(last, begin + 64)));
    CHECK(std::memcmp(part.out.data(), &out[i * stride], part.out.size() * 4) == 0, context);
    CHECK(part.max == out[c.queries * stride + i], context);
    CHECK(part.sum == out[c.queries * (stride + 1) + i], context);
  }
}

void check_against_double(const Case& c, const Cache& cache, const std::vector<float>& q,
                          const std::vector<float>& out) {
  const int stride = cache.layout.value_stride;
  for (int i = 0; i < c.queries; ++i) {
    const auto [first, last] = range(c, i);
    if (first >= last) {
      CHECK(out[c.queries * (stride + 1) + i] == 0.0f, "the sum is 0 where nothing is seen");
      continue;
    }
    std::vector<double> score;
    double max = -1e300, sum = 0.0;
    for (int p = first; p < last; ++p) {
      double s = 0.0;
      for (int d = 0; d < c.key_dim; ++d)
        s += static_cast<double>(q[i * c.key_dim + d]) * cache.key_floats[p * c.key_dim + d];
      if (c.softcap > 0.0f) s = c.softcap * std::tanh(s / c.softcap);
      s -= static_cast<double>(slope_of(c, i)) * std::abs(p - position_of(c, i));
      s += position_bias_of(c, i, p - position_of(c, i));
      score.push_back(s);
      max = std::max(max, s);
    }
    for (const double s : score) sum += std::exp(s - max);
    for (int d = 0; d < c.value_dim; ++d) {
      double value = 0.0;
      for (int p = first; p < last; ++p)
        value += std::exp(score[p - first] - max) / sum * cache.value_floats[p * c.value_dim + d];
      const double got = out[i * stride + d] / out[c.queries * (stride + 1) + i];
      CHECK(std::fabs(got - value) < 2e-4, "attention against double");
    }
  }
}

std::string describe(const Case& c) {
  return std::string(cpu::kKvTypeNames[static_cast<size_t>(c.type)]) + " key_dim " +
         std::to_string(c.key_dim) + " value_dim " + std::to_string(c.value_dim) +
         (c.value_in_key ? " in key" : "") + " queries " + std::to_string(c.queries) + " first " +
         std::to_string(c.first) + " last " + std::to_string(c.last);
}

// Scores far apart, and small values: weights and their products would be subnormal.
void check_flushed(std::mt19937& random, const Case& c) {
  const auto positions = static_cast<size_t>(kPages * kPagePositions);
  auto values = test::normal(random, positions * static_cast<size_t>(c.value_dim));
  for (float& v : values) {
    // An f32 cache of values that two factors from 2^-60 on could make subnormal is left out.
    const int most = c.type == KvType::kF32 ? 20 : 40;
    v = std::ldexp(v, -static_cast<int>(random() % static_cast<uint32_t>(most)));
    if (random() % 4 == 0 || std::fabs(v) < 0x1p-22f) v = 0.0f;
  }
  const Cache cache = write_cache(
      c, c.type, test::normal(random, positions * static_cast<size_t>(c.key_dim)), values);
  const auto q = test::normal(random, static_cast<size_t>(c.queries * c.key_dim),
                              40.0f / std::sqrt(static_cast<float>(c.key_dim)));
  const auto truth = attend(cpu::table("scalar"), c, cache, q);
  check_definition(c, cache, q, truth, describe(c) + ", scores far apart");
  for (const std::string& tier : cpu::available_tiers()) {
    const auto out = test::flushed([&] { return attend(cpu::table(tier), c, cache, q); });
    CHECK(test::same_bytes(out, truth), tier + " " + describe(c) + ", flushed");
  }
}

void compare(std::mt19937& random, const Case& c) {
  const Cache cache = make_cache(random, c);
  const auto q = test::normal(random, static_cast<size_t>(c.queries * c.key_dim),
                              1.0f / std::sqrt(static_cast<float>(c.key_dim)));
  const auto truth = attend(cpu::table("scalar"), c, cache, q);
  check_definition(c, cache, q, truth, describe(c));
  check_against_double(c, cache, q, truth);
  // A type changes what is kept, and nothing else.
  const Cache floats = write_cache(c, KvType::kF32, cache.key_floats, cache.value_floats);
  CHECK(test::same_bytes(attend(cpu::table("scalar"), c, floats, q), truth),
        std::string(cpu::kKvTypeNames[static_cast<size_t>(c.type)]) + " against f32");
  for (const std::string& tier : cpu::available_tiers()) {
    const auto out = attend(cpu::table(tier), c, cache, q);
    CHECK(test::same_bytes(out, truth), tier + " " + describe(c));
    // A query's result does not depend on how many came with it.
    Case one = c;
    one.queries = 1;
    const auto alone = attend(cpu::table(tier), one, cache, q);
    CHECK(std::memcmp(alone.data(), out.data(), static_cast<size_t>(c.value_dim) * 4) == 0,
          tier + " alone against with others");
  }
}

// The rounding against its text, in double, and tier against tier, flushed or not.
void check_rounding(KvType type, const std::vector<float>& x) {
  const auto groups = (x.size() + 31) / 32;
  std::vector<int8_t> codes(32 * groups);
  std::vector<uint16_t> scales(groups);
  const std::string name = cpu::kKvTypeNames[static_cast<size_t>(type)];
  const auto n = static_cast<int>(x.size());
  cpu::table("scalar").round_kv(type, x.data(), n, codes.data(), scales.data());
  for (const std::string& tier : cpu::available_tiers()) {
    std::vector<int8_t> more(32 * groups, 99);
    std::vector<uint16_t> other(groups);
    cpu::table(tier).round_kv(type, x.data(), n, more.data(), other.data());
    CHECK(test::same_bytes(more, codes) && test::same_bytes(other, scales), tier + " " + name);
    test::flushed(
        [&] { return cpu::table(tier).round_kv(type, x.data(), n, more.data(), other.data()), 0; });
    CHECK(test::same_bytes(more, codes) && test::same_bytes(other, scales), tier + " flushed");
  }
  for (size_t i = 0; i < codes.size(); ++i) {
    const float scale = half_to_float(scales[i / 32]);
    const float v = i < x.size() ? x[i] : 0.0f;
    float high = 0.0f, low = 0.0f;
    for (size_t j = i / 32 * 32; j < std::min(x.size(), i / 32 * 32 + 32); ++j) {
      high = std::max(high, x[j]);
      low = std::min(low, x[j]);
    }
    const float peak = -low > high ? low : high;
    const bool wide = type == KvType::kQ8_0;
    CHECK(scales[i / 32] == float_to_half(wide ? std::fabs(peak) / 127.0f : peak / -8.0f), name);
    const float code = scale == 0.0f ? 0.0f : std::nearbyint(v * (1.0f / scale));
    const float bounded = wide ? std::clamp(code, -127.0f, 127.0f) : std::clamp(code, -8.0f, 7.0f);
    CHECK(codes[i] == bounded, name + " code");
  }
}

void check_merge(std::mt19937& random) {
  for (const int n : {16, 64, 128}) {
    const auto first = test::normal(random, static_cast<size_t>(n));
    const auto second = test::normal(random, static_cast<size_t>(n));
    std::vector<float> truth;
    for (const std::string& tier : cpu::available_tiers()) {
      std::vector<float> out = first;
      float max = 1.5f, sum = 3.0f;
      cpu::table(tier).merge_parts(&max, &sum, out.data(), 2.25f, 4.0f, second.data(), n);
      out.push_back(max);
      out.push_back(sum);
      if (truth.empty()) {
        Sums sums{1.5f, 3.0f, first};
        merge(&sums, {2.25f, 4.0f, second});
        truth = sums.out;
        truth.push_back(sums.max);
        truth.push_back(sums.sum);
      }
      CHECK(test::same_bytes(out, truth), tier + " merge_parts");
      CHECK(max == 2.25f && std::fabs(sum - (3.0 * std::exp(-0.75) + 4.0)) < 1e-5, "merged value");
    }
  }
}

}  // namespace

int main() {
  std::mt19937 random(3);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0, KvType::kQ4_0, KvType::kFp8})
    for (const int dim : {1, 16, 17, 20, 33, 48, 64, 72, 80, 128, 256})
      for (int queries = 1; queries <= cpu::kMaxQueries; ++queries) {
        // Each number of queries with whole vectors and with a rest of one.
        if (dim != 64 && dim != 33 && queries != 1 && queries != cpu::kMaxQueries) continue;
        compare(random, {dim, queries, 0, 1, type, 0.0f, dim});
        compare(random, {dim, queries, 0, 77, type, 0.0f, dim});
        compare(random, {dim, queries, 70, 200, type, 5.0f, dim});
        if (dim == 64) compare(random, {dim, queries, 0, 512, type, 0.0f, dim});
        if (dim == 64) compare(random, {dim, queries, 70, 200, type, 5.0f, dim, false, 0.25f});
        if (dim == 64) compare(random, {dim, queries, 70, 200, type, 5.0f, dim, false, 0.25f, 9});
        if (dim % 16 == 0) check_flushed(random, {dim, queries, 3, 512, type, 0.0f, dim});
      }
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0, KvType::kQ4_0, KvType::kFp8})
    for (const auto& [key, value, in_key] : {std::tuple{48, 32, false},
                                             {33, 80, false},
                                             {1, 64, false},
                                             {128, 17, false},
                                             {576, 512, true},
                                             {48, 32, true},
                                             {40, 40, true},
                                             {35, 33, true},
                                             {20, 7, true}})
      for (const int queries : {1, 3, cpu::kMaxQueries}) {
        compare(random, {key, queries, 0, 77, type, 0.0f, value, in_key});
        compare(random, {key, queries, 70, 200, type, 5.0f, value, in_key});
        if (!in_key) check_flushed(random, {key, queries, 3, 512, type, 0.0f, value});
      }
  for (const KvType type : {KvType::kQ8_0, KvType::kQ4_0}) {
    for (const size_t n : {1, 16, 17, 32, 64, 80, 129})
      for (const float size : {1.0f, 1e-6f, 1e-17f})
        check_rounding(type, test::normal(random, n, size));
    check_rounding(type, std::vector<float>(64, 0.0f));
    check_rounding(type, {1.0f, -2.0f, 2.0f, 0.5f});      // the positive of two peaks
    check_rounding(type, std::vector<float>(32, 1e-6f));  // below the smallest scale, or near it
  }
  check_merge(random);
  return test::finish("attention");
}
