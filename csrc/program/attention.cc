// Attention over the paged cache. Phase 0 writes the new keys and values and scales the queries;
// phase 1 attends. An item of phase 1 is one row and up to four of its heads that share a
// key-value head; its result doesn't depend on how heads are bundled.

#include <algorithm>
#include <cstring>
#include <vector>

#include "program/op_runners.h"

namespace oxibonsai::program {
namespace {

using cpu::kPageSlots;
using cpu::kPartSlots;
using cpu::KvType;

constexpr int kPagesInPart = kPartSlots / kPageSlots;

int heads_in_bundle(const Step& s, const Op& op, int64_t rows) {
  const int group = op.heads / op.kv_heads;
  const int64_t bundles = rows * op.kv_heads;
  int heads = std::min(group, cpu::kMaxQueries);
  while (heads > 1 && bundles * ((group + heads - 1) / heads) < s.threads) --heads;
  return heads;
}

int64_t attention_items(const Step& s, const Op& op, int64_t rows, int phase) {
  if (phase == 0) return rows;
  const int group = op.heads / op.kv_heads;
  const int bundle = heads_in_bundle(s, op, rows);
  return rows * op.kv_heads * ((group + bundle - 1) / bundle);
}

template <class T>
void put_key(uint8_t* keys, int slot, const T* key, int head_dim) {
  for (int d = 0; d < head_dim; ++d)
    std::memcpy(keys + (static_cast<int64_t>(d) * kPageSlots + slot) * sizeof(T), key + d,
                sizeof(T));
}

template <class T>
void put_value(uint8_t* values, int slot, const T* value, int head_dim, int stride) {
  uint8_t* row = values + static_cast<int64_t>(slot) * stride * sizeof(T);
  std::memcpy(row, value, static_cast<size_t>(head_dim) * sizeof(T));
  std::memset(row + head_dim * sizeof(T), 0, static_cast<size_t>(stride - head_dim) * sizeof(T));
}

void write_cache(const Step& s, const Op& op, int64_t r) {
  const KvPages& pages = *s.pages;
  const int32_t position = s.batch->positions[r];
  const int32_t page = s.batch->pages[s.batch->sequence[r]][position / kPageSlots];
  const int slot = position % kPageSlots;
  const int dim = op.head_dim;
  std::vector<uint16_t> half(static_cast<size_t>(dim));
  for (int h = 0; h < op.kv_heads; ++h) {
    const float* key = s.row(op.in[1], r) + h * dim;
    const float* value = s.row(op.in[2], r) + h * dim;
    uint8_t* keys = pages.keys(page, op.layer, h);
    uint8_t* values = pages.values(page, op.layer, h);
    if (pages.type() == KvType::kF32) {
      put_key(keys, slot, key, dim);
      put_value(values, slot, value, dim, pages.value_stride());
    } else {
      s.kernels->to_half(key, dim, half.data());
      put_key(keys, slot, half.data(), dim);
      s.kernels->to_half(value, dim, half.data());
      put_value(values, slot, half.data(), dim, pages.value_stride());
    }
  }
  float* q = s.row(op.in[0], r);
  s.kernels->scale(q, op.scale, (*s.slots)[op.in[0]].width, q);
}

// The running softmax of a bundle of queries.
struct Running {
  float top[cpu::kMaxQueries], mass[cpu::kMaxQueries];
  std::vector<float> out;
  explicit Running(int stride) : out(static_cast<size_t>(cpu::kMaxQueries) * stride) {}
};

void attend_part(const Step& s, const Op& op, int64_t r, int kv_head, int part, int first, int last,
                 cpu::AttendArgs a, Running* part_state) {
  const std::vector<int32_t>& table = s.batch->pages[s.batch->sequence[r]];
  const uint8_t* keys[kPagesInPart];
  const uint8_t* values[kPagesInPart];
  const int base = part * kPartSlots;
  a.first = std::max(first - base, 0);
  a.last = std::min(last - base, kPartSlots);
  for (int i = a.first / kPageSlots; i * kPageSlots < a.last; ++i) {
    const int32_t page = table[part * kPagesInPart + i];
    keys[i] = s.pages->keys(page, op.layer, kv_head);
    values[i] = s.pages->values(page, op.layer, kv_head);
  }
  a.keys = keys;
  a.values = values;
  a.top = part_state->top;
  a.mass = part_state->mass;
  a.out = part_state->out.data();
  s.kernels->attend(a);
}

void attend(const Step& s, const Op& op, int64_t rows, int64_t item) {
  const int group = op.heads / op.kv_heads;
  const int bundle = heads_in_bundle(s, op, rows);
  const int bundles = (group + bundle - 1) / bundle;
  const int64_t r = item / (op.kv_heads * bundles);
  const auto kv_head = static_cast<int>(item / bundles % op.kv_heads);
  const auto first_query = static_cast<int>(item % bundles) * bundle;
  const int stride = s.pages->value_stride();
  cpu::AttendArgs a{};
  const int head = kv_head * group + first_query;
  a.q = s.row(op.in[0], r) + head * op.head_dim;
  a.queries = std::min(bundle, group - first_query);
  a.head_dim = op.head_dim;
  a.value_stride = stride;
  a.type = s.pages->type();
  a.softcap = op.softcap;
  const int last = s.batch->positions[r] + 1;
  const int first = op.window > 0 ? std::max(0, last - op.window) : 0;
  const int first_part = first / kPartSlots;
  thread_local std::vector<Running> states;
  states.assign(2, Running(stride));
  Running& sum = states[0];
  attend_part(s, op, r, kv_head, first_part, first, last, a, &sum);
  for (int part = first_part + 1; part * kPartSlots < last; ++part) {
    Running& next = states[1];
    attend_part(s, op, r, kv_head, part, first, last, a, &next);
    for (int q = 0; q < a.queries; ++q)
      s.kernels->fold_parts(&sum.top[q], &sum.mass[q], sum.out.data() + q * stride, next.top[q],
                            next.mass[q], next.out.data() + q * stride, stride);
  }
  float* y = s.row(op.out[0], r) + head * op.head_dim;
  for (int q = 0; q < a.queries; ++q)
    s.kernels->scale(sum.out.data() + q * stride, 1.0f / sum.mass[q], op.head_dim,
                     y + q * op.head_dim);
}

void attention(const Step& s, const Op& op, int64_t rows, int phase, int64_t item) {
  if (phase == 0)
    write_cache(s, op, item);
  else
    attend(s, op, rows, item);
}

}  // namespace

const OpRunner kAttentionRunner{2, attention_items, attention};

}  // namespace oxibonsai::program
