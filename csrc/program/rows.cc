// Operations in which a row of the output depends on the same row of the inputs: one item a row.

#include <cstring>
#include <vector>

#include "cpu/quantized_rows.h"
#include "program/op_runners.h"

namespace oxibonsai::program {
namespace {

int64_t one_item_a_row(const Step&, const Op&, int64_t rows, int) { return rows; }

// Where a fused operation leaves its float row before it is rounded.
float* scratch_row(int64_t width) {
  thread_local std::vector<float> scratch;
  if (static_cast<int64_t>(scratch.size()) < width) scratch.resize(static_cast<size_t>(width));
  return scratch.data();
}

void round_row(const Step& s, int slot, int64_t r, const float* row) {
  cpu::quantize_row(*s.kernels, row, s.quantized(slot), r);
}

// Calls write(row) on the output row r, rounding it afterwards where the operation says so.
template <class F>
void write_row(const Step& s, const Op& op, int64_t r, F write) {
  const int slot = op.out[0];
  if (!op.quantized) {
    write(s.row(slot, r));
    return;
  }
  float* row = scratch_row((*s.slots)[slot].width);
  write(row);
  round_row(s, slot, r, row);
}

void embed(const Step& s, const Op& op, int64_t, int, int64_t r) {
  op.weights[0]->decode_row(s.batch->tokens[r], s.row(op.out[0], r));
}

void select(const Step& s, const Op& op, int64_t, int, int64_t r) {
  const auto bytes = static_cast<size_t>((*s.slots)[op.out[0]].width) * sizeof(float);
  std::memcpy(s.row(op.out[0], r), s.row(op.in[0], s.batch->outputs[r]), bytes);
}

void rms_norm(const Step& s, const Op& op, int64_t, int, int64_t r) {
  const int64_t width = (*s.slots)[op.in[0]].width / op.groups;
  write_row(s, op, r, [&](float* y) {
    const float* x = s.row(op.in[0], r);
    for (int g = 0; g < op.groups; ++g)
      s.kernels->rms_norm(x + g * width, op.vectors[0]->data(), width, op.eps, y + g * width);
  });
}

void layer_norm(const Step& s, const Op& op, int64_t, int, int64_t r) {
  const auto* shift = op.vectors[1].get();
  write_row(s, op, r, [&](float* y) {
    s.kernels->layer_norm(s.row(op.in[0], r), op.vectors[0]->data(),
                          shift != nullptr ? shift->data() : nullptr, (*s.slots)[op.in[0]].width,
                          op.eps, y);
  });
}

void quantize(const Step& s, const Op& op, int64_t, int, int64_t r) {
  round_row(s, op.out[0], r, s.row(op.in[0], r));
}

using GatedUnit = void (*)(const float* gate, const float* up, int64_t n, float* y);

void gated(const Step& s, const Op& op, int64_t r, GatedUnit unit) {
  write_row(s, op, r, [&](float* y) {
    unit(s.row(op.in[0], r), s.row(op.in[1], r), (*s.slots)[op.in[0]].width, y);
  });
}

void swiglu(const Step& s, const Op& op, int64_t, int, int64_t r) {
  gated(s, op, r, s.kernels->swiglu);
}

void geglu(const Step& s, const Op& op, int64_t, int, int64_t r) {
  gated(s, op, r, s.kernels->geglu);
}

void add(const Step& s, const Op& op, int64_t, int, int64_t r) {
  s.kernels->add(s.row(op.in[0], r), s.row(op.in[1], r), (*s.slots)[op.out[0]].width,
                 s.row(op.out[0], r));
}

void scale(const Step& s, const Op& op, int64_t, int, int64_t r) {
  s.kernels->scale(s.row(op.in[0], r), op.scale, (*s.slots)[op.out[0]].width, s.row(op.out[0], r));
}

void softcap(const Step& s, const Op& op, int64_t, int, int64_t r) {
  s.kernels->softcap(s.row(op.in[0], r), op.softcap, (*s.slots)[op.out[0]].width,
                     s.row(op.out[0], r));
}

}  // namespace

const OpRunner kEmbedRunner{1, one_item_a_row, embed};
const OpRunner kSelectRunner{1, one_item_a_row, select};
const OpRunner kRmsNormRunner{1, one_item_a_row, rms_norm};
const OpRunner kLayerNormRunner{1, one_item_a_row, layer_norm};
const OpRunner kQuantizeRunner{1, one_item_a_row, quantize};
const OpRunner kSwigluRunner{1, one_item_a_row, swiglu};
const OpRunner kGegluRunner{1, one_item_a_row, geglu};
const OpRunner kAddRunner{1, one_item_a_row, add};
const OpRunner kScaleRunner{1, one_item_a_row, scale};
const OpRunner kSoftcapRunner{1, one_item_a_row, softcap};

}  // namespace oxibonsai::program
