#pragma once

#include <functional>
#include <memory>

#include "base/check.h"
#include "cpu/packed_weight.h"
#include "cpu/step.h"
#include "graph/op.h"

namespace oxibonsai::cpu {

// Runs one op of a lowered graph. Its work is cut into independent items; those of one phase run in
// any order on any thread, and a phase starts when the one before it is done. Phase 0 touches
// nothing but the op's inputs, outputs and state, and the workspace of an op with several phases,
// so that it may run beside other ops.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual int phases() const { return 1; }
  virtual int64_t items(const Step& s, int phase) const = 0;  // by the batch alone; 0 costs nothing
  virtual void run(const Step& s, int phase, int64_t item) const = 0;
  // Memory that the op needs during the step, beyond its outputs.
  virtual int64_t workspace_bytes(const Step&) const { return 0; }
};

using RunnerPtr = std::unique_ptr<const Runner>;

// What a runner is made of besides its op.
struct RunnerContext {
  const graph::StateSpec* state;
  std::function<ValueRef(graph::ValueId)> value;
  std::function<PackedWeightPtr(const graph::WeightPtr&)> packed;
  int workspace;  // of the op: index into Step::memory
};

// One for each op, in the file of its family in cpu/runners/.
RunnerPtr make_runner(const graph::Embed& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::EmbedPositions& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Input& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::JoinHeads& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::JoinRows& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::SplitRows& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Sinusoids& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Modulate& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::AddGated& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::GroupMoments& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Conv2d& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::InsertRows& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::SelectOutputs& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::RmsNorm& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::LayerNorm& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::MatchRms& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::GaussianTopK& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Linear& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::HeadLinear& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::RoundInt8& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Hadamard& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Observe& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::RopeTable& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Rope& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::StoreKv& op, const RunnerContext& c);
// CPUs run what it consists of: the stages of those ops are one already.
inline RunnerPtr make_runner(const graph::PrepareHeads& op, const RunnerContext&) {
  throw UnsupportedError(std::string("CPUs have no kernel for ") + op.kName);
}
RunnerPtr make_runner(const graph::Attend& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::AttendLocal& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Gated& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::GateRows& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::MixParts& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Activate& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Add& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::AddVector& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Scale& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Xielu& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Clamp& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Softcap& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Route& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Dispatch& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::ExpertLinear& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Combine& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Gather& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Conv1d& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::GatedDelta& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Mamba2Scan& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::MambaScan& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::Wkv7Scan& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::SelectColumns& op, const RunnerContext& c);
RunnerPtr make_runner(const graph::TransposeHeads& op, const RunnerContext& c);

}  // namespace oxibonsai::cpu
