// Keys and values to pages, and attention over them.
//
// Attention has three phases. Phase 0 scales the queries: into the output, where they stay until
// the results replace them, or into the workspace where keys and values differ in width. Phase 1
// attends: an item is a few neighbouring rows and some of their heads that share a key-value head,
// or, where few items would leave threads idle over a long context, one part of the context for
// them; phase 2 then merges the parts in order, as one thread would. Where a row sees several
// ranges of positions, the parts of each range follow those of the range before it. A result does
// not depend on what it shares an item with.

#include <algorithm>
#include <string>
#include <vector>

#include "cpu/kv_layout.h"
#include "cpu/kv_rotation.h"
#include "cpu/runner.h"

namespace oxibonsai::cpu {
namespace {

using graph::KeyRange;

constexpr int kPagesInPart = kPartPositions / kPagePositions;

class StoreKvRunner : public Runner {
 public:
  StoreKvRunner(const graph::StoreKv& op, const RunnerContext& c)
      : layer_(op.layer), k_(c.value(op.k)) {
    if (op.v != graph::kNoValue) v_ = c.value(op.v);
  }

  int64_t items(const Step& s, int) const override { return s.rows_of(k_) * heads(s); }

  void run(const Step& s, int, int64_t item) const override {
    const int64_t r = item / heads(s);
    const auto head = static_cast<int>(item % heads(s));
    const KvPages& pages = s.pages_of(r);
    const graph::PagedLayer& layer = pages.layers()[static_cast<size_t>(layer_)];
    const int32_t position = s.positions[static_cast<size_t>(r)];
    const int32_t page = s.span_of(r).pages[static_cast<size_t>(position / kPagePositions)];
    const float* value = nullptr;
    if (!layer.value_in_key) value = s.row(v_, r) + static_cast<int64_t>(head) * layer.value_dim;
    write_kv_position(*s.kernels, pages.layout(layer_), position % kPagePositions,
                      s.row(k_, r) + static_cast<int64_t>(head) * layer.key_dim, value,
                      pages.keys(page, layer_, head), pages.values(page, layer_, head));
  }

 private:
  int heads(const Step& s) const {  // the same in all pools
    return s.state->pools.front()->layers()[static_cast<size_t>(layer_)].kv_heads;
  }

  const int layer_;
  const ValueRef k_;
  ValueRef v_;  // of no storage where keys hold the values
};

// Shape of an attention op.
struct Shape {
  int heads, kv_heads, key_dim, value_dim;
  float scale;
  int window;     // 0: none
  int chunk;      // 0: none
  float softcap;  // 0: none
  graph::Vector slopes, sinks, position_bias;
  graph::KeyPattern pattern;

  int group() const { return heads / kv_heads; }
  // Of position_bias.
  int reach() const { return static_cast<int>(position_bias->size()) / heads / 2; }
  // Floats that a sum of values takes.
  int stride() const { return (value_dim + 15) / 16 * 16; }
  // Scaled queries find room in the output.
  bool in_output() const { return key_dim == value_dim; }
};

// Sets of queries of one item at most: each part of the context, once read, serves all of them.
constexpr int kMaxSets = 8;

// Rows and heads of one item of phase 1.
struct Tiling {
  int rows, heads;  // of a set, which attend() takes at once
  int sets;         // of rows of an item
  int in_group;     // sets of heads in the group of a key-value head
  bool cut;         // an item is one part of the context

  int item_rows() const { return rows * sets; }
};

// Queries that see the same pages: heads first_head .. first_head + heads - 1 of consecutive
// positions of one sequence.
struct Queries {
  int64_t row;
  int rows;
  int kv_head, first_head, heads;
};

// The running softmax of the queries of a set.
struct Running {
  float max[kMaxQueries], sum[kMaxQueries];
  bool begun[kMaxQueries];
  std::vector<float> out;
};

class AttentionRunner : public Runner {
 public:
  AttentionRunner(const Shape& shape, const ValueRef& q, const ValueRef& out, int workspace)
      : shape_(shape),
        no_values_(static_cast<size_t>(shape.stride())),
        q_(q),
        out_(out),
        workspace_(workspace) {}

  int phases() const override { return 3; }

  int64_t items(const Step& s, int phase) const override {
    const int64_t rows = s.rows_of(q_);
    if (phase == 0) return rows * shape_.kv_heads;
    const Tiling t = tiling(s);
    if (phase == 2) return t.cut ? rows * shape_.heads : 0;
    const int64_t tiles = (rows + t.item_rows() - 1) / t.item_rows() * shape_.kv_heads * t.in_group;
    return t.cut ? tiles * all_parts(s) : tiles;
  }

  void run(const Step& s, int phase, int64_t item) const override {
    if (phase == 0)
      return begin(s, item / shape_.kv_heads, static_cast<int>(item % shape_.kv_heads));
    if (phase == 2)
      return merge_parts(s, item / shape_.heads, static_cast<int>(item % shape_.heads));
    const Tiling t = tiling(s);
    const int64_t count = t.cut ? all_parts(s) : 1;
    for_each_run(s, t, item / count, [&](const Queries& b) {
      t.cut ? attend_cut(s, b, static_cast<int>(item % count)) : attend_queries(s, b, t.rows);
    });
  }

  // What prepare() keeps, then scaled queries, then the parts of a cut context.
  int64_t workspace_bytes(const Step& s) const override {
    if (!tiling(s).cut) return parts_offset(s);
    return parts_offset(s) + s.rows_of(q_) * shape_.heads * all_parts(s) * (shape_.stride() + 2) *
                                 static_cast<int64_t>(sizeof(float));
  }

 protected:
  // Phase 0 for a row and a key-value head, beyond the queries.
  virtual void prepare(const Step&, int64_t, int) const {}
  virtual KvLayout layout(const Step& s, int64_t row) const = 0;
  // Page `index` of a row's context.
  virtual const uint8_t* keys(const Step& s, int64_t row, int index, int head) const = 0;
  virtual const uint8_t* values(const Step& s, int64_t row, int index, int head) const = 0;
  // What a row sees: the positions of so many ranges, one after the other.
  virtual int ranges() const { return 1; }
  virtual KeyRange range(const Step& s, int64_t row, int index) const = 0;
  // The row's own position.
  virtual int position(const Step& s, int64_t row) const = 0;
  // Rows with the same number, next to each other, have the same pages.
  virtual int32_t view(const Step& s, int64_t row) const = 0;
  // The largest end of a range of all rows.
  virtual int longest(const Step& s) const = 0;
  // Bytes at the begin of the workspace that prepare() uses.
  virtual int64_t prepared_bytes(const Step&) const { return 0; }

  const Shape& shape() const { return shape_; }
  uint8_t* workspace(const Step& s) const { return s.memory[static_cast<size_t>(workspace_)]; }

 private:
  int64_t parts_offset(const Step& s) const {
    if (shape_.in_output()) return prepared_bytes(s);
    return prepared_bytes(s) + s.rows_of(q_) * q_.cols * static_cast<int64_t>(sizeof(float));
  }

  // A scaled query.
  float* query(const Step& s, int64_t row, int head) const {
    float* all = s.floats(out_);
    if (!shape_.in_output()) all = reinterpret_cast<float*>(workspace(s) + prepared_bytes(s));
    return all + row * q_.cols + static_cast<int64_t>(head) * shape_.key_dim;
  }

  // Of one range, and of all of them.
  int parts(const Step& s) const { return (longest(s) + kPartPositions - 1) / kPartPositions; }
  int all_parts(const Step& s) const { return parts(s) * ranges(); }

  Tiling tiling(const Step& s) const {
    const int64_t rows = s.rows_of(q_);
    const int group = shape_.group();
    Tiling t{};
    const auto items = [&] { return (rows + t.rows - 1) / t.rows * shape_.kv_heads * t.in_group; };
    t.heads = std::min(group, kMaxQueries);
    t.in_group = (group + t.heads - 1) / t.heads;
    t.rows = kMaxQueries / t.heads;
    t.sets = 1;
    if (s.threads == 1 || items() >= 8 * s.threads) {
      while (t.sets < kMaxSets && items() >= 64 * s.threads * t.sets) t.sets *= 2;
      return t;
    }
    t.cut = parts(s) > 1;
    if (t.cut) return t;
    t.rows = 1;
    while (t.heads > 1 && items() < s.threads) {
      --t.heads;
      t.in_group = (group + t.heads - 1) / t.heads;
    }
    return t;
  }

  void begin(const Step& s, int64_t row, int kv_head) const {
    prepare(s, row, kv_head);
    const int dim = shape_.key_dim;
    const int count = shape_.group() * dim;
    float* q = query(s, row, kv_head * shape_.group());
    s.kernels->scale(s.row(q_, row) + static_cast<int64_t>(kv_head) * count, shape_.scale, count,
                     q);
    const KvLayout kv = layout(s, row);
    if (is_rotated(kv.type))
      for (int i = 0; i < count; i += dim) rotate_head(*s.kernels, kv, q + i, dim);
  }

  // Calls body for each run of rows of an item that see the same pages.
  template <class Body>
  void for_each_run(const Step& s, const Tiling& t, int64_t item, const Body& body) const {
    const int64_t sets = static_cast<int64_t>(shape_.kv_heads) * t.in_group;
    const int64_t begin = item / sets * t.item_rows();
    const int64_t end = std::min(s.rows_of(q_), begin + t.item_rows());
    const int64_t set = item % sets;
    const int in_group = static_cast<int>(set % t.in_group) * t.heads;
    Queries b{};
    b.kv_head = static_cast<int>(set / t.in_group);
    b.first_head = b.kv_head * shape_.group() + in_group;
    b.heads = std::min(t.heads, shape_.group() - in_group);
    for (b.row = begin; b.row < end; b.row += b.rows) {
      b.rows = 1;
      while (b.row + b.rows < end && view(s, b.row + b.rows) == view(s, b.row)) ++b.rows;
      body(b);
    }
  }

  // What queries see of one part of a range. AttendArgs::q is set.
  AttendArgs part_args(const Step& s, const Queries& b, int range_index, int part) const {
    AttendArgs a{};
    if (shape_.position_bias != nullptr) a.reach = shape_.reach();
    if (shape_.pattern.any()) a.pattern = &shape_.pattern;
    a.window = shape_.window;
    const int base = a.base = part * kPartPositions;
    for (int i = 0; i < b.rows; ++i) {
      const KeyRange seen = range(s, b.row + i, range_index);
      for (int h = 0; h < b.heads; ++h, ++a.queries) {
        a.q[a.queries] = query(s, b.row + i, b.first_head + h);
        a.first[a.queries] = std::max(seen.begin - base, 0);
        a.last[a.queries] = std::min(seen.end - base, kPartPositions);
        a.at[a.queries] = position(s, b.row + i) - base;
        a.head[a.queries] = b.first_head + h;
        const auto head = static_cast<size_t>(b.first_head + h);
        if (shape_.slopes != nullptr) a.slope[a.queries] = (*shape_.slopes)[head];
        if (shape_.position_bias != nullptr)
          a.position_bias[a.queries] = shape_.position_bias->data() +
                                       head * (2 * static_cast<size_t>(a.reach) + 1) +
                                       static_cast<size_t>(a.reach);
      }
    }
    a.kv = layout(s, b.row);
    a.fetch = true;
    a.softcap = shape_.softcap;
    a.biased = shape_.slopes != nullptr;
    return a;
  }

  void attend_part(const Step& s, const Queries& b, int part, AttendArgs a, Running* state) const {
    const uint8_t* part_keys[kPagesInPart];
    const uint8_t* part_values[kPagesInPart];
    const int first = *std::min_element(a.first, a.first + a.queries);
    const int last = *std::max_element(a.last, a.last + a.queries);
    for (int i = first / kPagePositions; i * kPagePositions < last; ++i) {
      part_keys[i] = keys(s, b.row, part * kPagesInPart + i, b.kv_head);
      part_values[i] = values(s, b.row, part * kPagesInPart + i, b.kv_head);
    }
    a.keys = part_keys;
    a.values = part_values;
    state->out.resize(static_cast<size_t>(kMaxQueries) * static_cast<size_t>(a.kv.value_stride));
    a.max = state->max;
    a.sum = state->sum;
    a.out = state->out.data();
    s.kernels->attend(a);
  }

  // The result of one head of one row: what was summed over the sum of the weights. A sink is one
  // more part, whose values are zero.
  void finish_head(const Step& s, float* values, float max, float sum, int64_t row,
                   int head) const {
    if (shape_.sinks != nullptr) {
      s.kernels->merge_parts(&max, &sum, values, (*shape_.sinks)[static_cast<size_t>(head)], 1.0f,
                             no_values_.data(), shape_.stride());
    }
    float* out = s.row(out_, row) + static_cast<int64_t>(head) * shape_.value_dim;
    s.kernels->scale(values, 1.0f / sum, shape_.value_dim, out);
    const KvLayout kv = layout(s, row);
    if (is_rotated(kv.type)) rotate_head(*s.kernels, kv, out, shape_.value_dim);
  }

  // The result of a row that sees nothing.
  void clear_head(const Step& s, int64_t row, int head) const {
    float* out = s.row(out_, row) + static_cast<int64_t>(head) * shape_.value_dim;
    std::fill_n(out, shape_.value_dim, 0.0f);
  }

  // From the first position that any of the rows sees of a range to the last.
  KeyRange seen_by_any(const Step& s, const Queries& b, int range_index) const {
    KeyRange all{0, 0};
    for (int i = 0; i < b.rows; ++i) {
      const KeyRange one = range(s, b.row + i, range_index);
      if (one.empty()) continue;
      all =
          all.empty() ? one : KeyRange{std::min(all.begin, one.begin), std::max(all.end, one.end)};
    }
    return all;
  }

  // Part after part of what the rows see, `rows` of them at once.
  void attend_queries(const Step& s, const Queries& b, int rows) const {
    thread_local Running sets[kMaxSets];
    for (Running& set : sets) std::fill_n(set.begun, kMaxQueries, false);
    for (int r = 0; r < ranges(); ++r) {
      const KeyRange seen = seen_by_any(s, b, r);
      for (int part = seen.begin / kPartPositions; part * kPartPositions < seen.end; ++part)
        for (int i = 0; i * rows < b.rows; ++i)
          add_part(s, set_of(b, i, rows), r, part, i == 0, &sets[i]);
    }
    const int stride = shape_.stride();
    for (int row = 0; row < b.rows; ++row) {
      Running& set = sets[row / rows];
      for (int h = 0; h < b.heads; ++h) {
        const int q = row % rows * b.heads + h;
        if (set.begun[q])
          finish_head(s, set.out.data() + q * stride, set.max[q], set.sum[q], b.row + row,
                      b.first_head + h);
        else
          clear_head(s, b.row + row, b.first_head + h);
      }
    }
  }

  static Queries set_of(Queries b, int i, int rows) {
    b.row += i * rows;
    b.rows = std::min(rows, b.rows - i * rows);
    return b;
  }

  // Merges what the queries see of a part of a range into what they saw of those before it.
  void add_part(const Step& s, const Queries& b, int range_index, int part, bool fetch,
                Running* all) const {
    thread_local Running next;
    AttendArgs a = part_args(s, b, range_index, part);
    a.fetch = fetch;
    const auto seen = [&](int q) { return a.first[q] < a.last[q]; };
    bool any_seen = false, any_begun = false;
    for (int q = 0; q < a.queries; ++q) {
      any_seen = any_seen || seen(q);
      any_begun = any_begun || all->begun[q];
    }
    if (!any_seen) return;
    Running* state = any_begun ? &next : all;
    attend_part(s, b, part, a, state);
    const int stride = shape_.stride();
    for (int q = 0; q < a.queries; ++q) {
      if (!seen(q)) continue;
      float* out = all->out.data() + q * stride;
      const float* more = state->out.data() + q * stride;
      if (all->begun[q]) {
        s.kernels->merge_parts(&all->max[q], &all->sum[q], out, next.max[q], next.sum[q], more,
                               stride);
      } else if (state != all) {
        all->max[q] = next.max[q];
        all->sum[q] = next.sum[q];
        std::copy(more, more + stride, out);
      }
      all->begun[q] = true;
    }
  }

  // Where a part of one head of one row is kept for phase 2: maximum, sum, then the sums of values.
  float* kept_part(const Step& s, int64_t row, int head, int part) const {
    return reinterpret_cast<float*>(workspace(s) + parts_offset(s)) +
           ((row * shape_.heads + head) * all_parts(s) + part) * (shape_.stride() + 2);
  }

  // One part of the context, of those of all ranges.
  void attend_cut(const Step& s, const Queries& b, int part) const {
    const int in_range = part % parts(s);
    const AttendArgs a = part_args(s, b, part / parts(s), in_range);
    const auto seen = [&](int q) { return a.first[q] < a.last[q]; };
    thread_local Running state;
    bool any = false;
    for (int q = 0; q < a.queries; ++q) any = any || seen(q);
    if (!any) return;
    attend_part(s, b, in_range, a, &state);
    for (int q = 0; q < a.queries; ++q) {
      if (!seen(q)) continue;
      float* kept = kept_part(s, b.row + q / b.heads, b.first_head + q % b.heads, part);
      kept[0] = state.max[q];
      kept[1] = state.sum[q];
      std::copy_n(state.out.data() + static_cast<int64_t>(q) * shape_.stride(), shape_.stride(),
                  kept + 2);
    }
  }

  void merge_parts(const Step& s, int64_t row, int head) const {
    float* all = nullptr;
    for (int r = 0; r < ranges(); ++r) {
      const KeyRange seen = range(s, row, r);
      if (seen.empty()) continue;
      for (int part = seen.begin / kPartPositions; part * kPartPositions < seen.end; ++part) {
        float* next = kept_part(s, row, head, r * parts(s) + part);
        if (all == nullptr)
          all = next;
        else
          s.kernels->merge_parts(&all[0], &all[1], all + 2, next[0], next[1], next + 2,
                                 shape_.stride());
      }
    }
    if (all == nullptr) return clear_head(s, row, head);
    finish_head(s, all + 2, all[0], all[1], row, head);
  }

  const Shape shape_;
  const std::vector<float> no_values_;  // of a sink
  const ValueRef q_, out_;
  const int workspace_;
};

// Over the pages of a sequence; a row sees the positions up to its own, and its block.
class PagedAttentionRunner : public AttentionRunner {
 public:
  PagedAttentionRunner(const Shape& shape, const graph::Attend& op, const ValueRef& q,
                       const ValueRef& out, int workspace)
      : AttentionRunner(shape, q, out, workspace), layer_(op.layer), part_(op.part) {}

 protected:
  KvLayout layout(const Step& s, int64_t row) const override {
    return s.pages_of(row).layout(layer_);
  }
  const uint8_t* keys(const Step& s, int64_t row, int index, int head) const override {
    return s.pages_of(row).keys(page(s, row, index), layer_, head);
  }
  const uint8_t* values(const Step& s, int64_t row, int index, int head) const override {
    return s.pages_of(row).values(page(s, row, index), layer_, head);
  }
  KeyRange range(const Step& s, int64_t row, int) const override {
    return {first_seen(s, row), end_seen(s, row)};
  }
  int position(const Step& s, int64_t row) const override {
    return s.positions[static_cast<size_t>(row)];
  }
  int32_t view(const Step& s, int64_t row) const override {
    return s.span[static_cast<size_t>(row)];
  }
  int longest(const Step& s) const override { return s.longest; }

 private:
  int first_seen(const Step& s, int64_t row) const {
    if (part_ == graph::KeyPart::kOwn) return s.span_of(row).encoded;
    const int at = position(s, row);
    if (shape().chunk > 0) return at / shape().chunk * shape().chunk;
    if (shape().pattern.reaches_back()) return 0;
    return shape().window == 0 ? 0 : std::max(0, at + 1 - shape().window);
  }
  int end_seen(const Step& s, int64_t row) const {
    if (part_ == graph::KeyPart::kEncoded) return s.span_of(row).encoded;
    return s.seen_end[static_cast<size_t>(row)];
  }
  static int32_t page(const Step& s, int64_t row, int index) {
    return s.span_of(row).pages[static_cast<size_t>(index)];
  }

  const int layer_;
  const graph::KeyPart part_;
};

// Among the rows of a segment, of which the mask says what each sees. Their keys and values lie in
// pages of the workspace, head after head: segment i has those from first_row / 64 + i on, which
// are enough for its rows.
class LocalAttentionRunner : public AttentionRunner {
 public:
  LocalAttentionRunner(const Shape& shape, const graph::AttendLocal& op, const ValueRef& q,
                       const ValueRef& k, const ValueRef& v, const ValueRef& out, int workspace)
      : AttentionRunner(shape, q, out, workspace),
        segments_(op.segments),
        mask_(op.mask),
        k_(k),
        v_(v),
        layout_(kv_layout(KvType::kF32, {shape.kv_heads, shape.key_dim, shape.value_dim})) {}

 protected:
  void prepare(const Step& s, int64_t row, int head) const override {
    const int at = position(s, row);
    const int64_t dim = static_cast<int64_t>(head) * layout_.key_dim;
    write_kv_position(*s.kernels, layout_, at % kPagePositions, s.row(k_, row) + dim,
                      s.row(v_, row) + dim, page(s, row, at / kPagePositions, head),
                      page(s, row, at / kPagePositions, head) + layout_.key_bytes);
  }
  KvLayout layout(const Step&, int64_t) const override { return layout_; }
  const uint8_t* keys(const Step& s, int64_t row, int index, int head) const override {
    return page(s, row, index, head);
  }
  const uint8_t* values(const Step& s, int64_t row, int index, int head) const override {
    return page(s, row, index, head) + layout_.key_bytes;
  }
  int ranges() const override { return mask_.ranges(); }
  KeyRange range(const Step& s, int64_t row, int index) const override {
    const int32_t count = segments(s).count[static_cast<size_t>(view(s, row))];
    return mask_.range(position(s, row), count, s.span_of(row).visible, index);
  }
  int position(const Step& s, int64_t row) const override {
    return static_cast<int>(row) - segments(s).first_row[static_cast<size_t>(view(s, row))];
  }
  int32_t view(const Step& s, int64_t row) const override {
    return segments(s).of_row[static_cast<size_t>(row)];
  }
  int longest(const Step& s) const override {
    const std::vector<int32_t>& counts = segments(s).count;
    return *std::max_element(counts.begin(), counts.end());
  }
  int64_t prepared_bytes(const Step& s) const override {
    return head_pages(s) * shape().kv_heads * page_bytes();
  }

 private:
  int64_t page_bytes() const { return layout_.key_bytes + layout_.value_bytes; }
  int64_t head_pages(const Step& s) const {
    return s.rows_of(k_) / kPagePositions + static_cast<int64_t>(segments(s).count.size()) + 1;
  }
  const Segments& segments(const Step& s) const { return s.segments.at(segments_); }
  uint8_t* page(const Step& s, int64_t row, int index, int head) const {
    const int32_t i = view(s, row);
    const int64_t first = segments(s).first_row[static_cast<size_t>(i)] / kPagePositions + i;
    return workspace(s) + (head * head_pages(s) + first + index) * page_bytes();
  }

  const std::string segments_;
  const graph::LocalMask mask_;
  const ValueRef k_, v_;
  const KvLayout layout_;
};

}  // namespace

RunnerPtr make_runner(const graph::StoreKv& op, const RunnerContext& c) {
  return std::make_unique<StoreKvRunner>(op, c);
}

RunnerPtr make_runner(const graph::Attend& op, const RunnerContext& c) {
  const ValueRef q = c.value(op.q);
  const graph::PagedLayer& layer = c.state->paged[static_cast<size_t>(op.layer)];
  const Shape shape{op.heads,  layer.kv_heads, layer.key_dim,    layer.value_dim,
                    op.scale,  op.window,      op.chunk,         op.softcap,
                    op.slopes, op.sinks,       op.position_bias, op.pattern};
  return std::make_unique<PagedAttentionRunner>(shape, op, q, c.value(op.out), c.workspace);
}

RunnerPtr make_runner(const graph::AttendLocal& op, const RunnerContext& c) {
  const ValueRef q = c.value(op.q);
  const ValueRef k = c.value(op.k);
  const Shape shape{static_cast<int>(q.cols / op.head_dim),
                    static_cast<int>(k.cols / op.head_dim),
                    op.head_dim,
                    op.head_dim,
                    op.scale,
                    0,
                    0,
                    0.0f,
                    op.slopes,
                    nullptr,
                    op.position_bias,
                    {}};
  return std::make_unique<LocalAttentionRunner>(shape, op, q, k, c.value(op.v), c.value(op.out),
                                                c.workspace);
}

}  // namespace oxibonsai::cpu
