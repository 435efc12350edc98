// Mixtures of experts: who gets a token, and the sum of what they gave. Their matrices are those of
// the other linear layers, with an expert for each row.

#define ROUTE_EXPERTS 1024  // at most
#define ROUTE_THREADS 128

// In place over n values in shared memory: exp(x - max) over their sum, which one thread makes in
// the order of the values.
INLINE void soften(GROUP float* x, GROUP float* sum, uint32_t n, uint32_t thread) {
  if (thread == 0) {
    float max = x[0];
    for (uint32_t i = 1; i < n; ++i) max = max < x[i] ? x[i] : max;
    sum[0] = max;
  }
  BARRIER();
  const float max = sum[0];
  for (uint32_t i = thread; i < n; i += ROUTE_THREADS) x[i] = exp_of(x[i] - max);
  BARRIER();
  if (thread == 0) {
    float total = 0.0f;
    for (uint32_t i = 0; i < n; ++i) total = total + x[i];
    sum[0] = total;
  }
  BARRIER();
  const float total = sum[0];
  for (uint32_t i = thread; i < n; i += ROUTE_THREADS) x[i] = x[i] / total;
  BARRIER();
}

// RouteArgs::scoring is graph::Route::Scoring: 0 softmax, 1 softmax of the chosen, 2 sigmoid. A
// block takes a row. An expert's place is the number of those that come before it.
KERNEL(route, RouteArgs, READ(1, float, scores), READ(2, float, bias), WRITE(3, int32_t, experts),
       WRITE(4, float, weights)) {
  SHARED(float, probability, ROUTE_EXPERTS);
  SHARED(float, chosen, ROUTE_EXPERTS);
  SHARED(float, sum, 1);
  const uint32_t n = args.experts;
  const uint64_t row = BLOCK_X;
  for (uint32_t i = THREAD; i < n; i += ROUTE_THREADS) {
    const float x = scores[row * n + i];
    probability[i] = args.scoring == 2 ? 1.0f / (1.0f + exp_of(-x)) : x;
  }
  for (uint32_t i = THREAD; i < args.k; i += ROUTE_THREADS) experts[row * args.k + i] = int32_t(i);
  BARRIER();
  if (args.scoring == 0) soften(probability, sum, n, THREAD);
  for (uint32_t i = THREAD; i < n; i += ROUTE_THREADS) {
    const float mine = args.has_bias ? probability[i] + bias[i] : probability[i];
    uint32_t place = 0;
    for (uint32_t j = 0; j < n; ++j) {
      const float other = args.has_bias ? probability[j] + bias[j] : probability[j];
      if (other > mine || (other == mine && j < i)) ++place;
    }
    if (place < args.k) {
      experts[row * args.k + place] = int32_t(i);
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
    const float weight = args.normalize ? chosen[i] / sum[0] : chosen[i];
    weights[row * args.k + i] = weight * args.scale;
  }
}

KERNEL(combine, CombineArgs, READ(1, float, x), READ(2, float, weights), WRITE(3, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  const uint64_t row = i / args.cols, column = i % args.cols;
  float sum = 0.0f;
  for (uint32_t e = 0; e < args.k; ++e) {
    const float part = weights[row * args.k + e] * x[(row * args.k + e) * args.cols + column];
    sum = e == 0 ? part : sum + part;
  }
  y[i] = sum;
}
