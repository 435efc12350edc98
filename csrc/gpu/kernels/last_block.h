// What needs the results of several blocks of a launch, in that launch: the block that ends last
// goes on, and sees what the others wrote. Only where the dialect has count_up(), since not every
// device orders the memory of two blocks of one launch.

#if defined(HAS_COUNT_UP)
// Whether this block is the last of `blocks` that come here with a counter, for all threads alike.
// A counter is 0 before a launch and behind it. `last`: of the block.
INLINE bool is_last_block(GLOBAL uint32_t* counter, uint32_t blocks, GROUP uint32_t* last,
                          uint32_t thread_id) {
  BARRIER();  // all threads have written
  if (thread_id == 0) {
    last[0] = count_up(counter) + 1 == blocks;
    if (last[0]) {
      see_others();
      *counter = 0;
    }
  }
  BARRIER();
  return last[0] != 0;
}
#endif
