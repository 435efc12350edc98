#include "gpu/unpack_weight.h"

#include <cstring>

#include "quant/unpack.h"

namespace oxibonsai::gpu {
namespace {

using quant::QuantType;

struct Bits {
  int low, high;
};

// Bits of a code, as planes hold them.
Bits bits_of(QuantType type) {
  switch (type) {
    case QuantType::kQ1_0:
      return {1, 0};
    case QuantType::kQ2_0_g64:
    case QuantType::kQ2_0_g128:
    case QuantType::kPTQ1_0:
    case QuantType::kTQ2_0_g128:
    case QuantType::kTQ1_0:
    case QuantType::kTQ2_0:
    case QuantType::kQ2_K:
      return {2, 0};
    case QuantType::kQ3_K:
      return {2, 1};
    case QuantType::kQ5_0:
    case QuantType::kQ5_1:
    case QuantType::kQ5_K:
      return {4, 1};
    case QuantType::kQ6_K:
      return {4, 2};
    case QuantType::kQ8_0:
    case QuantType::kQ8_1:
    case QuantType::kQ8_K:
      return {8, 0};
    default:  // Q4 and codebooks
      return {4, 0};
  }
}

// Columns that share a d.
int block_of(QuantType type) {
  const quant::CodeForm form = quant::code_form(type);
  return form.wide_group != 0 ? form.wide_group : quant::traits(type).group;
}

// Hands out places of planes, each on a 16-byte boundary.
class Places {
 public:
  uint64_t take(int64_t bytes) {
    const int64_t at = used_;
    used_ += (bytes + 15) / 16 * 16;
    return static_cast<uint64_t>(at);
  }
  int64_t used() const { return used_; }

 private:
  int64_t used_ = 0;
};

// The planes of a matrix; bytes of all of them at `total`.
args::LinearArgs place_planes(const graph::Weight& w, int64_t* total) {
  const quant::CodeForm form = quant::code_form(w.type());
  const Bits bits = bits_of(w.type());
  const int64_t values = w.rows() * w.cols();
  const int64_t blocks = values / block_of(w.type());
  const int64_t groups = form.scale_group != 0 ? values / form.scale_group : 0;
  args::LinearArgs a{};
  Places places;
  a.low = places.take(values * bits.low / 8);
  a.high = places.take(values * bits.high / 8);
  a.d = places.take(blocks * (form.wide_group != 0 ? 4 : 2));
  a.m = places.take(form.has_min ? blocks * 2 : 0);
  a.scale = places.take(groups);
  a.min = places.take(form.has_min ? groups : 0);
  *total = (places.used() + 255) / 256 * 256;
  return a;
}

// `bits` bits of 32 codes, from `shift` on, as words of a segment.
void put_segment(const uint8_t* code, int shift, int bits, uint8_t* words) {
  const int in_word = 8 / bits;
  for (int first = 0; first < 8; first += in_word) {
    uint32_t word = 0;
    for (int p = 0; p < in_word; ++p) {
      uint32_t quad;
      std::memcpy(&quad, code + 4 * (first + p), sizeof quad);
      word |= ((quad >> shift) & (0x01010101u * ((1u << bits) - 1u))) << (bits * p);
    }
    std::memcpy(words + first / in_word * 4, &word, sizeof word);
  }
}

// Writes the blocks of one matrix to its planes.
class PlaneWriter {
 public:
  PlaneWriter(const graph::Weight& w, const args::LinearArgs& at, uint8_t* planes)
      : w_(w),
        at_(at),
        form_(quant::code_form(w.type())),
        bits_(bits_of(w.type())),
        group_(quant::traits(w.type()).group),
        planes_(planes) {}

  // A block of a row, whose first column is `col`.
  void put(quant::BlockParts* parts, int64_t row, int64_t col) const {
    const int64_t segments = w_.cols() / 32;
    if (bits_.low == 8)
      for (int i = 0; i < group_; ++i) parts->code[i] ^= 0x80;
    for (int i = 0; i < group_; i += 32) {
      const int64_t segment = row * segments + (col + i) / 32;
      put_segment(parts->code + i, 0, bits_.low, planes_ + at_.low + segment * 4 * bits_.low);
      if (bits_.high != 0)
        put_segment(parts->code + i, bits_.low, bits_.high,
                    planes_ + at_.high + segment * 4 * bits_.high);
    }
    put_block_scales(*parts, row, col);
    if (form_.scale_group != 0) put_group_scales(*parts, row, col);
  }

 private:
  template <class T>
  void put_value(uint64_t plane, int64_t index, T value) const {
    std::memcpy(planes_ + plane + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }

  void put_block_scales(const quant::BlockParts& parts, int64_t row, int64_t col) const {
    if (form_.wide_group == 0) {
      const int64_t index = col / group_ * w_.rows() + row;
      put_value(at_.d, index, parts.d);
      if (form_.has_min) put_value(at_.m, index, parts.m);
      return;
    }
    for (int i = 0; i < group_; i += form_.wide_group)
      put_value(at_.d, (col + i) / form_.wide_group * w_.rows() + row,
                parts.wide[i / form_.wide_group]);
  }

  void put_group_scales(const quant::BlockParts& parts, int64_t row, int64_t col) const {
    const int64_t in_row = w_.cols() / form_.scale_group;
    for (int i = 0; i < group_ / form_.scale_group; ++i) {
      const int64_t index = col / form_.scale_group + i;
      put_value(at_.scale, row * in_row + index, parts.scale[i]);
      if (form_.has_min) put_value(at_.min, index * w_.rows() + row, parts.min[i]);
    }
  }

  const graph::Weight& w_;
  const args::LinearArgs& at_;
  const quant::CodeForm form_;
  const Bits bits_;
  const int group_;
  uint8_t* const planes_;
};

}  // namespace

std::string form_name(QuantType type) {
  const quant::CodeForm form = quant::code_form(type);
  const Bits bits = bits_of(type);
  std::string name = form.codebook != nullptr ? "book" : "q" + std::to_string(bits.low + bits.high);
  if (form.wide_group == 16) name += "_halves";
  if (form.scale_group != 0) name += "_scale" + std::to_string(form.scale_group);
  return form.has_min ? name + "_min" : name;
}

int64_t unpack_bytes(const graph::Weight& weight) {
  int64_t total;
  place_planes(weight, &total);
  return total;
}

args::LinearArgs unpack_args(const graph::Weight& w, int64_t first, int64_t rows) {
  int64_t total;
  args::LinearArgs a = place_planes(w, &total);
  const quant::CodeForm form = quant::code_form(w.type());
  const Bits bits = bits_of(w.type());
  a.low += static_cast<uint64_t>(first * w.cols() * bits.low / 8);
  a.high += static_cast<uint64_t>(first * w.cols() * bits.high / 8);
  a.d += static_cast<uint64_t>(first * (form.wide_group != 0 ? 4 : 2));
  a.m += static_cast<uint64_t>(first * 2);
  if (form.scale_group != 0) a.scale += static_cast<uint64_t>(first * w.cols() / form.scale_group);
  a.min += static_cast<uint64_t>(first);
  a.expert_bytes = static_cast<uint64_t>(total);
  a.plane_rows = static_cast<uint64_t>(w.rows());
  a.rows = static_cast<uint32_t>(rows);
  a.cols = static_cast<uint32_t>(w.cols());
  a.group = static_cast<uint32_t>(block_of(w.type()));
  a.wide = form.wide_group != 0;
  a.step = 1;
  if (form.codebook != nullptr) {
    std::memcpy(a.codebook, form.codebook, sizeof a.codebook);
  } else if (bits.low != 8) {
    a.step = form.step;
    a.offset = form.offset;
  }
  return a;
}

void split_rows(const graph::Weight& w, int64_t expert, int64_t first, int64_t last,
                uint8_t* planes) {
  int64_t total;
  const args::LinearArgs at = place_planes(w, &total);
  const quant::QuantTraits& t = quant::traits(w.type());
  const PlaneWriter writer(w, at, planes);
  const int64_t begin = expert * w.rows();
  w.check_finite(begin + first, begin + last);
  quant::BlockParts parts;
  for (int64_t row = first; row < last; ++row) {
    const uint8_t* block = w.row(begin + row);
    for (int64_t col = 0; col < w.cols(); col += t.group, block += t.bytes) {
      quant::unpack_block(w.type(), block, &parts);
      writer.put(&parts, row, col);
    }
  }
  w.release(begin + first, begin + last);
}

}  // namespace oxibonsai::gpu
