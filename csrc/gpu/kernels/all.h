// All kernels, in an order in which each finds what it needs.

#include "gpu/dialect.h"

#include "gpu/kernels/args.h"

#include "gpu/kernels/functions.h"
#include "gpu/kernels/last_block.h"
#include "gpu/kernels/rounding.h"

#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/hadamard.h"
#include "gpu/kernels/norm.h"
#include "gpu/kernels/picture.h"
#include "gpu/kernels/rope.h"

#include "gpu/kernels/unpack_codes.h"

#include "gpu/kernels/gemm.h"
#include "gpu/kernels/gemv.h"
#include "gpu/kernels/joined_gemv.h"
#include "gpu/kernels/linear_float.h"

#include "gpu/kernels/kv_types.h"

#include "gpu/kernels/attention.h"
#include "gpu/kernels/merge_attention.h"
#include "gpu/kernels/store_kv.h"

#include "gpu/kernels/prepare_heads.h"

#include "gpu/kernels/attend_one.h"

#include "gpu/kernels/experts.h"
#include "gpu/kernels/recurrence.h"
#include "gpu/kernels/top.h"
