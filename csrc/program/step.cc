#include "program/step.h"

#include "program/op_runners.h"

namespace oxibonsai::program {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

int64_t slot_bytes(const Slot& slot, int64_t rows) {
  const int64_t values = slot.width * rows;
  if (!slot.quantized) return aligned(values * 4);
  return aligned(values) + 3 * aligned(values / 32 * 4) + aligned(values / 16 * 4);
}

cpu::QuantizeOut Step::quantized(int slot) const {
  const int64_t values = (*slots)[slot].width * rows;
  uint8_t* at = memory[slot];
  const auto take = [&at](int64_t bytes) {
    uint8_t* part = at;
    at += aligned(bytes);
    return part;
  };
  cpu::QuantizeOut out;
  out.q = reinterpret_cast<int8_t*>(take(values));
  out.scale = reinterpret_cast<float*>(take(values / 32 * 4));
  out.sum = reinterpret_cast<int32_t*>(take(values / 32 * 4));
  out.offset = reinterpret_cast<float*>(take(values / 32 * 4));
  out.sum16 = reinterpret_cast<int32_t*>(take(values / 16 * 4));
  return out;
}

const OpRunner& runner(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed:
      return kEmbedRunner;
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
    case OpKind::kAdd:
      return kAddRunner;
    case OpKind::kScale:
      return kScaleRunner;
    default:
      return kSoftcapRunner;
  }
}

}  // namespace oxibonsai::program
