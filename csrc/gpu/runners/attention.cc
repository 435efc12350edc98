// Keys and values to pages, and attention over them (gpu/kernels/attention.h). What one launch
// serves lies in one pool of pages, or in the workspace for attend_local.

#include <algorithm>
#include <string>

#include "gpu/runners/flat.h"

namespace oxibonsai::gpu {
namespace {

constexpr uint32_t kStoreThreads = 32, kAttendThreads = 128;
constexpr int kPartPositions = 512, kPartTiles = kPartPositions / graph::kPagePositions;
constexpr int kMostDims = 640, kMostDimsOfOne = 256;  // of attend_one
// Rows of a sequence up to which a block of threads takes a tile of the context: a token, and
// drafts of some more.
constexpr int32_t kTileRows = 16;

// A kernel of attention: how many queries a block of threads takes, of at most so many dims, and
// how many pieces of a part of the context it leaves to be merged.
struct AttendKernel {
  const char* name;
  const char* merge;
  int queries, dims, pieces;
};
constexpr AttendKernel kOfTiles{"attend_tile", "merge_tiles", 4, kMostDims, kPartTiles};
// Tiles are merged where they are made.
constexpr AttendKernel kOfParts[] = {{"attend_part", "merge_parts", 16, 128, 1},
                                     {"attend_wide_part", "merge_parts", 8, 256, 1}};

args::PageArgs page_args(const graph::KvLayout& l, int kv_heads, int64_t page_bytes,
                         int64_t offset) {
  args::PageArgs a{};
  a.page_bytes = static_cast<uint64_t>(page_bytes);
  a.layer_offset = static_cast<uint64_t>(offset);
  a.head_bytes = static_cast<uint64_t>(graph::head_bytes(l));
  a.key_bytes = static_cast<uint64_t>(l.key_bytes);
  a.key_scales = static_cast<uint32_t>(l.key_scales);
  a.value_scales = static_cast<uint32_t>(l.value_scales);
  a.value_row = static_cast<uint32_t>(l.value_row);
  a.kv_heads = static_cast<uint32_t>(kv_heads);
  a.key_dim = static_cast<uint32_t>(l.key_dim);
  a.value_dim = static_cast<uint32_t>(l.value_dim);
  a.value_in_key = l.value_in_key;
  if (graph::is_rotated(l.type)) {
    a.rotate_key = static_cast<uint32_t>(graph::rotation_block(l, l.key_dim));
    a.rotate_value = static_cast<uint32_t>(graph::rotation_block(l, l.value_dim));
  }
  return a;
}

std::string kernel_name(const char* what, graph::KvType type) {
  static constexpr const char* kNames[] = {"F32", "F16", "Q8_0", "Q4_0", "FP8"};
  return std::string(what) + "_" + kNames[static_cast<size_t>(type)];
}

void check_dims(const graph::PagedLayer& layer) {
  const int dims = std::max(layer.key_dim, layer.value_dim);
  if (dims > kMostDims)
    throw UnsupportedError("attention over heads of " + std::to_string(dims) +
                           " dims: GPUs have a kernel for up to " + std::to_string(kMostDims));
}

// Where the rows of a launch keep their keys and values.
struct PageSet {
  graph::KvType type;
  args::PageArgs args;
  Address pages;
  int pool;                    // -1: of the workspace
  LocalKey local;              // there
  int64_t rows, rows_at;       // how many rows, and their numbers in the step's tables
  std::vector<int64_t> views;  // of attention, by range of what rows see
  int64_t places, tables;
  int longest;
};

PageSet pool_pages(const Step& s, int pool, int layer) {
  const KvPages& pages = *s.state->pools[static_cast<size_t>(pool)];
  const auto p = static_cast<size_t>(pool);
  return {pages.layout(layer).type,
          page_args(pages.layout(layer), pages.layers()[static_cast<size_t>(layer)].kv_heads,
                    pages.page_bytes(), pages.offset(layer)),
          pages.data(),
          pool,
          {},
          static_cast<int64_t>(s.tables.rows_of_pool[p].size()),
          s.tables.pool_rows[p],
          {},
          s.tables.places,
          s.tables.pages,
          s.tables.longest};
}

void store(const Step& s, const PageSet& set, const ValueRef& k, const ValueRef& v) {
  if (set.rows == 0) return;
  s.launch(kernel_name("store_kv", set.type).c_str(),
           {static_cast<uint32_t>(set.rows), set.args.kv_heads}, kStoreThreads, set.args,
           std::array<Address, 5>{s.address(k), s.address(v), s.table(set.rows_at),
                                  s.table(set.places), set.pages});
}

// What joins the scores: on the device, null where nothing does.
struct Biases {
  Address slopes, by_position, sinks;
  uint32_t reach = 0;  // of by_position
};

Biases put_biases(Constants* constants, const graph::Vector& slopes,
                  const graph::Vector& by_position, const graph::Vector& sinks, int heads) {
  Biases b{constants->put(slopes), constants->put(by_position), constants->put(sinks)};
  if (by_position != nullptr)
    b.reach = static_cast<uint32_t>(by_position->size()) / static_cast<uint32_t>(heads) / 2;
  return b;
}

// PrepareHeads as its kernels see it.
struct Preparation {
  Preparation(const graph::PrepareHeads& op, const RunnerContext& c);

  // The same for pages of one pool.
  args::PrepareArgs of(const PageSet& set) const {
    args::PrepareArgs a = args;
    a.page = set.args;
    return a;
  }

  ValueRef q, k, v, table, out;
  Address q_weight, k_weight;
  args::PrepareArgs args{};
};

Preparation::Preparation(const graph::PrepareHeads& op, const RunnerContext& c)
    : q(c.value(op.q)),
      k(c.value(op.k)),
      v(c.value(op.v)),
      table(c.value(op.table)),
      out(c.value(op.out)),
      q_weight(c.constants->put(op.q_weight)),
      k_weight(c.constants->put(op.k_weight)) {
  const int dim = c.state->paged[static_cast<size_t>(op.layer)].key_dim;
  const auto own = [dim](const graph::Vector& w) {
    return w == nullptr ? 1u : static_cast<uint32_t>(w->size()) / static_cast<uint32_t>(dim);
  };
  args.heads = static_cast<uint32_t>(q.cols / dim);
  args.pairs = static_cast<uint32_t>(table.cols / 2);
  args.interleaved = op.interleaved;
  args.norms_q = op.q_weight != nullptr;
  args.norms_k = op.k_weight != nullptr;
  args.own_q = own(op.q_weight);
  args.own_k = own(op.k_weight);
  args.eps_q = op.q_eps;
  args.eps_k = op.k_eps;
}

// What all attention shares.
class Attention {
 public:
  Attention(const ValueRef& q, const ValueRef& out, int heads, const graph::PagedLayer& layer,
            float scale, int window, int chunk, float softcap, const Biases& biases,
            int64_t memory_limit, const graph::KeyPattern& pattern = {})
      : q_(q), out_(out), layer_(layer), biases_(biases), memory_limit_(memory_limit) {
    check_dims(layer);
    args_.heads = static_cast<uint32_t>(heads);
    args_.window = static_cast<uint32_t>(window);
    args_.chunk = static_cast<uint32_t>(chunk);
    args_.has_pattern = pattern.any();
    args_.dilation = static_cast<uint32_t>(pattern.dilation);
    args_.global_tokens = static_cast<uint32_t>(pattern.global_tokens);
    args_.block_size = static_cast<uint32_t>(pattern.block_size);
    args_.block_stride = static_cast<uint32_t>(pattern.block_stride);
    args_.head_step = static_cast<uint32_t>(pattern.head_step);
    args_.first_head = static_cast<uint32_t>(pattern.first_head);
    args_.softcap = softcap;
    args_.scale = scale;
    args_.has_slopes = biases.slopes.buffer != nullptr;
    args_.has_sinks = biases.sinks.buffer != nullptr;
    args_.has_position_bias = biases.by_position.buffer != nullptr;
    args_.reach = biases.reach;
    args_.round = out.type == graph::ValueType::kInt8;
  }

  const graph::PagedLayer& layer() const { return layer_; }

  void prepare(Step* s, int pool, const LocalKey& local) const {
    const TileKey key{pool, local, rows_of_tile(*s)};
    if (s->tiles.count(key) == 0) s->tiles[key] = add_tiles(&s->tables, *s->batch, key);
  }

  // A run of parts, and what is merged of earlier runs.
  int64_t parts_bytes(const Step& s, int longest) const {
    return run_length(s, longest) * part_bytes(s) + piece_bytes(s);
  }

  // Whether a launch of attend_one does a step, with the preparation of heads: where each sequence
  // has one row, and the parts of its context one run.
  bool is_one_launch(const Step& s) const {
    const auto& spans = s.batch->spans;
    const auto rows = static_cast<int64_t>(spans.size());
    return std::max(layer_.key_dim, layer_.value_dim) <= kMostDimsOfOne &&
           group() <= kOfTiles.queries && rows * layer_.kv_heads <= kCounters &&
           run_length(s, s.tables.longest) == parts(s.tables.longest) &&
           std::all_of(spans.begin(), spans.end(),
                       [](const graph::Span& span) { return span.count == 1; });
  }

  // The step by that launch.
  void run_one(const Step& s, const PageSet& set, const Preparation& p, Address memory,
               Address counters) const {
    if (set.rows == 0) return;
    args::AttendOneArgs a{};
    a.prepare = p.of(set);
    a.attend = args_of(s, set);
    a.attend.parts = static_cast<uint32_t>(parts(set.longest));
    a.attend.first_run = a.attend.last_run = 1;
    const Result result = result_of(s, out_);
    const Tiles& tiles = s.tiles.at({set.pool, set.local, rows_of_tile(s)});
    s.launch(kernel_name("attend_one", set.type).c_str(),
             {static_cast<uint32_t>(tiles.count), set.args.kv_heads, a.attend.parts * kPartTiles},
             kAttendThreads, a,
             std::array<Address, 20>{s.address(p.q),
                                     s.address(p.k),
                                     s.address(p.v),
                                     s.address(p.table),
                                     p.q_weight,
                                     p.k_weight,
                                     s.table(set.places),
                                     s.table(tiles.at),
                                     s.table(set.views.front()),
                                     s.table(set.tables),
                                     biases_.slopes,
                                     biases_.by_position,
                                     biases_.sinks,
                                     set.pages,
                                     memory,
                                     result.y,
                                     result.rounded.q,
                                     result.rounded.scale,
                                     result.rounded.sums,
                                     counters});
  }

  void run(const Step& s, const PageSet& set, Address memory) const {
    if (set.rows == 0) return;
    args::AttendArgs a = args_of(s, set);
    const auto all = static_cast<uint32_t>(parts(set.longest));
    const auto step = static_cast<uint32_t>(run_length(s, set.longest));
    const Result result = result_of(s, out_);
    const Address running = memory + step * part_bytes(s);
    const Tiles& tiles = s.tiles.at({set.pool, set.local, rows_of_tile(s)});
    const AttendKernel& kernel = kernel_of(s);
    const std::string name = kernel_name(kernel.name, set.type);
    for (const int64_t view : set.views) {
      for (a.first_part = 0; a.first_part < all; a.first_part += step) {
        a.parts = std::min(step, all - a.first_part);
        a.first_run = view == set.views.front() && a.first_part == 0;
        a.last_run = view == set.views.back() && a.first_part + a.parts == all;
        s.launch(name.c_str(),
                 {static_cast<uint32_t>(tiles.count), set.args.kv_heads * a.sets,
                  a.parts * static_cast<uint32_t>(kernel.pieces)},
                 kAttendThreads, a,
                 std::array<Address, 8>{s.address(q_), set.pages, s.table(tiles.at), s.table(view),
                                        s.table(set.tables), biases_.slopes, biases_.by_position,
                                        memory});
        s.launch(kernel.merge, {static_cast<uint32_t>(set.rows), a.heads}, kAttendThreads, a,
                 std::array<Address, 9>{s.table(set.rows_at), s.table(view), memory, biases_.sinks,
                                        running, result.y, result.rounded.q, result.rounded.scale,
                                        result.rounded.sums});
      }
    }
  }

 private:
  // What all runs share.
  args::AttendArgs args_of(const Step& s, const PageSet& set) const {
    args::AttendArgs a = args_;
    a.page = set.args;
    a.in_set = static_cast<uint32_t>(heads_of_set(s));
    a.sets = (static_cast<uint32_t>(group()) + a.in_set - 1) / a.in_set;
    return a;
  }
  static int64_t parts(int longest) { return (longest + kPartPositions - 1) / kPartPositions; }
  // Of a piece of the context of all rows, and of a part.
  int64_t piece_bytes(const Step& s) const {
    return s.rows_of(q_) * args_.heads * (layer_.value_dim + 2) *
           static_cast<int64_t>(sizeof(float));
  }
  int64_t part_bytes(const Step& s) const { return kernel_of(s).pieces * piece_bytes(s); }
  // Parts that are kept at once: all of them, where memory allows.
  int64_t run_length(const Step& s, int longest) const {
    // A grid has fewer than 2^16 blocks in its third dimension.
    const int64_t most = std::min<int64_t>(parts(longest), UINT16_MAX / kernel_of(s).pieces);
    return std::clamp<int64_t>(memory_limit_ / part_bytes(s), 1, most);
  }
  int group() const { return static_cast<int>(args_.heads) / layer_.kv_heads; }
  // Parts where sequences have many tokens in the step and their heads fit.
  const AttendKernel& kernel_of(const Step& s) const {
    const auto& spans = s.batch->spans;
    const bool few = std::all_of(spans.begin(), spans.end(),
                                 [](const graph::Span& span) { return span.count <= kTileRows; });
    if (few || layer_.value_in_key) return kOfTiles;
    for (const AttendKernel& kernel : kOfParts)
      if (std::max(layer_.key_dim, layer_.value_dim) <= kernel.dims) return kernel;
    return kOfTiles;
  }
  int heads_of_set(const Step& s) const { return std::min(group(), kernel_of(s).queries); }
  int rows_of_tile(const Step& s) const { return kernel_of(s).queries / heads_of_set(s); }

  const ValueRef q_, out_;
  const graph::PagedLayer layer_;
  const Biases biases_;
  const int64_t memory_limit_;
  args::AttendArgs args_{};
};

class AttendRunner : public Runner {
 public:
  AttendRunner(const Attention& attention, int layer, graph::KeyPart part)
      : attention_(attention), layer_(layer), part_(part) {}

  void prepare(Step* s) const override {
    add_views(&s->tables, *s->batch, part_);
    for (size_t pool = 0; pool < s->state->pools.size(); ++pool)
      attention_.prepare(s, static_cast<int>(pool), {});
  }
  int64_t workspace_bytes(const Step& s) const override {
    return attention_.parts_bytes(s, s.tables.longest);
  }
  void run(const Step& s) const override {
    for (size_t pool = 0; pool < s.state->pools.size(); ++pool) {
      PageSet set = pool_pages(s, static_cast<int>(pool), layer_);
      set.views = {s.tables.views.at(part_)};
      attention_.run(s, set, s.workspace);
    }
  }

 private:
  const Attention attention_;
  const int layer_;
  const graph::KeyPart part_;
};

// The preparation of heads and the attention that alone reads them: one launch, where one does it.
class AttendOneRunner : public Runner {
 public:
  AttendOneRunner(const Preparation& preparation, const Attention& attention, int layer,
                  Address counters, RunnerPtr prepare_heads, RunnerPtr attend)
      : preparation_(preparation),
        attention_(attention),
        layer_(layer),
        counters_(counters),
        prepare_heads_(std::move(prepare_heads)),
        attend_(std::move(attend)) {}

  void prepare(Step* s) const override { attend_->prepare(s); }
  int64_t workspace_bytes(const Step& s) const override { return attend_->workspace_bytes(s); }
  void run(const Step& s) const override {
    if (!attention_.is_one_launch(s)) {
      prepare_heads_->run(s);
      attend_->run(s);
      return;
    }
    for (size_t pool = 0; pool < s.state->pools.size(); ++pool) {
      PageSet set = pool_pages(s, static_cast<int>(pool), layer_);
      set.views = {s.tables.views.at(graph::KeyPart::kAll)};
      attention_.run_one(s, set, preparation_, s.workspace, counters_);
    }
  }

 private:
  const Preparation preparation_;
  const Attention attention_;
  const int layer_;
  const Address counters_;
  const RunnerPtr prepare_heads_, attend_;
};

// Keys and values lie in the workspace, in f32 pages of one layer, before the parts.
class AttendLocalRunner : public Runner {
 public:
  AttendLocalRunner(const Attention& attention, LocalKey key, const ValueRef& k, const ValueRef& v)
      : attention_(attention),
        key_(std::move(key)),
        k_(k),
        v_(v),
        layout_(graph::kv_layout(graph::KvType::kF32, attention.layer())) {}

  void prepare(Step* s) const override {
    add_local(&s->tables, *s->batch, key_);
    attention_.prepare(s, -1, key_);
  }
  int64_t workspace_bytes(const Step& s) const override {
    return pages_bytes(s) + attention_.parts_bytes(s, local(s).longest);
  }
  void run(const Step& s) const override {
    const int kv_heads = attention_.layer().kv_heads;
    const LocalTables& tables = local(s);
    const PageSet set{graph::KvType::kF32,
                      page_args(layout_, kv_heads, page_bytes(), 0),
                      s.workspace,
                      -1,
                      key_,
                      s.rows_of(k_),
                      s.tables.all_rows,
                      tables.views,
                      tables.places,
                      tables.pages,
                      tables.longest};
    store(s, set, k_, v_);
    attention_.run(s, set, s.workspace + pages_bytes(s));
  }

 private:
  int64_t page_bytes() const { return graph::head_bytes(layout_) * attention_.layer().kv_heads; }
  int64_t pages_bytes(const Step& s) const {
    return (local(s).page_count * page_bytes() + 255) / 256 * 256;
  }
  const LocalTables& local(const Step& s) const { return s.tables.local.at(key_); }

  const Attention attention_;
  const LocalKey key_;
  const ValueRef k_, v_;
  const graph::KvLayout layout_;
};

}  // namespace

RunnerPtr make_runner(const graph::StoreKv& op, const RunnerContext& c) {
  const ValueRef k = c.value(op.k);
  const ValueRef v = op.v != graph::kNoValue ? c.value(op.v) : ValueRef{};
  const int layer = op.layer;
  return runner_of([=](const Step& s) {
    for (size_t pool = 0; pool < s.state->pools.size(); ++pool)
      store(s, pool_pages(s, static_cast<int>(pool), layer), k, v);
  });
}

RunnerPtr make_runner(const graph::PrepareHeads& op, const RunnerContext& c) {
  check_dims(c.state->paged[static_cast<size_t>(op.layer)]);
  const Preparation p(op, c);
  const int index = op.layer;
  return runner_of([=](const Step& s) {
    for (size_t pool = 0; pool < s.state->pools.size(); ++pool) {
      const PageSet set = pool_pages(s, static_cast<int>(pool), index);
      if (set.rows == 0) continue;
      s.launch(
          kernel_name("prepare_heads", set.type).c_str(),
          {static_cast<uint32_t>(set.rows), p.args.heads + set.args.kv_heads}, kStoreThreads,
          p.of(set),
          std::array<Address, 10>{s.address(p.q), s.address(p.k), s.address(p.v),
                                  s.address(p.table), p.q_weight, p.k_weight, s.table(set.rows_at),
                                  s.table(set.places), s.address(p.out), set.pages});
    }
  });
}

namespace {

Attention attention_of(const graph::Attend& op, const RunnerContext& c) {
  const Biases biases = put_biases(c.constants, op.slopes, op.position_bias, op.sinks, op.heads);
  return {c.value(op.q), c.value(op.out), op.heads,  c.state->paged[static_cast<size_t>(op.layer)],
          op.scale,      op.window,       op.chunk,  op.softcap,
          biases,        c.memory_limit,  op.pattern};
}

}  // namespace

RunnerPtr make_runner(const graph::Attend& op, const RunnerContext& c) {
  return std::make_unique<AttendRunner>(attention_of(op, c), op.layer, op.part);
}

RunnerPtr joined_attention(const graph::PrepareHeads& heads, const graph::Attend& attend,
                           const RunnerContext& c) {
  if (attend.q != heads.out || attend.layer != heads.layer || !c.has_one_reader(heads.out) ||
      attend.part != graph::KeyPart::kAll || attend.pattern.any())
    return nullptr;
  // The last block of a head writes the result while those of other heads still read.
  const int out = c.value(attend.out).buffer;
  for (const graph::ValueId read : {heads.q, heads.k, heads.v, heads.table})
    if (c.value(read).buffer == out) return nullptr;
  return std::make_unique<AttendOneRunner>(Preparation(heads, c), attention_of(attend, c),
                                           attend.layer, c.counters, make_runner(heads, c),
                                           make_runner(attend, c));
}

RunnerPtr make_runner(const graph::AttendLocal& op, const RunnerContext& c) {
  const ValueRef q = c.value(op.q), k = c.value(op.k);
  const graph::PagedLayer layer{static_cast<int>(k.cols / op.head_dim), op.head_dim, op.head_dim};
  const auto heads = static_cast<int>(q.cols / op.head_dim);
  const Biases biases = put_biases(c.constants, op.slopes, op.position_bias, nullptr, heads);
  const Attention attention(q, c.value(op.out), heads, layer, op.scale, 0, 0, 0.0f, biases,
                            c.memory_limit);
  return std::make_unique<AttendLocalRunner>(attention, LocalKey{op.segments, op.mask}, k,
                                             c.value(op.v));
}

}  // namespace oxibonsai::gpu
