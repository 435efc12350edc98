#pragma once

// Runs a graph on the scalar tier and on emulated GPUs, and compares bytes.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "cpu/device.h"
#include "cpu/dispatch.h"
#include "cpu/executable.h"
#include "gpu/device.h"
#include "gpu/emulator/emulator_backend.h"
#include "gpu/executable.h"

namespace test {

using namespace oxibonsai;

inline graph::Vector vector_of(std::vector<float> values) {
  return std::make_shared<const std::vector<float>>(std::move(values));
}

// Without tensor cores it has no count_up() either, as Apple's.
inline std::shared_ptr<gpu::GpuDevice> emulated_gpu(gpu::emulator::Options options = {},
                                                    gpu::Int8Mma int8_mma = gpu::Int8Mma::k16x8x32,
                                                    int64_t memory = int64_t{4} << 30) {
  return std::make_shared<gpu::GpuDevice>(
      std::make_shared<gpu::emulator::EmulatorBackend>(
          options, gpu::Capabilities{int8_mma, int8_mma != gpu::Int8Mma::kNone}, memory),
      std::make_shared<ThreadPool>(1));
}

using Outputs = std::vector<std::vector<float>>;

template <class Executable, class State>
Outputs run(Executable& executable, const graph::Batch& batch, const State& state) {
  Outputs outputs;
  std::vector<float*> results;
  for (size_t i = 0; i < executable.outputs().size(); ++i)
    outputs.emplace_back(
        static_cast<size_t>(executable.output_rows(i, batch) * executable.outputs()[i].second),
        NAN);
  for (std::vector<float>& o : outputs) results.push_back(o.data());
  executable.run(batch, state, results);
  return outputs;
}

inline void check_same(const Outputs& truth, const Outputs& found, const std::string& name) {
  CHECK(truth.size() == found.size(), name);
  for (size_t i = 0; i < truth.size(); ++i)
    CHECK(same_bytes(truth[i], found[i]), name + " output " + std::to_string(i));
}

// A graph without state, on the scalar tier and on GPUs: with tensor cores of both kinds and
// without, threads in other orders, subnormal numbers flushed.
inline void compare_graph(const graph::Graph& g, const graph::Batch& batch,
                          const std::string& name) {
  cpu::CpuDevice scalar(cpu::table("scalar"), 1);
  const Outputs truth = run(*scalar.compile(g), batch, cpu::State{});
  bool live = false;
  for (const std::vector<float>& o : truth)
    live = live || std::any_of(o.begin(), o.end(), [](float v) { return v != 0.0f; });
  CHECK(live, name + " is not all zero");
  struct Kind {
    gpu::emulator::Options options;
    gpu::Int8Mma int8_mma;
    const char* name;
  };
  for (const Kind& kind : {Kind{{1, false}, gpu::Int8Mma::k16x8x32, ""},
                           Kind{{2, true}, gpu::Int8Mma::kNone, " without mma, flushed"},
                           Kind{{3, false}, gpu::Int8Mma::k8x8x16, " with smaller tiles"}}) {
    const auto device = emulated_gpu(kind.options, kind.int8_mma);
    check_same(truth, run(*device->compile(g), batch, gpu::State{}), name + kind.name);
  }
}

}  // namespace test
