// The host for OpenCL without a driver: what it refuses a device for, by name, and the quotients
// and roots that its kernels round themselves.

#include <cmath>
#include <functional>

#include "base/f16.h"
#include "gpu_compare.h"
#include "opencl/check_device.h"
#include "opencl/devices.h"

using namespace oxibonsai;
using namespace test;

namespace rounded {

int units_off = 0;  // of what follows

#define INLINE inline
using oxibonsai::bits_to_float;
using oxibonsai::float_to_bits;
float off(float v) {
  return std::isnormal(v) ? bits_to_float(float_to_bits(v) + static_cast<uint32_t>(units_off)) : v;
}
float near_quotient(float a, float b) { return off(a / b); }
float near_root(float v) { return off(std::sqrt(v)); }
#include "gpu/rounded.h"

}  // namespace rounded

namespace {

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : float_to_bits(a) == float_to_bits(b);
}

// Below the normal numbers, and where they begin, nothing is promised.
bool is_tiny(float v) { return v != 0.0f && std::fabs(v) <= 0x1p-126f; }

void test_quotients_and_roots_are_rounded_whatever_they_begin_with() {
  const float special[] = {0.0f,        -0.0f,           1.0f,   -1.0f,    3.0f,
                           16777215.0f, INFINITY,        NAN,    3.4e38f,  -3.4e38f,
                           1.2e-38f,    1.0f - 0x1p-24f, 127.0f, 0x1p-60f, 1.00000012f};
  for (const int units : {-3, -1, 0, 1, 3}) {
    rounded::units_off = units;
    uint64_t state = 1;
    const auto number = [&] {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return bits_to_float(static_cast<uint32_t>(state >> 32));
    };
    int64_t wrong = 0;
    const auto compare = [&](float a, float b) {
      const float quotient = a / b;
      if (!is_tiny(a) && !is_tiny(b) && !is_tiny(quotient))
        wrong += !same(rounded::quotient(a, b), quotient);
      if (!is_tiny(a)) wrong += !same(rounded::root(a), std::sqrt(a));
    };
    for (const float a : special)
      for (const float b : special) compare(a, b);
    for (int i = 0; i < 400000; ++i) compare(number(), number());
    // Neighbours, where quotients are next to a power of two, and squares, whose roots are exact.
    for (int i = 1; i < 4000; ++i) {
      const auto n = static_cast<float>(i);
      compare(n * n, n);
      compare(0x1p23f + n, 0x1p23f + n + 1);
      compare(0x1p23f + n + 1, 0x1p23f + n);
    }
    CHECK(wrong == 0, std::to_string(wrong) + " wrong from " + std::to_string(units) + " off");
  }
}

opencl::DeviceInfo whole() {
  opencl::DeviceInfo d;
  d.profile = "FULL_PROFILE";
  d.languages = "SPIR-V_1.2 SPIR-V_1.4";
  d.extensions =
      "cl_khr_subgroup_shuffle cl_khr_subgroup_shuffle_relative cl_intel_required_subgroup_size";
  d.address_bits = 64;
  d.little_endian = 1;
  d.float_config = 6;
  d.local_memory = 32 << 10;
  d.largest_block = 256;
  d.subgroup_sizes = {8, 16, 32};
  d.shared_memory = 1;
  return d;
}

void test_a_device_that_lacks_something_is_refused_by_its_name() {
  CHECK(opencl::missing(whole()).empty(), opencl::missing(whole()));
  const auto without = [](const std::function<void(opencl::DeviceInfo*)>& take,
                          const std::string& expected) {
    opencl::DeviceInfo d = whole();
    take(&d);
    const std::string found = opencl::missing(d);
    CHECK(found == expected, found);
  };
  without([](auto* d) { d->profile = "EMBEDDED_PROFILE"; }, "the full profile");
  without([](auto* d) { d->languages = "SPIR-V_1.0 SPIR-V_1.2"; }, "SPIR-V 1.3");
  without([](auto* d) { d->languages = ""; }, "SPIR-V 1.3");
  without([](auto* d) { d->extensions = d->extensions.substr(24); }, "cl_khr_subgroup_shuffle");
  without([](auto* d) { d->subgroup_sizes = {16, 64}; }, "subgroups of 32");
  without([](auto* d) { d->address_bits = 32; }, "addresses of 64 bits");
  without([](auto* d) { d->little_endian = 0; }, "little-endian numbers");
  without([](auto* d) { d->float_config = 2; }, "CL_FP_ROUND_TO_NEAREST");
  without([](auto* d) { d->float_config = 4; }, "CL_FP_INF_NAN");
  without([](auto* d) { d->largest_block = 255; }, "work groups of 256");
  without([](auto* d) { d->local_memory = 16 << 10; }, "32 KiB of local memory");
  const std::string memory =
      "unified shared memory (cl_intel_unified_shared_memory) or coarse-grained shared virtual "
      "memory";
  without([](auto* d) { d->shared_memory = 0; }, memory);
  // Named, but not offered for memory of the device.
  without([](auto* d) { d->shared_memory = 0, d->extensions += " cl_intel_unified_shared_memory"; },
          memory);
  without(
      [](auto* d) {
        d->shared_memory = 0, d->device_memory = 1;
        d->extensions += " cl_intel_unified_shared_memory";
      },
      "");
  without([](auto* d) { d->profile = "", d->subgroup_sizes = {}; },
          "the full profile, subgroups of 32");
}

// Runs the kernel `probe` as a device would that is right but for one thing.
class ProbedBackend : public gpu::emulator::EmulatorBackend {
 public:
  explicit ProbedBackend(std::string fault)
      : EmulatorBackend({}, {}, 1 << 20), fault_(std::move(fault)) {}

  void launch(const gpu::Launch& l) override {
    const size_t count = size_t{l.grid.x} * l.threads;
    std::vector<float> x(3 * count), results(4 * count);
    download(l.buffers[0], x.data(), static_cast<int64_t>(x.size() * 4));
    for (size_t i = 0; i < count; ++i) {
      const float a = x[3 * i], b = x[3 * i + 1], c = x[3 * i + 2], product = a * b;
      results[4 * i] = fault_ == "fma" ? product + c : std::fma(a, b, c);
      results[4 * i + 1] = fault_ == "fused" ? std::fma(a, b, c) : product + c;
      results[4 * i + 2] = fault_ == "quotient" ? a * (1.0f / b) : a / b;
      const float size = std::fabs(a);
      results[4 * i + 3] = fault_ == "root" ? size * (1.0f / std::sqrt(size)) : std::sqrt(size);
    }
    std::vector<uint32_t> lanes;
    for (uint32_t i = 0; i < l.threads; ++i) {
      const uint32_t width = fault_ == "width" ? 8 : 32;
      const uint32_t down = fault_ == "down" ? i + 4 : i + 5;
      const uint32_t from = fault_ == "from" ? i : i / 32 * 32 + 7;
      lanes.insert(lanes.end(), {width, fault_ == "order" ? i ^ 1 : i, down * 3, from * 3});
    }
    upload(results.data(), l.buffers[1], static_cast<int64_t>(results.size() * 4));
    upload(lanes.data(), l.buffers[2], static_cast<int64_t>(lanes.size() * 4));
  }

 private:
  const std::string fault_;
};

void test_what_a_device_does_is_checked() {
  const auto found = [](const std::string& fault) -> std::string {
    ProbedBackend backend(fault);
    try {
      opencl::check_device(backend);
    } catch (const UnsupportedError& e) {
      return e.what();
    }
    return "";
  };
  const std::pair<const char*, const char*> faults[] = {
      {"", ""},
      {"width", "the driver runs subgroups of 8 where 32 are required"},
      {"order", "the driver does not keep the order of a subgroup's lanes"},
      {"down", "the driver does not keep sub_group_shuffle_down"},
      {"from", "the driver does not keep sub_group_shuffle"},
      {"fma", "the driver does not keep the rounding of fma"},
      {"fused", "the driver does not keep products and sums apart"},
      {"quotient", "the driver does not keep the arithmetic of quotients"},
      {"root", "the driver does not keep the arithmetic of square roots"},
  };
  for (const auto& [fault, message] : faults) CHECK(found(fault) == message, found(fault));
}

}  // namespace

int main() {
  test_quotients_and_roots_are_rounded_whatever_they_begin_with();
  test_a_device_that_lacks_something_is_refused_by_its_name();
  test_what_a_device_does_is_checked();
  return test::finish("opencl");
}
