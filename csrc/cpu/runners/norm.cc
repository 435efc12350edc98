#include "cpu/runners/row_parts.h"

namespace oxibonsai::cpu {
namespace {

// Groups are normalised whole; a row without groups may be cut where the result is rounded, each
// part with the norm of the whole row.
int64_t part_cols(const graph::RmsNorm& op, const ValueRef& out) {
  const bool rounds = out.type == graph::ValueType::kInt8;
  if (op.groups == 1) return rounds ? kPartCols : out.cols;
  const int64_t group = out.cols / op.groups;
  return rounds ? out.cols : std::max<int64_t>(1, kPartCols / group) * group;
}

}  // namespace

RunnerPtr make_runner(const graph::RmsNorm& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const ValueRef out = c.value(op.out);
  return row_parts(out, part_cols(op, out), [=](const Step& s, const RowPart& part, float* y) {
    const float* in = s.row(x, part.row);
    const int64_t width = x.cols / op.groups;
    const float* w = op.weight->data();
    const bool own = static_cast<int64_t>(op.weight->size()) == x.cols;
    if (op.groups == 1) return s.kernels->rms_norm(in, w, width, op.eps, part.first, part.last, y);
    for (int64_t at = part.first; at < part.last; at += width)
      s.kernels->rms_norm(in + at, own ? w + at : w, width, op.eps, 0, width, y + at);
  });
}

RunnerPtr make_runner(const graph::LayerNorm& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  return row_parts(c.value(op.out), x.cols, [=](const Step& s, const RowPart& part, float* y) {
    const int64_t width = x.cols / op.groups;
    const bool own = op.weight->size() == static_cast<size_t>(x.cols);  // of each group
    for (int64_t at = 0; at < x.cols; at += width) {
      const int64_t from = own ? at : 0;
      s.kernels->layer_norm(s.row(x, part.row) + at, op.weight->data() + from,
                            op.bias != nullptr ? op.bias->data() + from : nullptr, width, op.eps,
                            y + at);
    }
  });
}

RunnerPtr make_runner(const graph::MatchRms& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const ValueRef like = c.value(op.like);
  return row_parts(c.value(op.out), x.cols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->match_rms(s.row(x, part.row), s.row(like, part.row), x.cols, op.floor, y);
  });
}

RunnerPtr make_runner(const graph::GaussianTopK& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  return row_parts(c.value(op.out), x.cols, [=](const Step& s, const RowPart& part, float* y) {
    s.kernels->gaussian_top_k(s.row(x, part.row), x.cols, op.deviations, y);
  });
}

}  // namespace oxibonsai::cpu
