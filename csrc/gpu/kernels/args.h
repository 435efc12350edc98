// The constants that each kernel takes, for kernels and for the host (gpu/kernel_args.h) alike: the
// same layout for every compiler, 64-bit members first.

// What graph::Activation says; FlatArgs::function of the kernels that take one.
enum Function : uint32_t {
  kSilu,
  kGelu,
  kGeluTanh,
  kRelu,
  kRelu2,
  kSigmoid,
  kIdentity,
  kSwigluOai,
};

struct FlatArgs {  // of what goes value by value
  uint64_t count;  // values
  float factor;
  uint32_t cols;      // of a row
  uint32_t function;  // of the kernel's list
  uint32_t round;     // the result goes to int8
};

struct XieluArgs {
  uint64_t count;
  float alpha_p, alpha_n, beta, eps;
  uint32_t round;  // the result goes to int8
};

struct MoveArgs {  // of columns; what its fields are, the kernel says
  uint64_t count;  // values of the result
  uint32_t outer, inner, width, first;
};

struct SelectArgs {
  uint64_t count;
  uint32_t cols;
};

struct InsertArgs {
  uint64_t count;           // values
  uint32_t cols, row_cols;  // of x, of what is inserted
  uint32_t first;           // column of that
  uint32_t added;           // to x
};

struct NormArgs {
  uint32_t width;  // of a row or group of a row
  uint32_t own;    // neighbouring groups with weights of their own; 1: all have the same
  float eps;
  uint32_t has_bias;
  uint32_t round;
};

struct PictureArgs {  // of channels of a picture
  uint64_t count;     // values of the result
  uint64_t pixels;
  uint32_t channels, groups;
  uint32_t run;      // pixels whose sum is one chain
  uint32_t squares;  // of the distances from the mean
  uint32_t silu;
};

struct ConvArgs {
  uint64_t pixels;                     // of the result
  uint32_t width;                      // of the result
  uint32_t large_height, large_width;  // of the enlarged input
  uint32_t channels, out_channels;
  uint32_t side, stride, upsample, pad;  // side: of the kernel, a word that Metal reserves
  uint32_t has_bias, has_added;
};

struct RopeArgs {
  uint64_t count;  // rows * heads * (head_dim - pairs)
  uint32_t heads, head_dim, pairs;
  uint32_t interleaved;
};

struct HadamardArgs {
  uint64_t count;  // values
  uint32_t cols;   // of a row
  uint32_t block;  // a power of two
  uint32_t chunk;  // values of a block of threads: whole blocks
  uint32_t has_before, has_after;
  uint32_t round;
};

// A matrix of integer codes as planes of one array (gpu/unpack_weight.h): where each begins, in
// bytes.
struct LinearArgs {
  uint64_t low, high, d, m, scale, min;
  uint64_t expert_bytes;  // from one expert's matrix to the next
  uint64_t plane_rows;    // rows that lie side by side in d, m and min
  uint32_t codebook[4];   // what the 16 codes stand for, a byte each
  int32_t step, offset;   // a code stands for step * code - offset
  uint32_t rows, cols, tokens;
  uint32_t group;  // columns that share a d
  uint32_t wide;   // d is float32
  uint32_t has_bias, has_add;
  // Experts: the result's rows come in panels (graph::Route), each of which `panel_groups` groups
  // of tokens share; 0: one matrix for all rows.
  uint32_t panel_groups;
  uint32_t panels;  // rows of graph::Route's panels
};

// Of a launch of gemv: up to three matrices of one form, and the block of rows in which the next
// one begins; where there is none, no block.
struct GemvArgs {
  LinearArgs matrices[3];
  uint32_t second, third;
};

// Of gemv with what reads its result (gpu/kernels/joined_gemv.h).
struct GemvNormArgs {
  LinearArgs matrix;
  NormArgs norm;
  uint32_t blocks;  // of the launch
};

struct GemvGatedArgs {
  LinearArgs matrices[2];  // gate and up, of whole groups of 32 rows
  uint32_t second;         // the block in which up begins
  uint32_t function;       // as in FlatArgs
  uint32_t round;          // the result goes to int8
};

struct FloatLinearArgs {
  uint64_t row_bytes, expert_bytes;
  uint32_t rows, cols, tokens;
  uint32_t has_bias, has_add;
  uint32_t panel_groups, panels;  // as in LinearArgs
};

// A page of keys and values, as graph/kv_layout.h lays it out.
struct PageArgs {
  uint64_t page_bytes;
  uint64_t layer_offset;  // of the layer in a page
  uint64_t head_bytes;    // keys and values of a head
  uint64_t key_bytes;     // keys of a head
  uint32_t key_scales, value_scales, value_row;
  uint32_t kv_heads, key_dim, value_dim;
  uint32_t value_in_key;
  uint32_t rotate_key, rotate_value;  // dims of a block of the rotation; 0: none
};

struct PrepareArgs {
  PageArgs page;
  uint32_t heads;  // of q
  uint32_t pairs, interleaved;
  uint32_t norms_q, norms_k;
  uint32_t own_q, own_k;  // as in NormArgs
  float eps_q, eps_k;
};

struct AttendArgs {
  PageArgs page;
  uint32_t heads;
  uint32_t in_set;  // heads of a key-value head that a block of threads takes
  uint32_t sets;    // of them for each key-value head
  // Parts of the context are computed and merged in runs of so many, from first_part on; the last
  // run gives the results. Where rows see several ranges of positions, each has runs of its own.
  uint32_t first_part, parts, first_run, last_run;
  uint32_t window;  // 0: none
  uint32_t chunk;   // 0: none
  // As graph::KeyPattern has them.
  uint32_t has_pattern, dilation, global_tokens, block_size, block_stride, head_step, first_head;
  uint32_t has_slopes, has_sinks;
  uint32_t has_position_bias, reach;  // 2 * reach + 1 values for each head
  uint32_t round;                     // the result goes to int8
  float scale;
  float softcap;  // 0: none
};

// Of attention that prepares its heads (gpu/kernels/attend_one.h): one run, one set a head.
struct AttendOneArgs {
  AttendArgs attend;
  PrepareArgs prepare;
};

struct RouteArgs {
  uint32_t rows, experts, k;
  uint32_t scoring;
  uint32_t has_bias, has_expert_scale, normalize;
  uint32_t groups, kept_groups, best_of_group;
  float scale;
};

struct RoutedArgs {  // of what goes from tokens to routed rows or back
  uint64_t count;    // values of the result
  uint32_t cols, k;
  uint32_t has_weights;
  uint32_t round;
};

struct Conv1dArgs {
  uint64_t slot_stride;  // floats of a slot
  uint64_t offset;       // of the entry in a slot, in floats
  uint32_t channels, taps;
  uint32_t has_bias, silu;
};

// A scan over matrices [key_dim, value_dim] of state: q, k and v of a row, as the gated delta rule
// names them, are c, b and x in Mamba 2.
struct ScanArgs {
  uint64_t slot_stride;  // floats of a slot
  uint64_t offset;       // of the entry in a slot, in floats
  uint32_t heads, key_heads;
  uint32_t key_dim, value_dim;
  uint32_t columns;  // value_dim rounded up to whole blocks of the state
  uint32_t tiled;    // head h reads key head h mod key_heads, else h / (heads / key_heads)
  // Floats from one row to the next, and where q, k and v begin in it.
  uint32_t key_stride, q, k, v_stride, v;
  uint32_t delta;  // the gated delta rule, else Mamba 2
  float eps;       // of the norm of q and k
  uint32_t rows;
};

struct ChannelScanArgs {
  uint64_t slot_stride, offset;
  uint32_t channels, state_dim;
};

struct Wkv7Args {
  uint64_t slot_stride, offset;
  uint32_t heads, dim;
  uint32_t columns;  // dim rounded up to whole blocks of the state
};

struct TopArgs {
  uint32_t cols;
  uint32_t part, parts;  // columns of a block, blocks of a row
  uint32_t k;
  uint32_t named;  // a column's id is in `ids`; else it is its number
};
