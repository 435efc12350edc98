#include <string>

#include "gpu/runners/flat.h"

namespace oxibonsai::gpu {

uint32_t function_of(graph::Activation activation) {
  using graph::Activation;
  switch (activation) {
    case Activation::kSilu:
      return args::kSilu;
    case Activation::kGelu:
      return args::kGelu;
    case Activation::kGeluTanh:
      return args::kGeluTanh;
    case Activation::kRelu:
      return args::kRelu;
    case Activation::kRelu2:
      return args::kRelu2;
    case Activation::kSigmoid:
      return args::kSigmoid;
    case Activation::kIdentity:
      return args::kIdentity;
    case Activation::kSwigluOai:
      return args::kSwigluOai;
    default:
      throw UnsupportedError("GPUs have no kernel for activation " +
                             std::to_string(static_cast<int>(activation)) + " of a graph yet");
  }
}

namespace {

// Of kernels with one input, a factor and a float result.
RunnerPtr unary(const char* kernel, const ValueRef& x, const ValueRef& out, float factor) {
  return flat_runner(out, [=](const Step& s) {
    args::FlatArgs a = flat_args(s, out);
    a.factor = factor;
    s.launch(kernel, flat_grid(s.values_of(out)), kFlatThreads, a,
             std::array<Address, 2>{s.address(x), s.address(out)});
  });
}

// Of kernels with two inputs and a float result.
RunnerPtr binary(const char* kernel, const ValueRef& x, const ValueRef& other, Address vector,
                 const ValueRef& out) {
  return flat_runner(out, [=](const Step& s) {
    const Address second = vector.buffer != nullptr ? vector : s.address(other);
    s.launch(kernel, flat_grid(s.values_of(out)), kFlatThreads, flat_args(s, out),
             std::array<Address, 3>{s.address(x), second, s.address(out)});
  });
}

}  // namespace

RunnerPtr make_runner(const graph::Gated& op, const RunnerContext& c) {
  const ValueRef gate = c.value(op.gate), up = c.value(op.up), out = c.value(op.out);
  const auto function = function_of(op.activation);
  return flat_runner(out, [=](const Step& s) {
    args::FlatArgs a = flat_args(s, out);
    a.function = function;
    const Result r = result_of(s, out);
    s.launch("gated", flat_grid(s.values_of(out)), kFlatThreads, a,
             std::array<Address, 6>{s.address(gate), s.address(up), r.y, r.rounded.q,
                                    r.rounded.scale, r.rounded.sums});
  });
}

RunnerPtr make_runner(const graph::Activate& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), out = c.value(op.out);
  const auto function = function_of(op.activation);
  return flat_runner(out, [=](const Step& s) {
    args::FlatArgs a = flat_args(s, out);
    a.function = function;
    const Result r = result_of(s, out);
    s.launch(
        "activate", flat_grid(s.values_of(out)), kFlatThreads, a,
        std::array<Address, 5>{s.address(x), r.y, r.rounded.q, r.rounded.scale, r.rounded.sums});
  });
}

RunnerPtr make_runner(const graph::GateRows& op, const RunnerContext& c) {
  return binary("gate_rows", c.value(op.x), c.value(op.gate), {}, c.value(op.out));
}

RunnerPtr make_runner(const graph::MixParts& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), weights = c.value(op.weights), out = c.value(op.out);
  args::MoveArgs a{};
  a.outer = static_cast<uint32_t>(op.parts);
  a.inner = static_cast<uint32_t>(weights.cols / op.parts);
  a.width = static_cast<uint32_t>(x.cols / op.parts);
  return flat_runner(out, [=](const Step& s) {
    args::MoveArgs now = a;
    now.count = static_cast<uint64_t>(s.values_of(out));
    s.launch("mix_parts", flat_grid(s.values_of(out)), kFlatThreads, now,
             std::array<Address, 3>{s.address(x), s.address(weights), s.address(out)});
  });
}

RunnerPtr make_runner(const graph::Add& op, const RunnerContext& c) {
  return binary("add", c.value(op.a), c.value(op.b), {}, c.value(op.out));
}

RunnerPtr make_runner(const graph::AddVector& op, const RunnerContext& c) {
  return binary("add_vector", c.value(op.x), {}, c.constants->put(op.vector), c.value(op.out));
}

RunnerPtr make_runner(const graph::Scale& op, const RunnerContext& c) {
  return unary("scale", c.value(op.x), c.value(op.out), op.factor);
}

RunnerPtr make_runner(const graph::Clamp& op, const RunnerContext& c) {
  return unary("clamp_values", c.value(op.x), c.value(op.out), op.limit);
}

RunnerPtr make_runner(const graph::Xielu& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), out = c.value(op.out);
  args::XieluArgs a{};
  a.alpha_p = op.alpha_p;
  a.alpha_n = op.alpha_n;
  a.beta = op.beta;
  a.eps = op.eps;
  a.round = out.type == graph::ValueType::kInt8;
  return flat_runner(out, [=](const Step& s) {
    args::XieluArgs now = a;
    now.count = static_cast<uint64_t>(s.values_of(out));
    const Result r = result_of(s, out);
    s.launch(
        "xielu", flat_grid(s.values_of(out)), kFlatThreads, now,
        std::array<Address, 5>{s.address(x), r.y, r.rounded.q, r.rounded.scale, r.rounded.sums});
  });
}

RunnerPtr make_runner(const graph::Softcap& op, const RunnerContext& c) {
  return unary("softcap", c.value(op.x), c.value(op.out), op.cap);
}

RunnerPtr make_runner(const graph::SelectColumns& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), out = c.value(op.out);
  args::MoveArgs a{};
  a.inner = static_cast<uint32_t>(op.count);
  a.outer = static_cast<uint32_t>(op.period);
  a.first = static_cast<uint32_t>(op.first);
  return flat_runner(out, [=](const Step& s) {
    args::MoveArgs now = a;
    now.count = static_cast<uint64_t>(s.values_of(out));
    s.launch("select_columns", flat_grid(s.values_of(out)), kFlatThreads, now,
             std::array<Address, 2>{s.address(x), s.address(out)});
  });
}

RunnerPtr make_runner(const graph::TransposeHeads& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), out = c.value(op.out);
  args::MoveArgs a{};
  a.outer = static_cast<uint32_t>(op.outer);
  a.inner = static_cast<uint32_t>(op.inner);
  a.width = static_cast<uint32_t>(x.cols / op.outer / op.inner);
  return flat_runner(out, [=](const Step& s) {
    args::MoveArgs now = a;
    now.count = static_cast<uint64_t>(s.values_of(out));
    s.launch("transpose_heads", flat_grid(s.values_of(out)), kFlatThreads, now,
             std::array<Address, 2>{s.address(x), s.address(out)});
  });
}

RunnerPtr make_runner(const graph::JoinHeads& op, const RunnerContext& c) {
  const ValueRef a = c.value(op.a), b = c.value(op.b), out = c.value(op.out);
  args::MoveArgs args{};
  args.outer = static_cast<uint32_t>(a.cols / op.heads);
  args.inner = static_cast<uint32_t>(b.cols / op.heads);
  return flat_runner(out, [=](const Step& s) {
    args::MoveArgs now = args;
    now.count = static_cast<uint64_t>(s.values_of(out));
    s.launch("join_heads", flat_grid(s.values_of(out)), kFlatThreads, now,
             std::array<Address, 3>{s.address(a), s.address(b), s.address(out)});
  });
}

}  // namespace oxibonsai::gpu
