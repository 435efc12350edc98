#include "base/trig.h"
#include "cpu/runners/row_parts.h"

namespace oxibonsai::cpu {

RunnerPtr make_runner(const graph::Sinusoids& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const ValueRef out = c.value(op.out);
  return row_parts(out, out.cols, [=](const Step& s, const RowPart& part, float* y) {
    const std::vector<float>& frequency = *op.frequencies;
    const float at = *s.row(x, part.row);
    for (size_t i = 0; i < frequency.size(); ++i) {
      const SinCos v = sin_cos(at * frequency[i]);
      y[i] = v.cos;
      y[frequency.size() + i] = v.sin;
    }
  });
}

// The batch has one sequence, hence modulations one row.
RunnerPtr make_runner(const graph::Modulate& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const ValueRef scale = c.value(op.scale);
  const ValueRef shift = c.value(op.shift);
  return row_parts(c.value(op.out), kPartCols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->modulate(s.row(x, part.row) + part.first, s.row(scale, 0) + part.first,
                        s.row(shift, 0) + part.first, part.last - part.first, y + part.first);
  });
}

RunnerPtr make_runner(const graph::AddGated& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const ValueRef added = c.value(op.y);
  const ValueRef gate = c.value(op.gate);
  return row_parts(c.value(op.out), kPartCols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->add_gated(s.row(x, part.row) + part.first, s.row(added, part.row) + part.first,
                         s.row(gate, 0) + part.first, part.last - part.first, y + part.first);
  });
}

}  // namespace oxibonsai::cpu
