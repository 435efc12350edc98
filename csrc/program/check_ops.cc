#include "program/check_ops.h"

#include <string>

#include "base/check.h"
#include "program/input_sums.h"
#include "quant/split.h"

namespace oxibonsai::program {
namespace {

// Collects what one operation needs; the first thing that doesn't hold is thrown.
class OpCheck {
 public:
  OpCheck(const Op& op, size_t index, const std::vector<Slot>& slots)
      : op_(op), index_(index), slots_(slots) {}

  void require(bool holds, const char* what) const {
    if (!holds)
      throw RequestError("operation " + std::to_string(index_) + " of the program: " + what);
  }

  void counts(size_t in, size_t out, size_t weights, size_t vectors) const {
    require(op_.in.size() == in && op_.out.size() == out, "wrong number of slots");
    require(op_.weights.size() == weights, "wrong number of weights");
    require(op_.vectors.size() == vectors, "wrong number of vectors");
    slots();
  }

  void slots() const {
    for (const int s : op_.in) require(valid(s), "no such slot");
    for (const int s : op_.out) require(valid(s), "no such slot");
  }

  const Slot& in(size_t i) const { return slots_[op_.in[i]]; }
  const Slot& out(size_t i) const { return slots_[op_.out[i]]; }

  void floats_in() const {
    for (const int s : op_.in) require(!slots_[s].quantized, "an input is not float");
  }

  // The output may be an int8 slot only where the operation rounds.
  void out_like(int64_t width) const {
    require(out(0).width == width, "the output has another width");
    require(out(0).quantized == op_.quantized, "the output is not of the right kind");
    require(!op_.quantized || width % 32 == 0, "an int8 slot needs a width of whole groups of 32");
  }

  void vector(size_t i, int64_t width) const {
    require(op_.vectors[i] != nullptr, "a vector is missing");
    require(static_cast<int64_t>(op_.vectors[i]->size()) == width, "a vector has another width");
  }

 private:
  bool valid(int s) const { return s >= 0 && static_cast<size_t>(s) < slots_.size(); }

  const Op& op_;
  const size_t index_;
  const std::vector<Slot>& slots_;
};

void check_linear(const Op& op, const OpCheck& c) {
  c.slots();
  c.require(!op.weights.empty() && op.out.size() == op.weights.size(),
            "one output for each weight");
  c.require(op.in.size() == 1 || (op.in.size() == 2 && op.weights.size() == 1),
            "a sum is added to a single weight only");
  c.require(op.vectors.size() <= op.weights.size(), "more biases than weights");
  for (size_t i = 0; i < op.weights.size(); ++i) {
    const ops::Weight& w = *op.weights[i];
    c.require(w.cols() == c.in(0).width, "a weight has another width than its input");
    c.require(quant::is_integer(w.type()) == c.in(0).quantized,
              "the input is not of the kind that the weight needs");
    c.require(c.out(i).width == w.rows() && !c.out(i).quantized, "an output has another width");
    if (i < op.vectors.size() && op.vectors[i] != nullptr) c.vector(i, w.rows());
  }
  if (op.in.size() == 2)
    c.require(c.in(1).width == op.weights[0]->rows() && !c.in(1).quantized,
              "the sum has another width");
}

void check_attention(const Op& op, const OpCheck& c) {
  c.counts(3, 1, 0, 0);
  c.floats_in();
  c.require(op.heads > 0 && op.kv_heads > 0 && op.heads % op.kv_heads == 0 && op.head_dim > 0,
            "heads are no multiple of key-value heads");
  c.require(op.layer >= 0 && op.window >= 0, "negative layer or window");
  c.require(op.causal || op.window == 0, "a window looks back, so it needs causal attention");
  const int64_t kv_width = static_cast<int64_t>(op.kv_heads) * op.head_dim;
  c.require(c.in(0).width == static_cast<int64_t>(op.heads) * op.head_dim, "q has another width");
  c.require(c.in(1).width == kv_width && c.in(2).width == kv_width, "k or v has another width");
  c.out_like(c.in(0).width);
}

void check_rope(const Op& op, const OpCheck& c) {
  c.counts(2, 0, 0, 0);
  c.floats_in();
  c.require(op.groups > 0 && op.head_dim > 0, "no heads");
  c.require(c.in(0).width == static_cast<int64_t>(op.groups) * op.head_dim, "wrong width");
  c.require(c.in(1).width % 2 == 0 && c.in(1).width <= op.head_dim, "more pairs than a head has");
}

void check_norm(const Op& op, const OpCheck& c) {
  c.counts(1, 1, 0, op.kind == OpKind::kLayerNorm ? 2 : 1);
  c.floats_in();
  c.require(op.groups > 0 && c.in(0).width % op.groups == 0, "the width has no such groups");
  c.vector(0, c.in(0).width / op.groups);
  if (op.kind == OpKind::kLayerNorm && op.vectors[1] != nullptr) c.vector(1, c.in(0).width);
  c.out_like(c.in(0).width);
}

void check_hadamard(const Op& op, const OpCheck& c) {
  c.counts(1, 1, 0, 2);
  c.floats_in();
  const int64_t width = c.in(0).width;
  c.require(op.groups > 0 && width % op.groups == 0, "the width has no such blocks");
  const int64_t block = width / op.groups;
  c.require((block & (block - 1)) == 0, "a block is no power of two");
  for (size_t i = 0; i < op.vectors.size(); ++i)
    if (op.vectors[i] != nullptr) c.vector(i, width);
  c.out_like(width);
}

void check_pair(const OpCheck& c) {
  c.counts(2, 1, 0, 0);
  c.floats_in();
  c.require(c.in(0).width == c.in(1).width, "the inputs have different widths");
  c.out_like(c.in(0).width);
}

void check_add_vector(const OpCheck& c) {
  c.counts(1, 1, 0, 1);
  c.floats_in();
  c.vector(0, c.in(0).width);
  c.out_like(c.in(0).width);
}

void check_observe(const Op& op, const OpCheck& c) {
  c.counts(1, 0, 0, 0);
  c.floats_in();
  c.require(op.sums != nullptr && op.sums->cols() == c.in(0).width, "sums of another width");
}

void check_op(const Op& op, const OpCheck& c) {
  switch (op.kind) {
    case OpKind::kEmbed:
    case OpKind::kPositions:
      c.counts(0, 1, 1, 0);
      return c.out_like(op.weights[0]->cols());
    case OpKind::kRopeTable:
      c.counts(0, 1, 0, 1);
      c.require(op.vectors[0] != nullptr, "a vector is missing");
      return c.out_like(2 * static_cast<int64_t>(op.vectors[0]->size()));
    case OpKind::kLinear:
      return check_linear(op, c);
    case OpKind::kAttention:
      return check_attention(op, c);
    case OpKind::kRope:
      return check_rope(op, c);
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
      return check_norm(op, c);
    case OpKind::kHadamard:
      return check_hadamard(op, c);
    case OpKind::kSwiglu:
    case OpKind::kGeglu:
      return check_pair(c);
    case OpKind::kObserve:
      return check_observe(op, c);
    case OpKind::kAdd:
      return op.in.size() == 1 ? check_add_vector(c) : check_pair(c);
    default:
      c.counts(1, 1, 0, 0);
      c.floats_in();
      return c.out_like(c.in(0).width);
  }
}

}  // namespace

void check_ops(const std::vector<Op>& ops, const std::vector<Slot>& slots) {
  if (ops.empty() || ops.front().kind != OpKind::kEmbed)
    throw RequestError("a program starts with an embedding");
  int selects = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    check_op(ops[i], OpCheck(ops[i], i, slots));
    selects += ops[i].kind == OpKind::kSelect ? 1 : 0;
  }
  if (selects != 1 || ops.back().out.size() != 1 || slots[ops.back().out[0]].quantized)
    throw RequestError("a program selects its output rows once and ends with a float result");
}

void check_cache(const std::vector<Op>& ops, const KvPages& pages) {
  for (const Op& op : ops) {
    if (op.kind != OpKind::kAttention) continue;
    const KvShape& shape = pages.shape();
    if (op.layer >= shape.layers || op.kv_heads != shape.kv_heads || op.head_dim != shape.head_dim)
      throw RequestError("the KV cache has another shape than the program");
  }
}

}  // namespace oxibonsai::program
