// Convolution and scans: every tier against scalar, byte for byte, over every tail of rows and
// columns and where subnormal numbers are flushed; scalar against the text of the definition.

#include <cmath>
#include <functional>

#include "check.h"
#include "cpu/dispatch.h"
#include "flush.h"

using namespace oxibonsai;

namespace {

constexpr int kTokens = 5;
using Floats = std::vector<float>;

const cpu::KernelTable& scalar() { return cpu::table("scalar"); }

float without_tiny(float v) { return std::fabs(v) < 0x1p-60f ? 0.0f : v; }

// Everything that a scan reads; its keys lie 3 floats further apart than they are long.
struct Scan {
  int key_dim, columns;
  Floats q, k, v, decay, write, state;

  Scan(std::mt19937& random, int key_dim, int columns)
      : key_dim(key_dim),
        columns(columns),
        q(test::normal(random, size_t{kTokens} * (key_dim + 3))),
        k(test::normal(random, size_t{kTokens} * (key_dim + 3))),
        v(test::normal(random, size_t{kTokens} * columns)),
        decay(test::normal(random, kTokens)),
        write(test::normal(random, kTokens)),
        state(test::normal(random, size_t{16} * key_dim)) {
    for (Floats* part : {&q, &k})
      for (float& x : *part) x /= std::sqrt(static_cast<float>(key_dim));
    for (float& x : decay) x = std::exp(-std::fabs(x));
    for (float& x : write) x = 1.0f / (1.0f + std::exp(-x));
    for (size_t i = 0; i < state.size(); ++i)
      if (static_cast<int>(i % 16) >= columns) state[i] = 0.0f;
  }

  // The results, then the state that is left.
  Floats run(const cpu::KernelTable& t, bool delta) const {
    Floats left = state;
    Floats y(v.size());
    cpu::ScanArgs a{};
    a.state = left.data();
    a.q = q.data();
    a.k = k.data();
    a.v = v.data();
    a.decay = decay.data();
    a.write = write.data();
    a.y = y.data();
    a.key_stride = key_dim + 3;
    a.v_stride = a.y_stride = columns;
    a.key_dim = key_dim;
    a.columns = columns;
    a.tokens = kTokens;
    a.skip = 0.7f;
    (delta ? t.delta_scan : t.linear_scan)(a);
    y.insert(y.end(), left.begin(), left.end());
    return y;
  }

  // docs/arithmetic.md, rule 12, in plain words.
  Floats plain(bool delta) const {
    Floats s = state;
    Floats y(v.size());
    const auto sum = [&](auto term) {
      float c[4] = {};
      for (int i = 0; i < key_dim; ++i) c[i % 4] = term(i, c[i % 4]);
      const float even = c[0] + c[2];
      const float odd = c[1] + c[3];
      return even + odd;
    };
    for (int t = 0; t < kTokens; ++t)
      for (int j = 0; j < columns; ++j) {
        const float* key = &k[static_cast<size_t>(t * (key_dim + 3))];
        const float* query = &q[static_cast<size_t>(t * (key_dim + 3))];
        const auto at = static_cast<size_t>(t * columns + j);
        const auto cell = [&](int i) -> float& { return s[static_cast<size_t>(16 * i + j)]; };
        const float g = decay[static_cast<size_t>(t)];
        float written = v[at];
        if (delta) {
          const float held = sum([&](int i, float c) { return std::fma(cell(i), key[i], c); });
          const float decayed = g * held;
          written = written - decayed;
        }
        written = without_tiny(write[static_cast<size_t>(t)] * written);
        float out = sum([&](int i, float c) {
          const float kept = g * cell(i);
          cell(i) = without_tiny(std::fma(key[i], written, kept));
          return std::fma(cell(i), query[i], c);
        });
        if (!delta) out = std::fma(0.7f, v[at], out);
        y[at] = without_tiny(out);
      }
    y.insert(y.end(), s.begin(), s.end());
    return y;
  }
};

void check_scans(const cpu::KernelTable& t, std::mt19937& random, int key_dim, int columns) {
  const Scan scan(random, key_dim, columns);
  for (const bool delta : {true, false}) {
    const std::string where = std::string(t.name) + (delta ? " delta " : " linear ") +
                              std::to_string(key_dim) + " x " + std::to_string(columns);
    const Floats truth = scan.plain(delta);
    CHECK(test::same_bytes(scan.run(t, delta), truth), where);
    CHECK(test::same_bytes(test::flushed([&] { return scan.run(t, delta); }), truth),
          where + ", flushed");
  }
}

void check_channels(const cpu::KernelTable& t, std::mt19937& random, int state_dim, int channels) {
  const auto wide = size_t{16} * static_cast<size_t>(state_dim);
  const auto rows = static_cast<size_t>(kTokens * channels);
  const auto states = static_cast<size_t>(kTokens * state_dim);
  Floats decay = test::normal(random, wide, 2.0f);
  for (float& d : decay) d = -std::exp(d);
  const Floats start = test::normal(random, wide), bias = test::normal(random, 16);
  const Floats skip = test::normal(random, 16), x = test::normal(random, rows);
  const Floats time_step = test::normal(random, rows, 3.0f);
  const Floats b = test::normal(random, states), c = test::normal(random, states);
  const auto run = [&](const cpu::KernelTable& k) {
    Floats state = start, y(rows);
    k.channel_scan({state.data(), decay.data(), bias.data(), skip.data(), x.data(),
                    time_step.data(), b.data(), c.data(), y.data(), channels, state_dim, state_dim,
                    channels, kTokens});
    y.insert(y.end(), state.begin(), state.end());
    return y;
  };
  const std::string where = std::string(t.name) + " channels " + std::to_string(state_dim) + " x " +
                            std::to_string(channels);
  const Floats truth = run(scalar());
  CHECK(test::same_bytes(run(t), truth), where);
  CHECK(test::same_bytes(test::flushed([&] { return run(t); }), truth), where + ", flushed");
}

void check_wkv7(const cpu::KernelTable& t, std::mt19937& random, int dim, int columns) {
  const auto size = static_cast<size_t>(kTokens * dim);
  const Floats start = test::normal(random, size_t{16} * static_cast<size_t>(dim));
  const Floats r = test::normal(random, size), k = test::normal(random, size);
  const Floats v = test::normal(random, size), kk = test::normal(random, size, 0.1f);
  const Floats erase = test::normal(random, size, 0.1f);
  Floats decay = test::normal(random, size);
  for (float& d : decay) d = std::exp(-std::fabs(d));
  const auto run = [&](const cpu::KernelTable& table) {
    Floats state = start, y(size);
    cpu::Wkv7Args a{};
    a.state = state.data();
    a.r = r.data();
    a.k = k.data();
    a.kk = kk.data();
    a.decay = decay.data();
    a.erase = erase.data();
    a.v = v.data();
    a.y = y.data();
    a.stride = dim;
    a.dim = dim;
    a.columns = columns;
    a.tokens = kTokens;
    table.wkv7_scan(a);
    y.insert(y.end(), state.begin(), state.end());
    return y;
  };
  const std::string where =
      std::string(t.name) + " wkv7 " + std::to_string(dim) + " x " + std::to_string(columns);
  const Floats truth = run(scalar());
  CHECK(test::same_bytes(run(t), truth), where);
  CHECK(test::same_bytes(test::flushed([&] { return run(t); }), truth), where + ", flushed");
}

void check_conv(const cpu::KernelTable& t, std::mt19937& random, int taps, int n, bool more) {
  const auto size = static_cast<size_t>(n);
  std::vector<Floats> rows;
  std::vector<const float*> pointers;
  for (int j = 0; j < taps; ++j) rows.push_back(test::small_activations(random, size));
  for (const Floats& row : rows) pointers.push_back(row.data());
  const Floats weight = test::normal(random, size * static_cast<size_t>(taps));
  const Floats bias = test::normal(random, size);
  const auto run = [&](const cpu::KernelTable& k) {
    Floats y(size);
    k.conv1d(
        {pointers.data(), weight.data(), more ? bias.data() : nullptr, n, n, taps, more, y.data()});
    return y;
  };
  const std::string where =
      std::string(t.name) + " conv " + std::to_string(taps) + " x " + std::to_string(n);
  const Floats truth = run(scalar());
  CHECK(test::same_bytes(run(t), truth), where);
  CHECK(test::same_bytes(test::flushed([&] { return run(t); }), truth), where + ", flushed");
  if (more) return;
  for (size_t i = 0; i < size; ++i) {
    float sum = rows[0][i] * weight[i];
    for (int j = 1; j < taps; ++j)
      sum =
          std::fma(rows[static_cast<size_t>(j)][i], weight[static_cast<size_t>(j) * size + i], sum);
    CHECK(truth[i] == without_tiny(sum), where);
  }
}

}  // namespace

int main() {
  for (const std::string& name : cpu::available_tiers()) {
    const cpu::KernelTable& t = cpu::table(name);
    std::mt19937 random(7);
    for (const int key_dim : {1, 3, 4, 16, 50, 128})
      for (const int columns : {1, 7, 16}) check_scans(t, random, key_dim, columns);
    for (const int state_dim : {1, 6, 16})
      for (int channels = 1; channels <= 16; ++channels)
        check_channels(t, random, state_dim, channels);
    for (const int dim : {16, 21, 64})
      for (const int columns : {1, 7, 16}) check_wkv7(t, random, dim, columns);
    for (const int taps : {2, 3, 4})
      for (const int n : {1, 15, 16, 33, 256})
        for (const bool more : {false, true}) check_conv(t, random, taps, n, more);
  }
  return test::finish("recurrence");
}
