#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gpu/constants.h"
#include "gpu/packed_weight.h"
#include "gpu/step.h"
#include "graph/op.h"

namespace oxibonsai {
class ThreadPool;
}

namespace oxibonsai::gpu {

// Runs one op of a lowered graph as launches of kernels.
class Runner {
 public:
  virtual ~Runner() = default;
  // Before the step's tables go to the device.
  virtual void prepare(Step*) const {}
  virtual void run(const Step& s) const = 0;
  // Memory that the op needs on the device beyond its outputs. Called behind prepare().
  virtual int64_t workspace_bytes(const Step&) const { return 0; }
};

using RunnerPtr = std::unique_ptr<const Runner>;

// Counters of a launch (gpu/kernels/last_block.h).
constexpr int64_t kCounters = 1024;

// What a runner is made of besides its op.
struct RunnerContext {
  const graph::StateSpec* state;
  Capabilities capabilities;
  int64_t memory_limit;  // bytes of the workspace that an op takes only to have fewer launches
  ThreadPool* pool;
  Constants* constants;
  // kCounters words on the device, of the launch that runs: 0 before and behind it.
  Address counters;
  std::function<ValueRef(graph::ValueId)> value;
  std::function<bool(graph::ValueId)> has_one_reader;  // which is an op, not the graph's output
  std::function<PackedWeightPtr(const graph::WeightPtr&)> packed;
};

// For an op that no kernel computes yet: UnsupportedError.
template <class Op>
RunnerPtr no_kernel(const Op&) {
  throw UnsupportedError(std::string("GPUs have no kernel for ") + Op::kName +
                         " yet: run this model on the CPU (--device cpu)");
}

// Of two neighbouring ops that one launch can do; null where none can.
RunnerPtr make_joined_runner(const graph::Op& op, const graph::Op& next, const RunnerContext& c);
RunnerPtr joined_attention(const graph::PrepareHeads& heads, const graph::Attend& attend,
                           const RunnerContext& c);

// One for each op, in the file of its family in gpu/runners/. An op that no kernel computes yet
// says so here: inline RunnerPtr make_runner(const graph::X& op, ...) { return no_kernel(op); }
RunnerPtr make_runner(const graph::Embed& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::EmbedPositions& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Input& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::InsertRows& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::SelectOutputs& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::SelectColumns& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::TransposeHeads& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::JoinHeads& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::RmsNorm& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::LayerNorm& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::MatchRms& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::GaussianTopK& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Linear& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::RoundInt8& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Hadamard& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Observe& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::RopeTable& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Rope& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::StoreKv& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::PrepareHeads& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Attend& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::AttendLocal& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Gated& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::GateRows& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::MixParts& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Activate& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Add& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::AddVector& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Scale& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Clamp& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Softcap& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Xielu& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Route& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Dispatch& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::ExpertLinear& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Combine& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Conv1d& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::HeadLinear& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::MambaScan& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Mamba2Scan& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::GatedDelta& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Wkv7Scan& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::JoinRows& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::SplitRows& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Sinusoids& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Modulate& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::AddGated& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::GroupMoments& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Conv2d& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Gather& op, const RunnerContext& c);

}  // namespace oxibonsai::gpu
