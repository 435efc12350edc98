#include "cpu/runners/row_parts.h"

namespace oxibonsai::cpu {
namespace {

constexpr int kSigmoid = static_cast<int>(graph::Activation::kSigmoid);

}  // namespace

RunnerPtr make_runner(const graph::Gated& op, const RunnerContext& c) {
  const ValueRef gate = c.value(op.gate);
  const ValueRef up = c.value(op.up);
  const auto activation = static_cast<int>(op.activation);
  return row_parts(c.value(op.out), kPartCols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->gated[activation](s.row(gate, part.row) + part.first,
                                 s.row(up, part.row) + part.first, part.last - part.first,
                                 y + part.first);
  });
}

RunnerPtr make_runner(const graph::GateRows& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const ValueRef gate = c.value(op.gate);
  return row_parts(c.value(op.out), kPartCols, [=](const Step& s, const RowPart& part, float* y) {
    float factor;
    s.kernels->activate[kSigmoid](s.row(gate, part.row), 1, &factor);
    s.kernels->scale(s.row(x, part.row) + part.first, factor, part.last - part.first,
                     y + part.first);
  });
}

// An item is one part of the result.
RunnerPtr make_runner(const graph::MixParts& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const ValueRef weights = c.value(op.weights);
  const int64_t width = x.cols / op.parts;
  return row_parts(c.value(op.out), width, [=](const Step& s, const RowPart& part, float* y) {
    thread_local std::vector<const float*> parts;
    parts.clear();
    for (int i = 0; i < op.parts; ++i) parts.push_back(s.row(x, part.row) + i * width);
    const int64_t result = part.first / width;
    s.kernels->weighted_sum(parts.data(), s.row(weights, part.row) + result * op.parts, op.parts,
                            width, y + part.first);
  });
}

RunnerPtr make_runner(const graph::Activate& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const auto activation = static_cast<int>(op.activation);
  return row_parts(c.value(op.out), kPartCols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->activate[activation](s.row(x, part.row) + part.first, part.last - part.first,
                                    y + part.first);
  });
}

RunnerPtr make_runner(const graph::Add& op, const RunnerContext& c) {
  const ValueRef a = c.value(op.a);
  const ValueRef b = c.value(op.b);
  return row_parts(c.value(op.out), a.cols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->add(s.row(a, part.row), s.row(b, part.row), a.cols, y);
  });
}

RunnerPtr make_runner(const graph::AddVector& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  return row_parts(c.value(op.out), x.cols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->add(s.row(x, part.row), op.vector->data(), x.cols, y);
  });
}

RunnerPtr make_runner(const graph::Scale& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  return row_parts(c.value(op.out), x.cols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->scale(s.row(x, part.row), op.factor, x.cols, y);
  });
}

RunnerPtr make_runner(const graph::Xielu& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const XieluArgs args{op.alpha_p, op.alpha_n, op.beta, op.eps};
  return row_parts(c.value(op.out), kPartCols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->xielu(s.row(x, part.row) + part.first, args, part.last - part.first, y + part.first);
  });
}

RunnerPtr make_runner(const graph::Clamp& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  return row_parts(c.value(op.out), x.cols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->clamp(s.row(x, part.row), op.limit, x.cols, y);
  });
}

RunnerPtr make_runner(const graph::Softcap& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  return row_parts(c.value(op.out), x.cols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->softcap(s.row(x, part.row), op.cap, x.cols, y);
  });
}

}  // namespace oxibonsai::cpu
