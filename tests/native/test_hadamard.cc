// The block Walsh-Hadamard transform: against a product with the matrix in double, every tier
// against scalar byte for byte, and as an op of a graph, cut for threads in any way.

#include <cmath>

#include "check.h"
#include "cpu/dispatch.h"

using namespace oxibonsai;

namespace {

using Floats = std::vector<float>;

struct Factors {
  Floats before, after;
};

Factors signs(std::mt19937& random, size_t n) {
  Factors f{Floats(n), Floats(n)};
  for (float& v : f.before) v = random() % 2 == 0 ? 1.0f : -1.0f;
  for (float& v : f.after) v = random() % 2 == 0 ? 1.0f : -1.0f;
  return f;
}

Floats run(const cpu::KernelTable& t, const Floats& x, const Factors& f, int64_t block) {
  Floats y(x.size());
  const auto data = [](const Floats& v) { return v.empty() ? nullptr : v.data(); };
  t.hadamard(
      {x.data(), data(f.before), data(f.after), static_cast<int64_t>(x.size()), block, y.data()});
  return y;
}

// Row i of Sylvester's matrix has the sign of the parity of i & j in column j.
double matrix_product(const Floats& x, const Factors& f, int64_t block, size_t i) {
  const size_t size = static_cast<size_t>(block);
  const size_t begin = i / size * size;
  double sum = 0.0;
  for (size_t j = 0; j < size; ++j) {
    const double v =
        static_cast<double>(x[begin + j]) * (f.before.empty() ? 1 : f.before[begin + j]);
    sum += __builtin_parityll((i - begin) & j) != 0 ? -v : v;
  }
  return sum / std::sqrt(static_cast<double>(block)) * (f.after.empty() ? 1 : f.after[i]);
}

void check(const cpu::KernelTable& t, std::mt19937& random, int64_t block, int64_t blocks) {
  const auto n = static_cast<size_t>(block * blocks);
  const std::string where =
      std::string(t.name) + " " + std::to_string(blocks) + " blocks of " + std::to_string(block);
  const Floats x = test::normal(random, n, 3.0f);
  double norm = 0.0;
  for (const float v : x) norm = std::max(norm, std::fabs(static_cast<double>(v)));
  for (const Factors& f : {Factors{}, signs(random, n)}) {
    const Floats y = run(t, x, f, block);
    CHECK(test::same_bytes(y, run(cpu::table("scalar"), x, f, block)), where);
    // Each of log2(block) sums rounds once, and so do the product and its factor.
    const double bound = (std::log2(block) + 2) * 0x1p-24 * norm * std::sqrt(block);
    for (size_t i = 0; i < n; ++i)
      CHECK(std::fabs(y[i] - matrix_product(x, f, block, i)) <= bound, where + " against double");
    Floats in_place = x;
    t.hadamard({in_place.data(), f.before.empty() ? nullptr : f.before.data(),
                f.after.empty() ? nullptr : f.after.data(), static_cast<int64_t>(n), block,
                in_place.data()});
    CHECK(test::same_bytes(in_place, y), where + " in place");
    // Undone by itself, its factors swapped.
    const Floats back = run(t, y, {f.after, f.before}, block);
    for (size_t i = 0; i < n; ++i) CHECK(std::fabs(back[i] - x[i]) <= 2 * bound, where + " twice");
  }
}

}  // namespace

int main() {
  for (const std::string& tier : cpu::available_tiers()) {
    const cpu::KernelTable& t = cpu::table(tier);
    std::mt19937 random(3);
    for (int64_t block = 1; block <= 4096; block *= 2)
      for (const int64_t blocks : {1, 3, 5}) check(t, random, block, blocks);
  }
  return test::finish("hadamard");
}
