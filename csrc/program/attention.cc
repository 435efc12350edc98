// Attention over the paged cache. Phase 0 writes the new keys and values and scales the queries;
// phase 1 attends. An item of phase 1 is a few neighbouring rows and some of their heads that share
// a key-value head; a result doesn't depend on what it is bundled with. Where few items would leave
// threads idle over a long context, an item is one part of the context for its rows, and phase 2
// folds the parts in order, as one thread would.

#include <algorithm>
#include <vector>

#include "cpu/kv_layout.h"
#include "cpu/kv_rotation.h"
#include "program/op_runners.h"

namespace oxibonsai::program {
namespace {

using cpu::kPageSlots;
using cpu::kPartSlots;

constexpr int kPagesInPart = kPartSlots / kPageSlots;

// The same in all pools of a step.
int value_stride(const Step& s) { return s.pools->front()->layout().value_stride; }

// Rows and heads of one item of phase 1.
struct Bundle {
  int rows, heads;
  int in_group;  // bundles of heads in the group of a key-value head
  bool cut;      // an item is one part of the context
};

Bundle bundle_of(const Step& s, const Op& op, int64_t rows) {
  const int group = op.heads / op.kv_heads;
  Bundle b{};
  const auto items = [&] { return (rows + b.rows - 1) / b.rows * op.kv_heads * b.in_group; };
  b.heads = std::min(group, cpu::kMaxQueries);
  b.in_group = (group + b.heads - 1) / b.heads;
  b.rows = cpu::kMaxQueries / b.heads;
  if (s.threads == 1 || items() >= 8 * s.threads) return b;
  b.cut = s.parts > 1;
  if (b.cut) return b;
  b.rows = 1;
  while (b.heads > 1 && items() < s.threads) {
    --b.heads;
    b.in_group = (group + b.heads - 1) / b.heads;
  }
  return b;
}

int64_t attention_items(const Step& s, const Op& op, int64_t rows, int phase) {
  const Bundle b = bundle_of(s, op, rows);
  if (phase == 0) return rows * op.kv_heads;
  if (phase == 2) return b.cut ? rows * op.heads : 0;
  const int64_t bundles = (rows + b.rows - 1) / b.rows * op.kv_heads * b.in_group;
  return b.cut ? bundles * s.parts : bundles;
}

// The keys and values of one key-value head of one row, and the scaling of its queries.
void write_cache(const Step& s, const Op& op, int64_t item) {
  const int64_t r = item / op.kv_heads;
  const auto head = static_cast<int>(item % op.kv_heads);
  const KvPages& pages = s.pages_of(r);
  const int32_t position = s.batch->positions[r];
  const int32_t page = s.batch->pages[s.batch->sequence[r]][position / kPageSlots];
  const int dim = op.head_dim;
  cpu::write_kv_slot(*s.kernels, pages.layout(), position % kPageSlots,
                     s.row(op.in[1], r) + head * dim, s.row(op.in[2], r) + head * dim,
                     pages.keys(page, op.layer, head), pages.values(page, op.layer, head));
  const int queries = op.heads / op.kv_heads * dim;
  float* q = s.row(op.in[0], r) + static_cast<int64_t>(head) * queries;
  s.kernels->scale(q, op.scale, queries, q);
  if (cpu::is_rotated(pages.layout().type))
    for (int i = 0; i < queries; i += dim) cpu::rotate_head(*s.kernels, q + i, dim);
}

// One past the last position that the query of row `r` sees.
int end_seen(const Step& s, const Op& op, int64_t r) {
  return op.causal ? s.batch->positions[r] + 1 : s.ends[s.batch->sequence[r]];
}

// The first position that a query sees that sees none from `last` on.
int first_seen(const Op& op, int last) { return op.window > 0 ? std::max(0, last - op.window) : 0; }

// The running softmax of a bundle of queries.
struct Running {
  float top[cpu::kMaxQueries], mass[cpu::kMaxQueries];
  std::vector<float> out;
};

// The queries of an item that see the same pages: heads first .. first + heads - 1 of a group, of
// consecutive positions of one sequence.
struct Queries {
  int64_t row;
  int rows;
  int kv_head, first_head, heads;
};

// What queries see of one part. AttendArgs::q is set.
cpu::AttendArgs part_args(const Step& s, const Op& op, const Queries& b, int part) {
  cpu::AttendArgs a{};
  const int base = part * kPartSlots;
  for (int i = 0; i < b.rows; ++i) {
    const int last = end_seen(s, op, b.row + i);
    const int first = first_seen(op, last);
    for (int h = 0; h < b.heads; ++h, ++a.queries) {
      a.q[a.queries] = s.row(op.in[0], b.row + i) + (b.first_head + h) * op.head_dim;
      a.first[a.queries] = std::max(first - base, 0);
      a.last[a.queries] = std::min(last - base, kPartSlots);
    }
  }
  a.kv = s.pages_of(b.row).layout();
  a.softcap = op.softcap;
  return a;
}

void attend_part(const Step& s, const Op& op, const Queries& b, int part, cpu::AttendArgs a,
                 Running* state) {
  const std::vector<int32_t>& table = s.batch->pages[s.batch->sequence[b.row]];
  const KvPages& pages = s.pages_of(b.row);
  const uint8_t* keys[kPagesInPart];
  const uint8_t* values[kPagesInPart];
  const int first = *std::min_element(a.first, a.first + a.queries);
  const int last = *std::max_element(a.last, a.last + a.queries);
  for (int i = first / kPageSlots; i * kPageSlots < last; ++i) {
    const int32_t page = table[part * kPagesInPart + i];
    keys[i] = pages.keys(page, op.layer, b.kv_head);
    values[i] = pages.values(page, op.layer, b.kv_head);
  }
  a.keys = keys;
  a.values = values;
  state->out.resize(static_cast<size_t>(cpu::kMaxQueries) * a.kv.value_stride);
  a.top = state->top;
  a.mass = state->mass;
  a.out = state->out.data();
  s.kernels->attend(a);
}

// The result of one head of one row: what was summed over the mass.
void finish_head(const Step& s, const Op& op, const float* sum, float mass, int64_t row, int head) {
  float* out = s.row(op.out[0], row) + static_cast<int64_t>(head) * op.head_dim;
  s.kernels->scale(sum, 1.0f / mass, op.head_dim, out);
  if (cpu::is_rotated(s.pages_of(row).layout().type))
    cpu::rotate_head(*s.kernels, out, op.head_dim);
}

void attend_queries(const Step& s, const Op& op, const Queries& b) {
  thread_local Running sum, next;
  const int stride = value_stride(s);
  const int last = end_seen(s, op, b.row + b.rows - 1);
  const int first_part = first_seen(op, end_seen(s, op, b.row)) / kPartSlots;
  bool begun[cpu::kMaxQueries] = {};
  for (int part = first_part; part * kPartSlots < last; ++part) {
    const cpu::AttendArgs a = part_args(s, op, b, part);
    attend_part(s, op, b, part, a, part == first_part ? &sum : &next);
    for (int q = 0; q < a.queries; ++q) {
      if (a.first[q] >= a.last[q]) continue;
      float* out = sum.out.data() + q * stride;
      const float* more = next.out.data() + q * stride;
      if (begun[q]) {
        s.kernels->fold_parts(&sum.top[q], &sum.mass[q], out, next.top[q], next.mass[q], more,
                              stride);
      } else if (part != first_part) {
        sum.top[q] = next.top[q];
        sum.mass[q] = next.mass[q];
        std::copy(more, more + stride, out);
      }
      begun[q] = true;
    }
  }
  for (int q = 0; q < b.rows * b.heads; ++q)
    finish_head(s, op, sum.out.data() + q * stride, sum.mass[q], b.row + q / b.heads,
                b.first_head + q % b.heads);
}

// Bundle `index` of the heads of all key-value heads, for rows from `row` on.
Queries queries_of(const Op& op, const Bundle& bundle, int64_t row, int64_t index) {
  const int group = op.heads / op.kv_heads;
  const auto in_group = static_cast<int>(index % bundle.in_group) * bundle.heads;
  Queries b{};
  b.row = row;
  b.rows = 1;
  b.kv_head = static_cast<int>(index / bundle.in_group);
  b.first_head = b.kv_head * group + in_group;
  b.heads = std::min(bundle.heads, group - in_group);
  return b;
}

// Calls body for each run of rows of a bundle that see the same pages.
template <class Body>
void for_each_run(const Step& s, const Op& op, int64_t rows, const Bundle& bundle, int64_t item,
                  const Body& body) {
  const int64_t bundles = op.kv_heads * bundle.in_group;
  const int64_t begin = item / bundles * bundle.rows;
  const int64_t end = std::min(rows, begin + bundle.rows);
  Queries b = queries_of(op, bundle, begin, item % bundles);
  const std::vector<int32_t>& sequence = s.batch->sequence;
  const std::vector<int32_t>& position = s.batch->positions;
  for (; b.row < end; b.row += b.rows) {
    b.rows = 1;
    while (b.row + b.rows < end && sequence[b.row + b.rows] == sequence[b.row] &&
           position[b.row + b.rows] == position[b.row] + b.rows)
      ++b.rows;
    body(b);
  }
}

// Where a part of one head of one row is kept for phase 2: top, mass, then the sums of values.
float* kept_part(const Step& s, const Op& op, int64_t row, int head, int part) {
  const int64_t size = value_stride(s) + 2;
  return s.kept_parts + ((row * op.heads + head) * s.parts + part) * size;
}

// One part of the context.
void attend_cut(const Step& s, const Op& op, const Queries& b, int part) {
  const cpu::AttendArgs a = part_args(s, op, b, part);
  const auto seen = [&](int q) { return a.first[q] < a.last[q]; };
  thread_local Running state;
  bool begun = false;
  for (int q = 0; q < a.queries; ++q) begun = begun || seen(q);
  if (!begun) return;
  attend_part(s, op, b, part, a, &state);
  for (int q = 0; q < a.queries; ++q) {
    if (!seen(q)) continue;
    float* kept = kept_part(s, op, b.row + q / b.heads, b.first_head + q % b.heads, part);
    kept[0] = state.top[q];
    kept[1] = state.mass[q];
    std::copy_n(state.out.data() + q * a.kv.value_stride, a.kv.value_stride, kept + 2);
  }
}

// An item of phase 1.
void attend(const Step& s, const Op& op, int64_t rows, int64_t item) {
  const Bundle bundle = bundle_of(s, op, rows);
  const int64_t parts = bundle.cut ? s.parts : 1;
  for_each_run(s, op, rows, bundle, item / parts, [&](const Queries& b) {
    bundle.cut ? attend_cut(s, op, b, static_cast<int>(item % parts)) : attend_queries(s, op, b);
  });
}

// An item of phase 2: one head of one row.
void fold(const Step& s, const Op& op, int64_t item) {
  const int64_t row = item / op.heads;
  const auto head = static_cast<int>(item % op.heads);
  const int last = end_seen(s, op, row);
  const int first_part = first_seen(op, last) / kPartSlots;
  float* sum = kept_part(s, op, row, head, first_part);
  for (int part = first_part + 1; part * kPartSlots < last; ++part) {
    const float* next = kept_part(s, op, row, head, part);
    s.kernels->fold_parts(&sum[0], &sum[1], sum + 2, next[0], next[1], next + 2, value_stride(s));
  }
  finish_head(s, op, sum + 2, sum[1], row, head);
}

void attention(const Step& s, const Op& op, int64_t rows, int phase, int64_t item) {
  if (phase == 0) return write_cache(s, op, item);
  if (phase == 2) return fold(s, op, item);
  attend(s, op, rows, item);
}

}  // namespace

int64_t kept_floats(const Step& s, const Op& op) {
  if (!bundle_of(s, op, s.rows).cut) return 0;
  return s.rows * op.heads * s.parts * (value_stride(s) + 2);
}

const OpRunner kAttentionRunner{3, attention_items, attention};

}  // namespace oxibonsai::program
