// Ops over slots of recurrent state. A thread takes a channel of a sequence, whose tokens it goes
// through one after the other.

// `spans`: of each span, its first row, its number of rows, its first position and its slot.
KERNEL(conv1d, Conv1dArgs, READ(1, float, x), READ(2, float, weight), READ(3, float, bias),
       READ(4, int32_t, spans), WRITE(5, float, slots), WRITE(6, float, y)) {
  const uint32_t channel = BLOCK_X * 128 + THREAD;
  if (channel >= args.channels) return;
  GLOBAL const int32_t* span = spans + 4 * BLOCK_Y;
  const uint64_t first_row = uint64_t(span[0]);
  const int32_t count = span[1], kept = int32_t(args.taps) - 1;
  const bool begins = span[2] == 0;
  GLOBAL float* state = slots + uint64_t(span[3]) * args.slot_stride + args.offset + channel;
  // Row t of the step; before it, what the state keeps of earlier tokens.
  for (int32_t t = 0; t < count; ++t) {
    float sum = 0.0f;
    for (int32_t j = 0; j <= kept; ++j) {
      const int32_t row = t - kept + j;
      const float v = row >= 0 ? x[(first_row + row) * args.channels + channel]
                      : begins ? 0.0f
                               : state[uint64_t(kept + row) * args.channels];
      const float w = weight[channel * args.taps + uint32_t(j)];
      sum = j == 0 ? v * w : fused(v, w, sum);
    }
    if (args.has_bias) sum = sum + bias[channel];
    if (args.silu) sum = sum / (1.0f + bounded_exp(0.0f - sum));
    y[(first_row + t) * args.channels + channel] = flush_tiny(sum);
  }
  // The last rows become the state, from the earliest on: none is overwritten before it is read.
  for (int32_t i = 0; i < kept; ++i) {
    const int32_t row = count - kept + i;
    state[uint64_t(i) * args.channels] = row >= 0 ? x[(first_row + row) * args.channels + channel]
                                         : begins ? 0.0f
                                                  : state[uint64_t(kept + row) * args.channels];
  }
}
