// Mixtures of experts: who gets a token, and the sum of what they gave. Their matrices are those of
// the other linear layers, with an expert for each row.

#define ROUTE_EXPERTS 1024  // at most
#define ROUTE_THREADS 128

// In place over n values in shared memory: exp(x - max) over their sum, which one thread makes in
// the order of the values.
INLINE void soften(GROUP float* x, GROUP float* sum, uint32_t n, uint32_t thread_id) {
  if (thread_id == 0) {
    float max = x[0];
    for (uint32_t i = 1; i < n; ++i) max = max < x[i] ? x[i] : max;
    sum[0] = max;
  }
  BARRIER();
  const float max = sum[0];
  for (uint32_t i = thread_id; i < n; i += ROUTE_THREADS) x[i] = exp_of(x[i] - max);
  BARRIER();
  if (thread_id == 0) {
    float total = 0.0f;
    for (uint32_t i = 0; i < n; ++i) total = total + x[i];
    sum[0] = total;
  }
  BARRIER();
  const float total = sum[0];
  for (uint32_t i = thread_id; i < n; i += ROUTE_THREADS) x[i] = quotient(x[i], total);
  BARRIER();
}

// What a group of experts is chosen by: the sum of its highest ranks, from the highest on.
INLINE float group_rank(GROUP const float* rank, uint32_t size, uint32_t best) {
  float sum = 0.0f, before = 0.0f;
  uint32_t before_index = size;  // none yet
  for (uint32_t n = 0; n < best; ++n) {
    uint32_t found = size;
    for (uint32_t i = 0; i < size; ++i) {
      const bool left =
          before_index == size || rank[i] < before || (rank[i] == before && i > before_index);
      if (left && (found == size || rank[i] > rank[found])) found = i;
    }
    before_index = smaller(found, size - 1);
    before = rank[before_index];
    sum = sum + before;
  }
  return sum;
}

// How many of n come before the i-th: those of a higher rank, and before it those of the same.
INLINE uint32_t place_of(GROUP const float* rank, GROUP const uint32_t* counts, uint32_t n,
                         uint32_t i) {
  uint32_t place = 0;
  for (uint32_t j = 0; j < n; ++j)
    if (counts[j] && (rank[j] > rank[i] || (rank[j] == rank[i] && j < i))) ++place;
  return place;
}

// SparseMixer over n scores, by one thread: the best of those that are left, by its share of a
// softmax over those of them that are at most 2 % below it.
INLINE void route_sparsely(ARGS(RouteArgs) args, GROUP const float* scores, GROUP uint32_t* left,
                           GLOBAL float* weights, GLOBAL int32_t* places) {
  const uint32_t n = args.experts;
  for (uint32_t choice = 0; choice < args.k; ++choice) {
    uint32_t best = n;
    for (uint32_t i = 0; i < n; ++i)
      if (left[i] && (best == n || scores[i] > scores[best])) best = i;
    const float max = scores[best];
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; ++i) {
      const float size = scores[i] < 0.0f ? -scores[i] : scores[i];
      const float larger_one = size < max ? max : size;
      if (left[i] && !(quotient(max - scores[i], larger_one) > 0.02f))
        sum = sum + exp_of(scores[i] - max);
    }
    left[best] = 0;
    places[choice] = int32_t(best);
    weights[choice] = quotient(1.0f, sum) * args.scale;
  }
}

// RouteArgs::scoring is graph::Route::Scoring: 0 softmax, 1 softmax of the chosen, 2 sigmoid, 3
// SparseMixer. A block takes a row. Until they are sorted, the places hold experts.
KERNEL(route, RouteArgs, READ(1, float, scores), READ(2, float, bias), WRITE(3, float, weights),
       WRITE(4, int32_t, places), READ(5, float, expert_scale)) {
  SHARED(float, probability, ROUTE_EXPERTS);
  SHARED(float, chosen, ROUTE_EXPERTS);
  SHARED(float, rank, ROUTE_EXPERTS);
  SHARED(float, group_ranks, ROUTE_EXPERTS);
  SHARED(uint32_t, kept, ROUTE_EXPERTS);  // of groups, then of experts
  SHARED(float, sum, 1);
  const uint32_t n = args.experts, size = n / args.groups;
  const uint64_t row = BLOCK_X;
  for (uint32_t i = THREAD; i < n; i += ROUTE_THREADS) {
    const float x = scores[row * n + i];
    probability[i] = args.scoring == 2 ? quotient(1.0f, 1.0f + exp_of(-x)) : x;
    kept[i] = 1;
  }
  // Scores that are NaN have no place; what they leave free must be an expert all the same.
  for (uint32_t i = THREAD; i < args.k; i += ROUTE_THREADS) {
    places[row * args.k + i] = int32_t(i);
    chosen[i] = 0.0f;
  }
  BARRIER();
  if (args.scoring == 3) {
    if (THREAD == 0)
      route_sparsely(args, probability, kept, weights + row * args.k, places + row * args.k);
    return;
  }
  if (args.scoring == 0) soften(probability, sum, n, THREAD);
  for (uint32_t i = THREAD; i < n; i += ROUTE_THREADS)
    rank[i] = args.has_bias ? probability[i] + bias[i] : probability[i];
  BARRIER();
  if (args.kept_groups < args.groups) {
    for (uint32_t g = THREAD; g < args.groups; g += ROUTE_THREADS)
      group_ranks[g] = group_rank(rank + g * size, size, args.best_of_group);
    BARRIER();
    for (uint32_t i = THREAD; i < n; i += ROUTE_THREADS)
      chosen[i] =
          place_of(group_ranks, kept, args.groups, i / size) < args.kept_groups ? 1.0f : 0.0f;
    BARRIER();
    for (uint32_t i = THREAD; i < n; i += ROUTE_THREADS) kept[i] = chosen[i] != 0.0f ? 1 : 0;
    BARRIER();
  }
  for (uint32_t i = THREAD; i < n; i += ROUTE_THREADS) {
    const uint32_t place = kept[i] ? place_of(rank, kept, n, i) : args.k;
    if (place < args.k) {
      places[row * args.k + place] = int32_t(i);
      chosen[place] = probability[i];
    }
  }
  BARRIER();
  if (args.scoring == 1) soften(chosen, sum, args.k, THREAD);
  if (args.normalize) {
    if (THREAD == 0) {
      float total = 0.0f;
      for (uint32_t i = 0; i < args.k; ++i) total = total + chosen[i];
      sum[0] = total;
    }
    BARRIER();
  }
  for (uint32_t i = THREAD; i < args.k; i += ROUTE_THREADS) {
    const float weight = args.normalize ? quotient(chosen[i], sum[0]) : chosen[i];
    const uint64_t at = row * args.k + i;
    weights[at] = args.has_expert_scale ? weight * args.scale * expert_scale[places[at]]
                                        : weight * args.scale;
  }
}

// All choices of a step sorted by expert (graph::Route): one block. A thread takes an expert and
// looks for its choices, in their order.
KERNEL(sort_routes, RouteArgs, WRITE(1, int32_t, places), WRITE(2, int32_t, panels)) {
  SHARED(uint32_t, first, ROUTE_EXPERTS + 1);
  SHARED(uint32_t, first_panel, ROUTE_EXPERTS + 1);
  const uint32_t n = args.rows * args.k;
  for (uint32_t e = THREAD; e < args.experts; e += ROUTE_THREADS) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; ++i)
      if (uint32_t(places[i]) == e) ++count;
    first[e + 1] = count;
  }
  BARRIER();
  if (THREAD == 0) {
    first[0] = first_panel[0] = 0;
    for (uint32_t e = 0; e < args.experts; ++e) {
      first_panel[e + 1] = first_panel[e] + (first[e + 1] + 31) / 32;
      first[e + 1] = first[e] + first[e + 1];
    }
  }
  BARRIER();
  for (uint32_t e = THREAD; e < args.experts; e += ROUTE_THREADS) {
    uint32_t panel = first_panel[e], row = first[e];
    for (uint32_t r = row; r < first[e + 1]; r += 32, ++panel) {
      panels[panel * 3 + 1] = int32_t(r);
      panels[panel * 3 + 2] = int32_t(e);
    }
    for (uint32_t i = 0; i < n; ++i)
      if (uint32_t(places[i]) == e) panels[3 * row++] = int32_t(i);
  }
  for (uint32_t panel = first_panel[args.experts] + THREAD; panel < n; panel += ROUTE_THREADS)
    panels[panel * 3 + 1] = int32_t(n);
  BARRIER();
  for (uint32_t row = THREAD; row < n; row += ROUTE_THREADS) places[panels[3 * row]] = int32_t(row);
}

// Rows of the tokens for their experts.
KERNEL(dispatch, RoutedArgs, READ(1, float, x), READ(2, int32_t, panels), READ(3, float, weights),
       WRITE(4, float, y), WRITE(5, int8_t, q), WRITE(6, float, scales), WRITE(7, int32_t, sums)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;  // whole warps where the result is rounded
  const uint32_t source = uint32_t(panels[i / args.cols * 3]);
  float v = x[uint64_t(source / args.k) * args.cols + i % args.cols];
  if (args.has_weights) v = flush_tiny(v * weights[source]);
  put_value(v, LANE, i, args.round, y, q, scales, sums);
}

// The sum of what a token's experts gave, in the order of its choices.
KERNEL(combine, RoutedArgs, READ(1, float, x), READ(2, int32_t, places), READ(3, float, weights),
       WRITE(4, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  const uint64_t token = i / args.cols, column = i % args.cols;
  float sum = 0.0f;
  for (uint32_t e = 0; e < args.k; ++e) {
    const float v = x[uint64_t(places[token * args.k + e]) * args.cols + column];
    sum = args.has_weights ? fused(v, weights[token * args.k + e], sum) : sum + v;
  }
  y[i] = flush_tiny(sum);
}
