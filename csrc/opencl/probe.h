// What a device does, beside what it says: the host compares all that this kernel writes
// (opencl/check_device.cc). A block of 256 threads takes as many triples of numbers; `results` gets
// four of each, `lanes` of each of the first block's threads.

KERNEL(probe, FlatArgs, READ(1, float, numbers), WRITE(2, float, results),
       WRITE(3, uint32_t, lanes)) {
  const uint32_t i = BLOCK_X * 256 + THREAD;
  const float a = numbers[3 * i], b = numbers[3 * i + 1], c = numbers[3 * i + 2];
  results[4 * i] = fused(a, b, c);
  results[4 * i + 1] = a * b + c;  // not fused
  results[4 * i + 2] = quotient(a, b);
  results[4 * i + 3] = root(magnitude(a));
  const uint32_t down = shuffle_down(THREAD * 3, 5), from = shuffle_from(THREAD * 3, 7);
  if (BLOCK_X != 0) return;
  lanes[4 * THREAD] = get_sub_group_size();
  lanes[4 * THREAD + 1] = get_sub_group_id() * 32 + get_sub_group_local_id();
  lanes[4 * THREAD + 2] = down;
  lanes[4 * THREAD + 3] = from;
}
