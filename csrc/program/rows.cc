// Operations in which a row of the output depends on the same row of the inputs. An item is a part
// of a row where parts don't depend on each other, so that all threads work on a single token too.

#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/quantized_rows.h"
#include "program/op_runners.h"

namespace oxibonsai::program {
namespace {

// Columns of a part: a multiple of the 32 that share an activation scale.
constexpr int64_t kPartCols = 1024;

struct Part {
  int64_t row, first, last;  // columns first .. last - 1
};

// Whether parts of this many columns, or whole rows, are the items of an operation.
int64_t part_cols(const Step& s, const Op& op) {
  const int64_t width = (*s.slots)[op.out[0]].width;
  switch (op.kind) {
    case OpKind::kRmsNorm: {
      if (op.groups == 1) return op.quantized ? kPartCols : width;
      const int64_t group = width / op.groups;
      return op.quantized ? width : std::max<int64_t>(1, kPartCols / group) * group;
    }
    case OpKind::kHadamard:  // blocks are powers of two, as the parts are
      return std::max(kPartCols, width / op.groups);
    case OpKind::kQuantize:
    case OpKind::kSwiglu:
    case OpKind::kGeglu:
    case OpKind::kGelu:
      return kPartCols;
    default:
      return width;
  }
}

int64_t parts_in_row(const Step& s, const Op& op) {
  const int64_t cols = part_cols(s, op);
  return ((*s.slots)[op.out[0]].width + cols - 1) / cols;
}

int64_t items(const Step& s, const Op& op, int64_t rows, int) { return rows * parts_in_row(s, op); }

Part part_of(const Step& s, const Op& op, int64_t item) {
  const int64_t count = parts_in_row(s, op);
  const int64_t cols = part_cols(s, op);
  const int64_t first = item % count * cols;
  return {item / count, first, std::min(first + cols, (*s.slots)[op.out[0]].width)};
}

// Where a fused operation leaves its float row before it is rounded.
float* scratch_row(int64_t width) {
  thread_local std::vector<float> scratch;
  if (static_cast<int64_t>(scratch.size()) < width) scratch.resize(static_cast<size_t>(width));
  return scratch.data();
}

// Calls write(part, y) to fill columns part.first .. part.last - 1 of the row y, rounding them
// afterwards where the operation says so.
template <class F>
void write_part(const Step& s, const Op& op, int64_t item, F write) {
  const int slot = op.out[0];
  const Part part = part_of(s, op, item);
  if (!op.quantized) return write(part, s.row(slot, part.row));
  float* row = scratch_row((*s.slots)[slot].width);
  write(part, row);
  cpu::quantize_cols(*s.kernels, row + part.first, s.quantized(slot), part.row, part.first,
                     part.last - part.first);
}

void embed(const Step& s, const Op& op, int64_t, int, int64_t r) {
  op.weights[0]->decode_row(s.batch->tokens[r], s.row(op.out[0], r));
}

void positions(const Step& s, const Op& op, int64_t, int, int64_t r) {
  op.weights[0]->decode_row(s.batch->positions[r], s.row(op.out[0], r));
}

void select(const Step& s, const Op& op, int64_t, int, int64_t r) {
  const auto bytes = static_cast<size_t>((*s.slots)[op.out[0]].width) * sizeof(float);
  std::memcpy(s.row(op.out[0], r), s.row(op.in[0], s.batch->outputs[r]), bytes);
}

void rms_norm(const Step& s, const Op& op, int64_t, int, int64_t item) {
  const int64_t width = (*s.slots)[op.in[0]].width / op.groups;
  const float* w = op.vectors[0]->data();
  write_part(s, op, item, [&](const Part& part, float* y) {
    const float* x = s.row(op.in[0], part.row);
    if (op.groups == 1) return s.kernels->rms_norm(x, w, width, op.eps, part.first, part.last, y);
    for (int64_t at = part.first; at < part.last; at += width)
      s.kernels->rms_norm(x + at, w, width, op.eps, 0, width, y + at);
  });
}

void layer_norm(const Step& s, const Op& op, int64_t, int, int64_t item) {
  const auto* shift = op.vectors[1].get();
  write_part(s, op, item, [&](const Part& part, float* y) {
    s.kernels->layer_norm(s.row(op.in[0], part.row), op.vectors[0]->data(),
                          shift != nullptr ? shift->data() : nullptr, part.last, op.eps, y);
  });
}

void quantize(const Step& s, const Op& op, int64_t, int, int64_t item) {
  const Part part = part_of(s, op, item);
  cpu::quantize_cols(*s.kernels, s.row(op.in[0], part.row) + part.first, s.quantized(op.out[0]),
                     part.row, part.first, part.last - part.first);
}

using GatedUnit = void (*)(const float* gate, const float* up, int64_t n, float* y);

void gated(const Step& s, const Op& op, int64_t item, GatedUnit unit) {
  write_part(s, op, item, [&](const Part& part, float* y) {
    unit(s.row(op.in[0], part.row) + part.first, s.row(op.in[1], part.row) + part.first,
         part.last - part.first, y + part.first);
  });
}

void swiglu(const Step& s, const Op& op, int64_t, int, int64_t item) {
  gated(s, op, item, s.kernels->swiglu);
}

void geglu(const Step& s, const Op& op, int64_t, int, int64_t item) {
  gated(s, op, item, s.kernels->geglu);
}

void gelu(const Step& s, const Op& op, int64_t, int, int64_t item) {
  write_part(s, op, item, [&](const Part& part, float* y) {
    s.kernels->gelu(s.row(op.in[0], part.row) + part.first, part.last - part.first, y + part.first);
  });
}

void add(const Step& s, const Op& op, int64_t, int, int64_t r) {
  const float* b = op.in.size() == 2 ? s.row(op.in[1], r) : op.vectors[0]->data();
  s.kernels->add(s.row(op.in[0], r), b, (*s.slots)[op.out[0]].width, s.row(op.out[0], r));
}

void scale(const Step& s, const Op& op, int64_t, int, int64_t r) {
  s.kernels->scale(s.row(op.in[0], r), op.scale, (*s.slots)[op.out[0]].width, s.row(op.out[0], r));
}

void softcap(const Step& s, const Op& op, int64_t, int, int64_t r) {
  s.kernels->softcap(s.row(op.in[0], r), op.softcap, (*s.slots)[op.out[0]].width,
                     s.row(op.out[0], r));
}

void hadamard(const Step& s, const Op& op, int64_t, int, int64_t item) {
  const auto factors = [&](size_t i, int64_t first) {
    return op.vectors[i] != nullptr ? op.vectors[i]->data() + first : nullptr;
  };
  write_part(s, op, item, [&](const Part& part, float* y) {
    s.kernels->hadamard({s.row(op.in[0], part.row) + part.first, factors(0, part.first),
                         factors(1, part.first), part.last - part.first,
                         (*s.slots)[op.out[0]].width / op.groups, y + part.first});
  });
}

}  // namespace

const OpRunner kEmbedRunner{1, items, embed};
const OpRunner kPositionsRunner{1, items, positions};
const OpRunner kSelectRunner{1, items, select};
const OpRunner kRmsNormRunner{1, items, rms_norm};
const OpRunner kLayerNormRunner{1, items, layer_norm};
const OpRunner kQuantizeRunner{1, items, quantize};
const OpRunner kSwigluRunner{1, items, swiglu};
const OpRunner kGegluRunner{1, items, geglu};
const OpRunner kGeluRunner{1, items, gelu};
const OpRunner kAddRunner{1, items, add};
const OpRunner kScaleRunner{1, items, scale};
const OpRunner kSoftcapRunner{1, items, softcap};
const OpRunner kHadamardRunner{1, items, hadamard};

}  // namespace oxibonsai::program
