/* Parts of PlanStack: how the ops of a layer run, and the loss. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Whose kernels the ops of a layer run on. */
typedef enum
{
  PLAN_KERNELS_TRANSFORMER_ENGINE, /* GEMMs of fp32 factors use the device's tf32 units */
  /* PyTorch's. Attention is flash-attention 2, made for Ampere. A gated activation keeps the
   * activated gate, unless it is compiled. */
  PLAN_KERNELS_PYTORCH,
  /* This program's own. Norms add residuals, too, in both passes; the device counts the rows of
   * each expert, and sorts them once; the host waits for the counts on GPUs alone, to issue a GEMM
   * for each expert; on processors they take fp32 scratch, which the schedule declares. Parts of
   * products (tp_overlap) are sent and received, not copied into the other ranks' memory, and those
   * of q, k and v, and of gate and up, are one product in the backward pass, too. */
  PLAN_KERNELS_OWN,
} PlanKernels;

/* What recompute does again although nobody reads it. */
typedef enum
{
  PLAN_REPEATS_NOTHING,
  PLAN_REPEATS_OUTPUTS, /* the output of the module that is computed again */
} PlanRepeats;

/* What op-by-op recompute (op-sac) keeps beside attention and every second product. */
typedef enum
{
  PLAN_SAC_CUDNN = 1,  /* attention also of cuDNN's, on Blackwell; all other is always kept */
  PLAN_SAC_ROWS = 2,   /* rows that have come from other ranks, and their numbers on the host */
  PLAN_SAC_SOME = 4,   /* these with latent attention, sinks or scores on the input of experts */
  PLAN_SAC_BIASED = 8, /* all products with biases, which it does not count; else none of these */
} PlanSac;

/* How attention reads keys and values that several query heads share. */
typedef enum
{
  PLAN_KEYS_SHARED,
  PLAN_KEYS_REPEATED, /* copied for each query head */
  PLAN_KEYS_PAIRED,   /* kept twice: among the heads of qkv, and side by side */
} PlanKeys;

/* What becomes of a sequence that a tensor-parallel group has gathered. */
typedef enum
{
  PLAN_SEQUENCES_ANEW,   /* it is freed, and gathered again in the backward pass */
  PLAN_SEQUENCES_KEPT,   /* it stays for the backward pass */
  PLAN_SEQUENCES_STATIC, /* it is gathered again, always into the same static buffers */
} PlanSequences;

/* How the ops of a layer run. */
typedef struct
{
  PlanKernels kernels;
  PlanRepeats repeats;
  PlanSac sac;
  gboolean compiles_parts; /* compile=on: layers with experts part by part; to op-sac the products
                              of a part are unknown */
  gboolean joins_qkv;      /* to op-sac queries, keys and values are one product, not three */
  PlanKeys keys;
  PlanSequences sequences;
  gboolean pads_rows;        /* a single rank, too, moves rows twice, to pad those of each expert */
  gboolean exchanges_beside; /* the backward pass gathers and reduces sequences beside a GEMM */
  guint64 least_offloaded;   /* elements of the smallest activation that offload_modules moves */
} PlanStackLayer;

/* What a loss leaves in memory for each logit, beside the logits themselves. */
typedef enum
{
  /* Nothing: logits become their gradient. If logits are capped, a softmax and a gradient; with
   * separate kernels, fp32 images of both as well. */
  PLAN_LOSS_IN_PLACE,
  PLAN_LOSS_IMAGE, /* an fp32 softmax, and while that is made a second fp32 image */
  PLAN_LOSS_EAGER, /* fp32 logits, then their softmax; two fp32 gradients before they are rounded */
  /* The fp32 logits in place of the logits, then a softmax that becomes the gradient. */
  PLAN_LOSS_SHARDED,
  PLAN_LOSS_ROUNDED, /* a softmax in the logits' own format, then the gradient */
} PlanLoss;

/* When a loss is PLAN_LOSS_ROUNDED. */
typedef enum
{
  PLAN_ROUNDED_NEVER,
  PLAN_ROUNDED_IF_FUSED,    /* ce_fusion=on */
  PLAN_ROUNDED_IF_COMPILED, /* compile=on */
} PlanRoundedLoss;

/* What does a loss in chunks. */
typedef enum
{
  PLAN_PIECES_NONE,  /* the framework has no such loss */
  PLAN_PIECES_FUSED, /* a loop over chunks within one op */
  /* Autograd does each chunk: the weight's gradient is rounded, then added to a sum in grad_comm's
   * format; the input's gradient is added to a sum in fp32; the logits stay until the next chunk's
   * have been made; the head is gathered again after all chunks. */
  PLAN_PIECES_AUTOGRAD,
} PlanPieces;

typedef struct
{
  PlanLoss kind;
  PlanRoundedLoss rounded;
  PlanPieces pieces;
  gint64 chunks;         /* default of the framework's configurations */
  gboolean keeps_logits; /* the fp32 logits, until the loss's backward pass ends */
} PlanStackLoss;

G_END_DECLS
