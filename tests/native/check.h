#pragma once

// The few lines that native tests need: CHECK counts and reports, finish() is main's return value.

#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace test {

inline int& failures() {
  static int count = 0;
  return count;
}

inline int& checks() {
  static int count = 0;
  return count;
}

inline void check(bool holds, const char* what, const char* file, int line,
                  const std::string& context) {
  ++checks();
  if (holds) return;
  if (++failures() <= 20)
    std::fprintf(stderr, "%s:%d: %s does not hold: %s\n", file, line, what, context.c_str());
}

inline int finish(const char* name) {
  std::printf("%s: %d checks, %d failed\n", name, checks(), failures());
  return failures() == 0 && checks() > 0 ? 0 : 1;
}

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

inline std::vector<float> normal(std::mt19937& random, size_t n, float deviation = 1.0f) {
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = distribution(random);
  return values;
}

}  // namespace test

#define CHECK(condition, context) \
  test::check((condition), #condition, __FILE__, __LINE__, (context))
