// Attention over a part: every tier against scalar, byte for byte, and against a plain softmax in
// double. Slots that nobody wrote hold NaN: they must not matter.

#include <cmath>
#include <limits>
#include <tuple>

#include "base/f16.h"
#include "check.h"
#include "cpu/dispatch.h"

using namespace oxibonsai;
using cpu::kPageSlots;
using cpu::KvType;

namespace {

constexpr int kPages = 8;

struct Case {
  int head_dim, queries, first, last;
  KvType type;
  float softcap;
};

struct Cache {
  std::vector<std::vector<uint8_t>> keys, values;  // per page
  std::vector<float> key_floats, value_floats;     // [slot, head_dim], as the cache holds them
};

int stride_of(int head_dim) { return (head_dim + 15) / 16 * 16; }

void put(std::vector<uint8_t>& to, size_t index, KvType type, float value) {
  if (type == KvType::kF32) {
    std::memcpy(&to[4 * index], &value, 4);
  } else {
    const uint16_t half = float_to_half(value);
    std::memcpy(&to[2 * index], &half, 2);
  }
}

Cache make_cache(std::mt19937& random, const Case& c) {
  const size_t element = c.type == KvType::kF32 ? 4 : 2;
  const auto stride = static_cast<size_t>(stride_of(c.head_dim));
  const auto dim = static_cast<size_t>(c.head_dim);
  Cache cache;
  cache.key_floats = test::normal(random, dim * kPages * kPageSlots);
  cache.value_floats = test::normal(random, dim * kPages * kPageSlots);
  for (size_t page = 0; page < kPages; ++page) {
    std::vector<uint8_t> keys(element * dim * kPageSlots, 0xFF);
    std::vector<uint8_t> values(element * stride * kPageSlots, 0xFF);  // all NaN
    for (size_t slot = 0; slot < kPageSlots; ++slot) {
      const auto position = static_cast<int>(page * kPageSlots + slot);
      if (position < c.first || position >= c.last) continue;
      for (size_t d = 0; d < stride; ++d) {
        const size_t at = (page * kPageSlots + slot) * dim + d;
        if (d < dim) put(keys, d * kPageSlots + slot, c.type, cache.key_floats[at]);
        put(values, slot * stride + d, c.type, d < dim ? cache.value_floats[at] : 0.0f);
      }
    }
    cache.keys.push_back(std::move(keys));
    cache.values.push_back(std::move(values));
  }
  return cache;
}

// What query i sees: neighbouring positions with a window, the last of which may see nothing here.
std::pair<int, int> range(const Case& c, int i) {
  return {c.first + i / 2, std::max(c.last - i, 0)};
}

std::vector<float> attend(const cpu::KernelTable& t, const Case& c, const Cache& cache,
                          const std::vector<float>& q) {
  const int stride = stride_of(c.head_dim);
  std::vector<float> out(static_cast<size_t>(c.queries * (stride + 2)));
  std::vector<const uint8_t*> keys, values;
  for (const auto& k : cache.keys) keys.push_back(k.data());
  for (const auto& v : cache.values) values.push_back(v.data());
  cpu::AttendArgs a{};
  for (int i = 0; i < c.queries; ++i) {
    a.q[i] = q.data() + i * c.head_dim;
    std::tie(a.first[i], a.last[i]) = range(c, i);
  }
  a.queries = c.queries;
  a.head_dim = c.head_dim;
  a.value_stride = stride;
  a.type = c.type;
  a.keys = keys.data();
  a.values = values.data();
  a.softcap = c.softcap;
  a.top = out.data() + c.queries * stride;
  a.mass = a.top + c.queries;
  a.out = out.data();
  t.attend(a);
  return out;
}

double kept(float v, KvType type) {
  return type == KvType::kF32 ? v : half_to_float(float_to_half(v));
}

void check_against_double(const Case& c, const Cache& cache, const std::vector<float>& q,
                          const std::vector<float>& out) {
  const int stride = stride_of(c.head_dim);
  for (int i = 0; i < c.queries; ++i) {
    const auto [first, last] = range(c, i);
    if (first >= last) {
      CHECK(out[c.queries * (stride + 1) + i] == 0.0f, "no mass where nothing is seen");
      continue;
    }
    std::vector<double> score;
    double top = -1e300, mass = 0.0;
    for (int p = first; p < last; ++p) {
      double s = 0.0;
      for (int d = 0; d < c.head_dim; ++d)
        s += q[i * c.head_dim + d] * kept(cache.key_floats[p * c.head_dim + d], c.type);
      if (c.softcap > 0.0f) s = c.softcap * std::tanh(s / c.softcap);
      score.push_back(s);
      top = std::max(top, s);
    }
    for (const double s : score) mass += std::exp(s - top);
    for (int d = 0; d < c.head_dim; ++d) {
      double value = 0.0;
      for (int p = first; p < last; ++p)
        value += std::exp(score[p - first] - top) / mass *
                 kept(cache.value_floats[p * c.head_dim + d], c.type);
      const double got = out[i * stride + d] / out[c.queries * (stride + 1) + i];
      CHECK(std::fabs(got - value) < 2e-4, "attention against double");
    }
  }
}

void compare(std::mt19937& random, const Case& c) {
  const Cache cache = make_cache(random, c);
  const auto q = test::normal(random, static_cast<size_t>(c.queries * c.head_dim),
                              1.0f / std::sqrt(static_cast<float>(c.head_dim)));
  const auto truth = attend(cpu::table("scalar"), c, cache, q);
  check_against_double(c, cache, q, truth);
  for (const std::string& tier : cpu::available_tiers()) {
    const auto out = attend(cpu::table(tier), c, cache, q);
    CHECK(test::same_bytes(out, truth), tier + " head_dim " + std::to_string(c.head_dim) +
                                            " first " + std::to_string(c.first) + " last " +
                                            std::to_string(c.last));
    // A query's result does not depend on how many came with it.
    Case one = c;
    one.queries = 1;
    const auto alone = attend(cpu::table(tier), one, cache, q);
    CHECK(std::memcmp(alone.data(), out.data(), static_cast<size_t>(c.head_dim) * 4) == 0,
          tier + " alone against in a bundle");
  }
}

void check_fold(std::mt19937& random) {
  for (const int n : {16, 64, 128}) {
    const auto first = test::normal(random, static_cast<size_t>(n));
    const auto second = test::normal(random, static_cast<size_t>(n));
    std::vector<float> truth;
    for (const std::string& tier : cpu::available_tiers()) {
      std::vector<float> out = first;
      float top = 1.5f, mass = 3.0f;
      cpu::table(tier).fold_parts(&top, &mass, out.data(), 2.25f, 4.0f, second.data(), n);
      out.push_back(top);
      out.push_back(mass);
      if (truth.empty()) truth = out;
      CHECK(test::same_bytes(out, truth), tier + " fold_parts");
      CHECK(top == 2.25f && std::fabs(mass - (3.0 * std::exp(-0.75) + 4.0)) < 1e-5, "fold value");
    }
  }
}

}  // namespace

int main() {
  std::mt19937 random(3);
  for (const KvType type : {KvType::kF32, KvType::kF16})
    for (const int dim : {16, 20, 64, 72, 80, 128, 256})
      for (int queries = 1; queries <= cpu::kMaxQueries; ++queries) {
        compare(random, {dim, queries, 0, 1, type, 0.0f});
        compare(random, {dim, queries, 0, 77, type, 0.0f});
        compare(random, {dim, queries, 70, 200, type, 5.0f});
        if (dim == 64) compare(random, {dim, queries, 0, 512, type, 0.0f});
      }
  check_fold(random);
  return test::finish("attention");
}
