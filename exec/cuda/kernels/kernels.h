/* ExecCudaLaunch: puts one op on a CUDA stream. The operands are those of the op's CPU kernel, in
 * device memory. Kernels compute in fp32 and round once per store; matrices, weights, gradients and
 * moments are fp32, bf16 or fp16 in any mix. The result is a cudaError_t (0: issued). */
#pragma once
#include "exec/cuda/kernels/scores.h"
#include "exec/kernels.h"
G_BEGIN_DECLS

/* What ExecArgs.varying points to: if not NULL, it overrides ExecArgs.constants in CUDA graphs. */
typedef struct
{
  float lr, correction1, correction2; /* corrections: of Adam's two averages */
  double tokens;                      /* tokens whose loss counts; 0: as many as the op says */
} ExecCudaVarying;

/* Scales of blocks lie in tiles, as cuBLASLt reads them, where a matrix is whole tiles of so many
 * rows and blocks; otherwise row by row, as on the CPU. */
#define EXEC_CUDA_SCALE_ROWS 128
#define EXEC_CUDA_SCALE_COLS 4
#define EXEC_CUDA_IS_TILED(rows, blocks) \
  ((rows) % EXEC_CUDA_SCALE_ROWS == 0 && (blocks) % EXEC_CUDA_SCALE_COLS == 0)

typedef int (*ExecCudaLaunch) (const ExecArgs *args, void *stream);

/* elementwise.cu; zero: any format, cast: also from any format to itself */
int exec_cuda_zero (const ExecArgs *args, void *stream);
int exec_cuda_cast (const ExecArgs *args, void *stream);
int exec_cuda_scale (const ExecArgs *args, void *stream);
int exec_cuda_accumulate (const ExecArgs *args, void *stream);
int exec_cuda_softcap (const ExecArgs *args, void *stream);
int exec_cuda_softcap_bwd (const ExecArgs *args, void *stream);
int exec_cuda_add (const ExecArgs *args, void *stream);
int exec_cuda_sum_parts (const ExecArgs *args, void *stream);
int exec_cuda_swiglu (const ExecArgs *args, void *stream);
int exec_cuda_swiglu_bwd (const ExecArgs *args, void *stream);
int exec_cuda_activate (const ExecArgs *args, void *stream);
int exec_cuda_activate_bwd (const ExecArgs *args, void *stream);
int exec_cuda_rope (const ExecArgs *args, void *stream);

/* attention.cu */
int exec_cuda_attention_join (const ExecArgs *args, void *stream);
int exec_cuda_attention (const ExecArgs *args, void *stream);
int exec_cuda_attention_bwd (const ExecArgs *args, void *stream);

/* attention-softmax.cu, between batched GEMMs. `dtype` is fp32, bf16 or fp16; pitches (from row to
 * row), strides (from head to head) and all other numbers are in elements.
 *
 * Causal softmax of scores by `rule`, in place, for `queries` rows of each head of a sequence of
 * `seq` tokens: of head first_head and every apart-th behind it. The first score of a row is of key
 * `from`, `first` places before the first row's own. From the same address on a row becomes weights
 * in `dtype`, 0 for keys that are not seen, up to the last row's own key. */
typedef struct
{
  float *scores;
  guint64 pitch, stride, heads, queries, first, from, seq, sequence, first_head, apart;
  ExecCudaScores rule;
  float *lse;
  guint64 lse_stride;
  PlanDtype dtype;
} ExecCudaSoftmax;
int exec_cuda_softmax (const ExecCudaSoftmax *softmax, void *stream);

typedef struct
{
  const void *at;
  PlanDtype dtype;
} ExecCudaRows;

/* Turns scores into weights again, by lse, and gradients of weights into those of scores. */
typedef struct
{
  ExecCudaSoftmax of;
  float *dscores;
  ExecCudaRows dout, out; /* of the same queries and heads */
  guint64 dim, row_pitch, head_stride;
} ExecCudaSoftmaxBwd;
int exec_cuda_softmax_bwd (const ExecCudaSoftmaxBwd *backward, void *stream);

/* Rounds fp32 sums, [rows, dim] per head, into rows that are `pitch` apart. */
typedef struct
{
  const float *from;
  void *to;
  guint64 from_stride;
  PlanDtype dtype;
  guint64 heads, rows, dim, pitch, stride;
} ExecCudaSums;
int exec_cuda_round_sums (const ExecCudaSums *sums, void *stream);

/* embedding.cu */
int exec_cuda_embed (const ExecArgs *args, void *stream);
int exec_cuda_embed_bwd (const ExecArgs *args, void *stream);
int exec_cuda_positions (const ExecArgs *args, void *stream);
int exec_cuda_positions_bwd (const ExecArgs *args, void *stream);

/* gemm-plain.cu; factors may also be in the formats that quantize makes */
int exec_cuda_gemm_plain (const ExecArgs *args, void *stream);
int exec_cuda_gemm_add_plain (const ExecArgs *args, void *stream);

/* head-norm.cu */
int exec_cuda_head_norm (const ExecArgs *args, void *stream);
int exec_cuda_head_norm_bwd (const ExecArgs *args, void *stream);

/* loss.cu */
int exec_cuda_row_stat (const ExecArgs *args, void *stream);
int exec_cuda_cross_entropy (const ExecArgs *args, void *stream);
int exec_cuda_cross_entropy_bwd (const ExecArgs *args, void *stream);
int exec_cuda_loss_grad (const ExecArgs *args, void *stream);

/* adam-fp8.cu: adamw with a moment in e4m3. Behind its scale there is room for a number. */
int exec_cuda_adamw_narrow (const ExecArgs *args, void *stream);

/* norm.cu; gradients of norms: norm-bwd.cu */
int exec_cuda_rmsnorm (const ExecArgs *args, void *stream);
int exec_cuda_add_rmsnorm (const ExecArgs *args, void *stream);
int exec_cuda_rmsnorm_bwd (const ExecArgs *args, void *stream);
int exec_cuda_layernorm (const ExecArgs *args, void *stream);
int exec_cuda_add_layernorm (const ExecArgs *args, void *stream);
int exec_cuda_layernorm_bwd (const ExecArgs *args, void *stream);
int exec_cuda_bias_bwd (const ExecArgs *args, void *stream);

/* optimizer.cu; exec_cuda_varying is no op. */
ExecCudaVarying exec_cuda_varying (const ExecConstants *constants);
int exec_cuda_norm_sq (const ExecArgs *args, void *stream);
int exec_cuda_clip (const ExecArgs *args, void *stream);
int exec_cuda_adamw (const ExecArgs *args, void *stream);
int exec_cuda_sgd (const ExecArgs *args, void *stream);

/* param.cu: for each parameter of which the rank has a part */
int exec_cuda_param_amax (const ExecArgs *args, void *stream);
int exec_cuda_param_quantize (const ExecArgs *args, void *stream);
int exec_cuda_rescale (const ExecArgs *args, void *stream);
int exec_cuda_transpose (const ExecArgs *args, void *stream); /* formats of a byte an element */
/* out[0] = a * b, out[1] = addend: cuBLASLt's alpha and beta where both factors have a scale. */
int exec_cuda_multiply_scales (const float *a, const float *b, float addend, float *out,
                               void *stream);

/* quantize.cu; exec_cuda_dequantize is no op: it does what exec_cpu_dequantize does. */
int exec_cuda_quantize (const ExecArgs *args, void *stream);
int exec_cuda_dequantize (const void *in, PlanDtype dtype, const float *scale, guint64 count,
                          void *out, PlanDtype out_dtype, void *stream);

/* quantize-128x128.cu: a scale per 128 elements or square; transpose_squares moves scales */
int exec_cuda_quantize_128 (const ExecArgs *args, void *stream);
int exec_cuda_param_amax_squares (const ExecArgs *args, void *stream);
int exec_cuda_param_quantize_squares (const ExecArgs *args, void *stream);
int exec_cuda_transpose_squares (const ExecArgs *args, void *stream);

G_END_DECLS
