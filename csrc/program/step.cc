#include "program/step.h"

#include "cpu/quantized_rows.h"
#include "program/op_runners.h"

namespace oxibonsai::program {
int64_t slot_bytes(const Slot& slot, int64_t rows) {
  if (slot.quantized) return cpu::quantized_bytes(rows, slot.width, slot.tables);
  return slot.width * rows * static_cast<int64_t>(sizeof(float));
}

cpu::QuantizedRows Step::quantized(int slot) const {
  const Slot& s = (*slots)[slot];
  return cpu::quantized_rows(memory[slot], rows, s.width, s.tables);
}

const OpRunner& runner(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed:
      return kEmbedRunner;
    case OpKind::kPositions:
      return kPositionsRunner;
    case OpKind::kSelect:
      return kSelectRunner;
    case OpKind::kRmsNorm:
      return kRmsNormRunner;
    case OpKind::kLayerNorm:
      return kLayerNormRunner;
    case OpKind::kQuantize:
      return kQuantizeRunner;
    case OpKind::kLinear:
      return kLinearRunner;
    case OpKind::kRopeTable:
      return kRopeTableRunner;
    case OpKind::kRope:
      return kRopeRunner;
    case OpKind::kAttention:
      return kAttentionRunner;
    case OpKind::kSwiglu:
      return kSwigluRunner;
    case OpKind::kGeglu:
      return kGegluRunner;
    case OpKind::kGelu:
      return kGeluRunner;
    case OpKind::kAdd:
      return kAddRunner;
    case OpKind::kScale:
      return kScaleRunner;
    case OpKind::kHadamard:
      return kHadamardRunner;
    case OpKind::kObserve:
      return kObserveRunner;
    default:
      return kSoftcapRunner;
  }
}

}  // namespace oxibonsai::program
