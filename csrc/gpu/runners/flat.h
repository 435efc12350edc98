#pragma once

// Ops that go value by value: 256 threads a block.

#include "gpu/kernel_args.h"
#include "gpu/runner.h"

namespace oxibonsai::gpu {

constexpr uint32_t kFlatThreads = 256;

inline Grid flat_grid(int64_t values) { return {blocks_of(values, kFlatThreads)}; }

inline args::FlatArgs flat_args(const Step& s, const ValueRef& out) {
  args::FlatArgs a{};
  a.count = static_cast<uint64_t>(s.values_of(out));
  a.cols = static_cast<uint32_t>(out.cols);
  a.round = out.type == graph::ValueType::kInt8;
  return a;
}

// args::Function of an activation. UnsupportedError where no kernel has it.
uint32_t function_of(graph::Activation activation);

// The last four buffers of kernels that can round their result: it is floats or it is rounded.
struct Result {
  Address y;
  RoundedRows rounded;
};

inline Result result_of(const Step& s, const ValueRef& out) {
  if (out.type == graph::ValueType::kInt8) return {{}, s.rounded(out)};
  return {s.address(out), {}};
}

// A runner of a function object.
template <class Run>
class RunnerOf final : public Runner {
 public:
  explicit RunnerOf(Run run) : run_(std::move(run)) {}
  void run(const Step& s) const override { run_(s); }

 private:
  const Run run_;
};

template <class Run>
RunnerPtr runner_of(Run run) {
  return std::make_unique<RunnerOf<Run>>(std::move(run));
}

// Of a kernel that is launched where there are values.
template <class Run>
RunnerPtr flat_runner(const ValueRef& out, Run run) {
  return runner_of([=](const Step& s) {
    if (s.values_of(out) > 0) run(s);
  });
}

}  // namespace oxibonsai::gpu
