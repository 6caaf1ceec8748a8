/* ExecCudaLaunch: one op put on a CUDA stream.
 *
 * Each launcher does what the CPU kernel of the same op does, by the same ExecArgs, whose pointers
 * are to device memory: fp32 inside, rounded once per store. Matrices, weights, gradients and
 * moments are fp32, bf16 or fp16 in any mix. The result is a cudaError_t (0: issued). */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

/* What ExecArgs.varying points to: where it is, this stands for what constants say. */
typedef struct
{
  float lr, correction1, correction2; /* of Adam's two averages */
  double tokens;                      /* whose loss counts; 0: as many as the op says */
} ExecCudaVarying;

/* Scales of blocks, whose matrices are of whole tiles of so many rows and blocks, lie tile by tile,
 * as cuBLASLt reads them; others in the order of rows, as on the CPU. */
#define EXEC_CUDA_SCALE_ROWS 128
#define EXEC_CUDA_SCALE_COLS 4
#define EXEC_CUDA_IS_TILED(rows, blocks) \
  ((rows) % EXEC_CUDA_SCALE_ROWS == 0 && (blocks) % EXEC_CUDA_SCALE_COLS == 0)

typedef int (*ExecCudaLaunch) (const ExecArgs *args, void *stream);

/* elementwise.cu */
int exec_cuda_zero (const ExecArgs *args, void *stream); /* any format */
int exec_cuda_cast (const ExecArgs *args, void *stream); /* any one format to itself, too */
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
int exec_cuda_attention (const ExecArgs *args, void *stream);
int exec_cuda_attention_bwd (const ExecArgs *args, void *stream);

/* attention-softmax.cu: the softmax between GEMMs in batches. Elements are of `dtype`, fp32, bf16
 * or fp16; pitches, strides from head to head and all other numbers are in elements. */
/* Causal softmax of scale * score, in place: of `queries` rows of each head, of scores in fp32,
 * `pitch` apart. The first of a row's keys is one that `first` others follow before the first row's
 * own; a row sees its own and those before it, `window` in all. They become probabilities in
 * `dtype` from the same address on, zeros where a key is not seen, up to the last row's own. */
typedef struct
{
  float *scores;
  guint64 pitch, stride, heads, queries, first, window;
  float *lse;
  guint64 lse_stride;
  PlanDtype dtype;
  float scale;
} ExecCudaSoftmax;
int exec_cuda_softmax (const ExecCudaSoftmax *softmax, void *stream);

typedef struct
{
  const void *at;
  PlanDtype dtype;
} ExecCudaRows;

/* Scores become probabilities again by lse; dscores, the gradients of those, become the scores'. */
typedef struct
{
  ExecCudaSoftmax of;
  float *dscores;
  ExecCudaRows dout, out; /* of the same queries and heads */
  guint64 dim, row_pitch, head_stride;
} ExecCudaSoftmaxBwd;
int exec_cuda_softmax_bwd (const ExecCudaSoftmaxBwd *backward, void *stream);

/* Sums in fp32, [rows, dim] for each head, rounded to rows that are `pitch` apart: two of them. */
typedef struct
{
  const float *from[2];
  guint64 from_stride;
  void *to[2];
  PlanDtype dtype;
  guint64 heads, rows, dim, pitch, stride;
} ExecCudaSums;
int exec_cuda_keep_sums (const ExecCudaSums *sums, void *stream);

/* embedding.cu */
int exec_cuda_embed (const ExecArgs *args, void *stream);
int exec_cuda_embed_bwd (const ExecArgs *args, void *stream);
int exec_cuda_positions (const ExecArgs *args, void *stream);
int exec_cuda_positions_bwd (const ExecArgs *args, void *stream);

/* gemm-plain.cu; factors in any format that quantize makes, too */
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

/* adam-fp8.cu: adamw with a moment in e4m3 or fp16. Behind an e4m3 scale is room for a number. */
int exec_cuda_adamw_narrow (const ExecArgs *args, void *stream);

/* norm.cu; gradients of norms: norm-bwd.cu */
int exec_cuda_rmsnorm (const ExecArgs *args, void *stream);
int exec_cuda_add_rmsnorm (const ExecArgs *args, void *stream);
int exec_cuda_rmsnorm_bwd (const ExecArgs *args, void *stream);
int exec_cuda_layernorm (const ExecArgs *args, void *stream);
int exec_cuda_add_layernorm (const ExecArgs *args, void *stream);
int exec_cuda_layernorm_bwd (const ExecArgs *args, void *stream);
int exec_cuda_bias_bwd (const ExecArgs *args, void *stream);

/* optimizer.cu; the first is no op. */
ExecCudaVarying exec_cuda_varying (const ExecConstants *constants);
int exec_cuda_norm_sq (const ExecArgs *args, void *stream);
int exec_cuda_clip (const ExecArgs *args, void *stream);
int exec_cuda_adamw (const ExecArgs *args, void *stream);
int exec_cuda_sgd (const ExecArgs *args, void *stream);

/* param.cu; for each parameter that a rank has a part of */
int exec_cuda_param_amax (const ExecArgs *args, void *stream);
int exec_cuda_param_quantize (const ExecArgs *args, void *stream);
int exec_cuda_rescale (const ExecArgs *args, void *stream);
int exec_cuda_transpose (const ExecArgs *args, void *stream); /* formats of a byte */

/* The scales of two tensors multiplied: where cuBLASLt has one factor for both. */
int exec_cuda_multiply_scales (const float *a, const float *b, float addend, float *out,
                               void *stream);

/* quantize.cu; the second is no op: what exec_cpu_dequantize does, to one of these. */
int exec_cuda_quantize (const ExecArgs *args, void *stream);
int exec_cuda_dequantize (const void *in, PlanDtype dtype, const float *scale, guint64 count,
                          void *out, PlanDtype out_dtype, void *stream);

/* quantize-128x128.cu: scales are of 128 elements or squares; the last transposes them alone. */
int exec_cuda_quantize_128 (const ExecArgs *args, void *stream);
int exec_cuda_param_amax_squares (const ExecArgs *args, void *stream);
int exec_cuda_param_quantize_squares (const ExecArgs *args, void *stream);
int exec_cuda_turn_squares (const ExecArgs *args, void *stream);

G_END_DECLS
